// Why a needle was missed: a retrieval prompt answered densely and under a method, and for every
// layer and query head how much attention goes to the fact, whether the method's list holds it, and
// at which rank by the method's score.
//
// The two runs are closed loops: under the method later layers see what the sparse layers before
// them made. Looked at are the calls that predict the answer's tokens, the last query of each.
#pragma once

#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "analysis/simulate/prompts.hpp"
#include "core/model/transformer.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope {

struct ExplainOptions {
  PromptSpec prompt;
  MethodSpec selector = "quoka";
  std::optional<Budget> budget;
  std::optional<Index> dense_layers;
  Index chunk = 128;
};

/// What one query head did in the call that predicts one token of the answer.
struct FactLook {
  /// 0: the prompt's last call; n: the call that was fed the n-th token of the answer.
  Index step = 0;
  Index layer = 0;
  Index q_head = 0;
  /// Share of the exact attention of the call's last query on the fact's tokens.
  double weight = 0.0;
  bool answered = true;  // false: the method left the call dense
  Index kept = 0;        // of the fact's tokens, in the head's list
  /// Of the fact's best token among all scored ones, from 1; 0: the method gave no scores.
  Index rank = 0;
  Index scored = 0;    // how many got scores
  Index budget = 0;    // keys of the list that a score earned
  double score = 0.0;  // of the fact's best token (rank > 0)
  double cut = 0.0;    // the smallest score in the list (rank > 0)
};

/// One run: what came out, and what every head did.
struct ExplainedRun {
  std::string generated;
  double score = 0.0;  // score_answer
  std::vector<TokenId> tokens;
  std::vector<FactLook> looks;  // [step][layer][q_head], layers that the method was asked about
};

struct Explanation {
  std::string expected;
  std::vector<Index> fact;  // positions of the tokens that spell the answer
  ExplainedRun sparse;
  ExplainedRun dense;      // empty unless asked for
  Index first_wrong = -1;  // the first step whose token differs from the dense run's; -1: none
};

/// Runs the prompt under the method and, if it misses (or `always`), densely. Throws ConfigError if
/// the answer cannot be found among the prompt's tokens, and what make_prompt and LiveSequence
/// throw; Interrupted on a stop.
Explanation explain_prompt(const Transformer& model, const Tokenizer& tokenizer,
                           std::span<const TokenId> filler, const ExplainOptions& options,
                           bool always, ThreadPool& pool, const std::stop_token& stop);

/// The looks of the dense run at `step` whose weight is at least `least`, heaviest first, each with
/// the same head's look under the method (null: it was not asked).
struct LookPair {
  const FactLook* dense = nullptr;
  const FactLook* sparse = nullptr;
};
std::vector<LookPair> heads_that_look(const Explanation& explanation, Index step, double least);

}  // namespace kvscope
