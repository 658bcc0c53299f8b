// Greedy speculative decoding: a draft proposes gamma tokens, the verifier checks them in one pass,
// densely or under a selector.
//
// One round: the draft proposes d_1 .. d_gamma after the last known token x; the verifier runs
// x, d_1 .. d_gamma as one verification (SpecAttn, arXiv 2510.27641, algorithm 1: the draft's
// attention rows come with it); the longest prefix in which d_i is the verifier's arg max is
// accepted, and the verifier's own next token follows it (a correction, or a bonus after the last
// draft). Caches and selector then forget what was rejected. Under dense verification the output is
// the greedy output of the verifier alone, token for token; under sparse verification it need not
// be.
#pragma once

#include <functional>
#include <vector>

#include "core/sim/draft_runner.hpp"
#include "core/sim/live.hpp"

namespace kvscope {

/// Counts and times of one run.
struct SpeculativeResult {
  std::vector<TokenId> tokens;  // [n_new] after the prompt
  std::vector<Index> accepted;  // per verifier pass: drafts accepted
  /// The draft's forward calls, and its attention rows for methods that read them.
  double draft_seconds = 0.0;
  double total_seconds = 0.0;  // all rounds, without the prefill
};

/// Called after each pass with the number of tokens so far; returns false to stop.
using TokenCount = std::function<bool(Index)>;

/// Decodes n_new tokens greedily after what `verifier` and `draft` were filled in with, which is
/// the prompt without its last token; `last` is that token. The verifier needs room for n_new +
/// gamma + 1 more tokens, the draft for as many. Throws ConfigError for gamma < 1.
SpeculativeResult decode_speculatively(LiveSequence& verifier, DraftRunner& draft, TokenId last,
                                       Index n_new, Index gamma, const TokenCount& on_tokens = {});

/// Plain greedy decoding, one token per pass, for comparison.
std::vector<TokenId> decode_greedily(LiveSequence& model, TokenId last, Index n_new,
                                     const TokenCount& on_tokens = {});

}  // namespace kvscope
