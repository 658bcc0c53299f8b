// Retrieval under a selector: prompts with hidden facts over a grid of lengths and depths, filled
// in densely or under the selector, answered greedily.
//
// passkey, Quest's protocol (arXiv 2406.10774): all but the last n_fed tokens are filled in
// densely, the last ones are fed one by one under the selector, as are the answer's. needle,
// QuoKA's (arXiv 2602.08722, figures 4 and 7): the whole prompt goes in by chunks under the
// selector and the answer is decoded densely. ruler: several kinds of prompts, scores by length.
#pragma once

#include "analysis/simulate/prompts.hpp"
#include "analysis/simulate/simulation.hpp"

namespace kvscope {

/// Which calls the selector answers in.
enum class RetrievalProtocol {
  decode,   // the last n_fed tokens and the answer; dense before
  prefill,  // the prompt; dense afterwards
  all,      // prompt and answer
};

struct RetrievalOptions {
  std::string task = "passkey";  // its name in results
  RetrievalProtocol protocol = RetrievalProtocol::decode;
  std::vector<PromptKind> kinds = {PromptKind::passkey};
  std::vector<Index> lengths = {1024, 2048, 4096, 8192};
  Index n_depths = 10;    // equally spaced from 0 to 1; one stands in the middle
  Index trials = 1;       // prompts per kind, length and depth
  Index n_fed = 100;      // protocol decode: tokens fed one by one
  Index n_facts = 8;      // multi_key
  bool by_depth = false;  // one row per depth
};

/// Throws ConfigError for lengths beyond the model's positions or too short for the prompt, a text
/// shorter than the longest prompt, an empty grid.
std::unique_ptr<SimulationTask> make_retrieval_task(const SimulationSetup& setup,
                                                    const RetrievalOptions& options);

/// The phase that a method must be defined for.
Phase phase_of(RetrievalProtocol protocol);

}  // namespace kvscope
