// Long decoding under a selector: synthetic chains whose next token is always known,
// continued greedily for thousands of steps, so that a method's own errors pile up in the
// cache that it keeps.
//
// copy: a stretch of prose, again and again. running_sum: " 3, 10, 12, 15," by three addends in
// turn, modulo 1000. rewriting: a line of things, in every further line the first one moved to the
// end. The prompt holds the beginning; nothing is teacher-forced. Protocol: the prompt dense, every
// step under the method (as `answer` in protocol.hpp).
#pragma once

#include "analysis/simulate/simulation.hpp"
#include "core/base/fields.hpp"

namespace kvscope {

enum class ChainKind { copy, running_sum, rewriting };

struct ChainOptions {
  std::vector<ChainKind> kinds = {ChainKind::copy, ChainKind::running_sum, ChainKind::rewriting};
  Index prompt = option(prompt, "prompt", 512,
                        "tokens of a prompt, which holds the chain's beginning", in(16, 1'000'000));
  Index steps = option(steps, "steps", 1024, "tokens to decode", in(1, 1'000'000));
  Index trials = option(trials, "trials", 4, "chains of each kind", in(1, 100'000));
};

/// A chain: its prompt and the `steps` tokens that follow.
struct Chain {
  std::vector<TokenId> prompt;
  std::vector<TokenId> expected;
};

/// The same for the same kind, seed and trial. Throws ConfigError if the prose is too short.
Chain make_chain(ChainKind kind, const ChainOptions& options, Index seed, Index trial,
                 const SimulationModels& models);

/// Rows by kind and pair: steps, prompts, accuracy (share of the steps before the first error) with
/// its bootstrap interval, steps_right (their mean number), same_as_dense, first_difference (the
/// first step that is not the dense model's own, of all prompts), KV reductions. Throws ConfigError
/// for more tokens than the model has positions.
std::unique_ptr<SimulationTask> make_chain_task(const SimulationSetup& setup,
                                                const ChainOptions& options);

}  // namespace kvscope
