#include "analysis/kinds/explain.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/base/analysis.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/kinds/watched_method.hpp"
#include "core/base/error.hpp"
#include "core/sim/live.hpp"

namespace kvscope {

namespace {

/// What is looked at in a run, and what was seen.
struct Watch {
  std::vector<Index> fact;
  bool on = false;
  Index step = 0;
  std::vector<FactLook> looks;
};

/// Adds the fact's rank among the method's scores, where it has some.
void add_rank(const ListView& list, const SelectionTrace& seen, Index owner, Index page_size,
              std::span<const Index> fact, FactLook& found) {
  if (owner >= n_of(seen.scores)) return;
  const std::vector<double>& scores = seen.scores[static_cast<std::size_t>(owner)];
  const Index page = std::max<Index>(1, page_size);
  const auto score_of = [&](Index pos) {
    const Index at = pos / page - seen.scored.begin;
    return at >= 0 && at < n_of(scores) ? scores[static_cast<std::size_t>(at)]
                                        : -std::numeric_limits<double>::infinity();
  };
  found.score = -std::numeric_limits<double>::infinity();
  for (const Index pos : fact) found.score = std::max(found.score, score_of(pos));
  if (!std::isfinite(found.score)) return;
  found.cut = std::numeric_limits<double>::infinity();
  for (const KeyPos pos : list.scored()) found.cut = std::min(found.cut, score_of(pos));
  found.scored = n_of(scores);
  found.rank = 1 + std::ranges::count_if(scores, [&](double s) { return s > found.score; });
}

FactLook look_of_head(const SelectCall& call, const Selection& selection,
                      const SelectionTrace& seen, Index page_size, Index head, const Watch& watch) {
  FactLook found{.step = watch.step, .layer = call.layer, .q_head = head};
  const std::vector<double> weights = last_row_weights(call, head);
  for (const Index pos : watch.fact) found.weight += weights[static_cast<std::size_t>(pos)];
  found.answered = !selection.is_dense;
  if (selection.is_dense) {
    found.kept = n_of(watch.fact);
    return found;
  }
  const Index owner = owner_of(selection.owner, head, call.q.dim(0) / call.k.dim(0));
  const ListView list = selection.list(owner, call.n_tok - 1);
  for (const Index pos : watch.fact) {
    if (std::ranges::binary_search(list.keys, static_cast<KeyPos>(pos))) ++found.kept;
  }
  found.budget = n_of(list.scored());
  add_rank(list, seen, owner, page_size, watch.fact, found);
  return found;
}

/// The method's answer, and what every head did.
Selection select_watched(Selector& method, const SelectCall& call, Watch& watch) {
  if (!watch.on) return method.select(call);
  SelectionTrace seen;
  SelectCall watched = call;
  watched.trace = &seen;
  Selection selection = method.select(watched);
  for (Index head = 0; head < call.q.dim(0); ++head) {
    watch.looks.push_back(
        look_of_head(call, selection, seen, method.caps().page_size, head, watch));
  }
  return selection;
}

/// The positions of the tokens that spell `answer` where it first occurs.
std::vector<Index> tokens_of(const std::string& answer, std::span<const TokenId> tokens,
                             const Tokenizer& tokenizer) {
  std::string text;
  std::vector<std::size_t> begins;
  for (const TokenId& token : tokens) {
    begins.push_back(text.size());
    text += tokenizer.decode({&token, 1});
  }
  const std::size_t at = text.find(answer);
  std::vector<Index> positions;
  if (at == text.npos)
    throw ConfigError("the answer {} does not stand in the prompt's tokens as text", answer);
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::size_t end = i + 1 < begins.size() ? begins[i + 1] : text.size();
    if (begins[i] < at + answer.size() && end > at && end > begins[i])
      positions.push_back(static_cast<Index>(i));
  }
  return positions;
}

ExplainedRun run_watched(const Transformer& model, const Tokenizer& tokenizer, const Prompt& prompt,
                         const ExplainOptions& options, const MethodSpec& method,
                         std::optional<Budget> budget, std::vector<Index> fact, ThreadPool& pool,
                         const std::stop_token& stop) {
  Watch watch{.fact = std::move(fact)};
  const WatchedMethod watched(method, [&](Selector& selector, const SelectCall& call) {
    return select_watched(selector, call, watch);
  });
  LiveOptions live_options;
  live_options.selector = watched.spec();
  live_options.budget = budget;
  live_options.dense_layers = options.dense_layers;
  const auto n_prompt = static_cast<Index>(prompt.tokens.size());
  LiveSequence live(model, live_options, n_prompt + prompt.n_answer_tokens, pool);
  const std::span<const TokenId> tokens(prompt.tokens);
  Tensor<float> logits;
  for (Index at = 0; at < n_prompt; at += options.chunk) {
    check_stop(stop, "explain");
    const Index n = std::min(options.chunk, n_prompt - at);
    watch.on = at + n == n_prompt;
    logits = live.run(Phase::prefill,
                      tokens.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)),
                      watch.on ? Logits::last : Logits::none);
  }
  ExplainedRun run;
  while (static_cast<Index>(run.tokens.size()) < prompt.n_answer_tokens) {
    check_stop(stop, "explain");
    run.tokens.push_back(argmax(logits.view().row(logits.dim(0) - 1)));
    if (static_cast<Index>(run.tokens.size()) == prompt.n_answer_tokens) break;
    watch.step = static_cast<Index>(run.tokens.size());
    logits = live.run(Phase::decode, {&run.tokens.back(), 1}, Logits::last);
  }
  run.generated = tokenizer.decode(run.tokens);
  run.score = score_answer(options.prompt.kind, prompt.answers, run.generated);
  run.looks = std::move(watch.looks);
  return run;
}

}  // namespace

Explanation explain_prompt(const Transformer& model, const Tokenizer& tokenizer,
                           std::span<const TokenId> filler, const ExplainOptions& options,
                           bool always, ThreadPool& pool, const std::stop_token& stop) {
  const Prompt prompt = make_prompt(options.prompt, filler, tokenizer);
  Explanation explanation{.expected = prompt.answers.at(0)};
  explanation.fact = tokens_of(explanation.expected, prompt.tokens, tokenizer);
  explanation.sparse = run_watched(model, tokenizer, prompt, options, options.selector,
                                   options.budget, explanation.fact, pool, stop);
  if (explanation.sparse.score >= 1.0 && !always) return explanation;
  explanation.dense = run_watched(model, tokenizer, prompt, options, "full", std::nullopt,
                                  explanation.fact, pool, stop);
  for (std::size_t i = 0; i < explanation.dense.tokens.size(); ++i) {
    if (explanation.dense.tokens[i] == explanation.sparse.tokens[i]) continue;
    explanation.first_wrong = static_cast<Index>(i);
    break;
  }
  return explanation;
}

std::vector<LookPair> heads_that_look(const Explanation& explanation, Index step, double least) {
  std::vector<LookPair> pairs;
  for (const FactLook& dense : explanation.dense.looks) {
    if (dense.step != step || dense.weight < least) continue;
    LookPair pair{&dense, nullptr};
    for (const FactLook& sparse : explanation.sparse.looks) {
      if (sparse.step == step && sparse.layer == dense.layer && sparse.q_head == dense.q_head)
        pair.sparse = &sparse;
    }
    pairs.push_back(pair);
  }
  std::ranges::stable_sort(pairs, [](const LookPair& a, const LookPair& b) {
    return a.dense->weight > b.dense->weight;
  });
  return pairs;
}

}  // namespace kvscope
