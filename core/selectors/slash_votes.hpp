// What the last queries of a call attend to, added up by key ("vertical") and by distance before
// the query ("slash"): the votes of the patterns of prefill.
#pragma once

#include <vector>

#include "core/selectors/selector.hpp"

namespace kvscope {

/// Sums of softmax weights over the voters of each query head.
struct SlashVotes {
  std::vector<std::vector<double>> columns;  // [n_q][n_ctx] by position
  std::vector<std::vector<double>> offsets;  // [n_q][n_ctx] by distance: 0 is the query itself
};

/// The votes of the call's last n_voters queries (all where it has fewer), over the alive keys that
/// each sees. In f64 each query head is summed row by row by one thread; in f32 as add_votes_f32
/// (core/selectors/softmax_votes.hpp) does.
SlashVotes slash_votes(const SelectCall& call, Index n_voters);

}  // namespace kvscope
