// Retrieval under a selector: prompts with hidden facts, or chains that go on, over a grid of
// protocols, kinds, lengths and depths, asked once or in turns.
//
// Which calls run under the method is the protocol's (protocol.hpp): Quest's is decode (arXiv
// 2406.10774, pass keys), QuoKA's all (arXiv 2602.08722, figures 4 and 7), in which prompt and
// answer run under the method. A row is a cell: protocol, kind, length, method and budget, with
// by_depth the depth, and with several turns the turn. Its accuracy has Wilson's interval; doubts
// that gates raise (gates.hpp) stand in its column `doubt`. With chains (chains.hpp) rows also have
// steps_right, same_as_dense (share of prompts answered as the dense model does) and
// first_difference (the first token of all prompts that is not the dense model's own).
#pragma once

#include <memory>

#include "analysis/simulate/local_prompts.hpp"
#include "analysis/simulate/prompts.hpp"
#include "analysis/simulate/protocol.hpp"
#include "analysis/simulate/simulation.hpp"

namespace kvscope {

struct RetrievalOptions {
  std::vector<Protocol> protocols = {parse_protocol("all")};
  std::vector<PromptKind> kinds = {PromptKind::passkey};
  std::vector<Index> lengths = {1024, 2048, 4096, 8192};
  Index n_depths = 10;          // equally spaced from 0 to 1; one stands in the middle
  Index trials = 1;             // prompts per kind, length and depth
  Index n_fed = 100;            // protocol decode: tokens fed one by one
  Index n_facts = 8;            // multi_key
  Index n_steps = 1024;         // chains: tokens to decode
  bool by_depth = false;        // one row per depth
  Index turns = 1;              // questions per prompt, one after the other over one cache
  bool shared_prefix = false;   // each turn starts from the context again instead
  double until_interval = 0.0;  // > 0: prompts are added until no row's interval reaches further
                                // than this to either side, or max_trials is reached
  Index max_trials = 200;       // per kind, length and depth; only with until_interval
  std::vector<LocalExample> examples;  // kind local: asked instead of made prompts
  std::shared_ptr<const ChatFrame>
      chat;                   // the words of the model's chat template, if they are used
  std::string chat_template;  // whose: "template of MODEL"
  std::vector<bool> in_chat;  // by kind; with `chat`
};

/// Throws ConfigError for lengths beyond the model's positions or too short for the prompt, a text
/// shorter than the longest prompt, an empty grid, turns that a kind has not.
std::unique_ptr<SimulationTask> make_retrieval_task(const SimulationSetup& setup,
                                                    const RetrievalOptions& options);

/// The phases that a method may be defined for; one is enough.
std::vector<Phase> phases_of(const std::vector<Protocol>& protocols);

}  // namespace kvscope
