// Speculative decoding with dense or sparse verification, beside plain greedy decoding: acceptance,
// KV reduction, divergence, and where the time goes.
#pragma once

#include "analysis/simulate/simulation.hpp"
#include "core/base/fields.hpp"

namespace kvscope {

struct SpeculativeOptions {
  Index prompt = 1024;
  Index n_new = 128;
  Index prompts = 4;
  Index offset = 5000;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"prompt", "tokens of a prompt, filled in densely"}.in(2, 100'000'000), self.prompt);
    visit(Field{"n-new", "tokens decoded after it"}.in(1, 100'000'000), self.n_new);
    visit(Field{"prompts", "stretches of each text, one after the other"}.in(1, 1'000'000),
          self.prompts);
    visit(Field{"offset", "first token of the first prompt"}.in(0, 1'000'000'000), self.offset);
  }
};

/// One row per (selector, budget, gamma), and one of selector "greedy" for decoding without a
/// draft. Cases run one after the other with all threads, so that seconds mean something. Throws
/// ConfigError for a missing draft, a text shorter than asked, lengths beyond either model's
/// positions.
std::unique_ptr<SimulationTask> make_speculative_task(const SimulationSetup& setup,
                                                      const SpeculativeOptions& options,
                                                      std::vector<Index> gammas);

}  // namespace kvscope
