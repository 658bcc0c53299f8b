#include "analysis/simulate/wording.hpp"

#include <algorithm>

#include "analysis/simulate/ask_prompt.hpp"

namespace kvscope {

namespace {

constexpr Index kFirstTrial = 1'000'000;  // beyond those of any grid: other draws

double dense_score(const SimulationSetup& setup, const RetrievalOptions& options, PromptKind kind,
                   bool in_chat, ThreadPool& pool, const std::stop_token& stop) {
  const Tokenizer& tokenizer = *setup.models.tokenizer;
  LivePair dense;
  dense.options = {MethodSpec("full"), std::nullopt, std::nullopt};
  AskOptions ask;  // a protocol in which nothing is sparse
  ask.protocol.name = "dense";
  const bool is_local = kind == PromptKind::local;
  const Index n = is_local ? std::min(kTriedPrompts, static_cast<Index>(options.examples.size()))
                           : kTriedPrompts;
  double sum = 0.0;
  for (Index i = 0; i < n; ++i) {
    PromptSpec spec;
    spec.kind = kind;
    spec.length = *std::min_element(options.lengths.begin(), options.lengths.end());
    spec.depth = static_cast<double>(i) / static_cast<double>(kTriedPrompts - 1);
    spec.n_facts = options.n_facts;
    spec.seed = setup.options.seed;
    spec.trial = kFirstTrial + i;
    spec.leading = setup.models.leading;
    if (in_chat) {
      spec.chat = options.chat.get();
      spec.leading = leading_in_chat(*options.chat, spec.leading, tokenizer);
    }
    const Prompt prompt =
        is_local ? make_local_prompt(options.examples[static_cast<std::size_t>(i)], spec, tokenizer)
                 : make_prompt(spec, setup.models.text, tokenizer);
    const auto n_dense = static_cast<std::size_t>(n_dense_tokens(prompt, ask));
    const DensePrefix prefix(setup, std::span(prompt.tokens).first(n_dense), pool, stop);
    sum += ask_prompt(setup, dense, kind, prompt, ask, prefix, pool, stop).front().score;
  }
  return sum / static_cast<double>(n);
}

}  // namespace

std::vector<WordingTrial> try_wordings(const SimulationSetup& setup,
                                       const RetrievalOptions& options, ThreadPool& pool,
                                       const std::stop_token& stop) {
  std::vector<WordingTrial> trials;
  for (const PromptKind kind : options.kinds) {
    WordingTrial trial;
    trial.kind = kind;
    trial.plain = dense_score(setup, options, kind, /*in_chat=*/false, pool, stop);
    if (trial.plain < kDenseSolves) {
      trial.chat = dense_score(setup, options, kind, /*in_chat=*/true, pool, stop);
      trial.in_chat = *trial.chat > trial.plain;
    }
    trials.push_back(trial);
  }
  return trials;
}

}  // namespace kvscope
