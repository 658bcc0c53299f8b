// One prefill of a running model, plain or under a method, with the time that attention and
// choosing took: the measurement behind kvscope bench live and tests/bench.
#pragma once

#include <span>
#include <stop_token>
#include <vector>

#include "core/model/tokenizer.hpp"
#include "core/model/transformer.hpp"
#include "core/sim/live_stats.hpp"
#include "core/sim/replay.hpp"

namespace kvscope::cli {

/// Seconds of one prefill up to the first token's logits, and of each decode step behind it.
struct LiveSeconds : LiveTimes {
  std::vector<double> steps;
};

/// pair null: the plain model. Throws Interrupted between calls.
LiveSeconds time_live(const Transformer& model, const ReplayPair* pair,
                      std::span<const TokenId> text, Index chunk, Index n_steps, ThreadPool& pool,
                      const std::stop_token& stop);

/// The embedded book's tokens, repeated if it is too short, as ids of any vocabulary.
std::vector<TokenId> book_tokens(const ModelConfig& config, Index length);

}  // namespace kvscope::cli
