// Softmax column sums: what chosen queries of a call attend to, added up per key on all threads of
// the call's engine.
//
// In f64 an owner's rows are summed by one thread in one order (add_softmax_weights). In f32 keys
// are divided among threads in blocks of a fixed size: every score is made once, kept as an
// exponential relative to its block's maximum, and weighed when all blocks of its row are known.
// Block sizes and orders do not depend on threads, so neither do the sums.
#pragma once

#include <span>
#include <vector>

#include "core/selectors/selector.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// Who votes, and for which keys. Each row's softmax runs over every alive key that it sees,
/// and its sink.
struct VoteQuestion {
  ListOwner owner = ListOwner::kv_head;  // q_head or kv_head: the heads whose votes are added up
  std::span<const Index> rows;           // of the call, counted from 0
  TokenRange keys;                       // positions that are voted for, inside call_range
  double factor = 1.0;                   // of each weight
};

/// [n_owners][keys.size()]; dead keys get 0.
std::vector<std::vector<double>> softmax_votes(const SelectCall& call,
                                               const VoteQuestion& question);
/// The same to sums, whose elements need not be set.
void softmax_votes(const SelectCall& call, const VoteQuestion& question,
                   std::span<const std::span<double>> sums);

/// The f32 way. lists: what the rows of each KV head attend to as far as they see it, [n_kv]
/// ascending positions, or none: everything. Adds to sums [n_owners][keys.size()] and, unless
/// empty, to offsets [n_owners][n_ctx]: the weights of keys at each distance before their query.
void add_votes_f32(const SelectCall& call, const VoteQuestion& question,
                   std::span<const std::span<const KeyPos>> lists,
                   std::span<const std::span<double>> sums,
                   std::span<const std::span<double>> offsets = {});

/// One span per row, as add_votes_f32 takes them.
inline std::vector<std::span<double>> rows_of(std::span<std::vector<double>> rows) {
  return {rows.begin(), rows.end()};
}

/// The lists of alive keys for add_votes_f32: none where no key is dead. `memory` holds them.
std::vector<std::span<const KeyPos>> alive_lists(const SelectCall& call,
                                                 std::vector<std::vector<KeyPos>>& memory);

}  // namespace kvscope
