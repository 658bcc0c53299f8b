// Speculative decoding with dense or sparse verification, beside plain greedy decoding: acceptance,
// KV reduction, divergence, and where the time goes.
#pragma once

#include "analysis/simulate/simulation.hpp"
#include "core/base/fields.hpp"

namespace kvscope {

struct SpeculativeOptions {
  Index prompt =
      option(prompt, "prompt", 1024, "tokens of a prompt, filled in densely", in(2, 100'000'000));
  Index n_new = option(n_new, "n-new", 128, "tokens decoded after it", in(1, 100'000'000));
  Index prompts = option(prompts, "prompts", 4, "stretches of each text, one after the other",
                         in(1, 1'000'000));
  Index offset =
      option(offset, "offset", 5000, "first token of the first prompt", in(0, 1'000'000'000));
};

/// One row per (selector, budget, gamma), and one of selector "greedy" for decoding without a
/// draft. Cases run one after the other with all threads, so that seconds mean something. Throws
/// ConfigError for a missing draft, a text shorter than asked, lengths beyond either model's
/// positions.
std::unique_ptr<SimulationTask> make_speculative_task(const SimulationSetup& setup,
                                                      const SpeculativeOptions& options,
                                                      std::vector<Index> gammas);

}  // namespace kvscope
