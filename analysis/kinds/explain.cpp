#include "analysis/kinds/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/base/analysis.hpp"
#include "core/base/error.hpp"
#include "core/sim/live.hpp"

namespace kvscope {

namespace {

/// What the watching selector writes to, and whether it looks.
struct Watch {
  std::vector<Index> fact;
  bool on = false;
  Index step = 0;
  std::vector<FactLook> looks;
};

/// Share of the exact attention of the call's last query on the keys at `fact`.
double weight_on(const SelectCall& call, Index q_head, Index group, std::span<const Index> fact) {
  const auto query = call.q.sub(q_head).row(call.n_tok - 1);
  const auto keys = call.k.sub(q_head / group);
  const Index n_keys = call.pos_begin + call.n_tok;
  std::vector<double> scores(static_cast<std::size_t>(n_keys));
  double largest = -std::numeric_limits<double>::infinity();
  for (Index pos = 0; pos < n_keys; ++pos) {
    double sum = 0.0;
    const auto key = keys.row(pos);
    for (std::size_t c = 0; c < query.size(); ++c) sum += static_cast<double>(query[c]) * key[c];
    scores[static_cast<std::size_t>(pos)] = sum * static_cast<double>(call.score_scale);
    largest = std::max(largest, scores[static_cast<std::size_t>(pos)]);
  }
  double all = 0.0, mine = 0.0;
  if (!call.sink_logits.empty())
    all +=
        std::exp(static_cast<double>(call.sink_logits[static_cast<std::size_t>(q_head)]) - largest);
  for (const double s : scores) all += std::exp(s - largest);
  for (const Index pos : fact) mine += std::exp(scores[static_cast<std::size_t>(pos)] - largest);
  return mine / all;
}

/// The method itself, watched: its answers are untouched.
class WatchedSelector final : public Selector {
 public:
  WatchedSelector(std::unique_ptr<Selector> method, Watch& watch)
      : method_(std::move(method)), watch_(watch) {}
  std::string_view name() const override { return method_->name(); }
  SelectorCaps caps() const override { return method_->caps(); }
  void calibrate(const TraceSource& text, std::span<const Index> layers,
                 ThreadPool& pool) override {
    method_->calibrate(text, layers, pool);
  }
  void reset(const AttentionShape& shape) override {
    shape_ = shape;
    method_->reset(shape);
  }
  Selection select(const SelectCall& call) override {
    if (!watch_.on) return method_->select(call);
    SelectionTrace seen;
    SelectCall watched = call;
    watched.trace = &seen;
    Selection selection = method_->select(watched);
    for (Index head = 0; head < shape_.n_q; ++head) look(call, selection, seen, head);
    return selection;
  }
  void observe(const SelectCall& call, const ObservedProbs& probs) override {
    method_->observe(call, probs);
  }
  void evict(const SelectCall& call, AliveMask& alive) override { method_->evict(call, alive); }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    return method_->cost(call, selection);
  }

 private:
  void look(const SelectCall& call, const Selection& selection, const SelectionTrace& seen,
            Index head) {
    FactLook found;
    found.step = watch_.step;
    found.layer = call.layer;
    found.q_head = head;
    found.weight = weight_on(call, head, shape_.group(), watch_.fact);
    found.answered = !selection.is_dense;
    if (selection.is_dense) {
      found.kept = static_cast<Index>(watch_.fact.size());
    } else {
      const Index owner = owner_of(selection.owner, head, shape_.group());
      const ListView list = selection.list(owner, call.n_tok - 1);
      for (const Index pos : watch_.fact) {
        if (std::binary_search(list.keys.begin(), list.keys.end(), static_cast<KeyPos>(pos)))
          ++found.kept;
      }
      found.budget = static_cast<Index>(list.scored().size());
      rank(list, seen, owner, found);
    }
    watch_.looks.push_back(found);
  }

  void rank(const ListView& list, const SelectionTrace& seen, Index owner, FactLook& found) const {
    if (owner >= static_cast<Index>(seen.scores.size())) return;
    const std::vector<double>& scores = seen.scores[static_cast<std::size_t>(owner)];
    const Index page = std::max<Index>(1, method_->caps().page_size);
    const auto score_of = [&](Index pos) {
      const Index at = pos / page - seen.scored.begin;
      return at >= 0 && at < static_cast<Index>(scores.size())
                 ? scores[static_cast<std::size_t>(at)]
                 : -std::numeric_limits<double>::infinity();
    };
    found.score = -std::numeric_limits<double>::infinity();
    for (const Index pos : watch_.fact) found.score = std::max(found.score, score_of(pos));
    if (!std::isfinite(found.score)) return;
    found.cut = std::numeric_limits<double>::infinity();
    for (const KeyPos pos : list.scored()) found.cut = std::min(found.cut, score_of(pos));
    found.scored = static_cast<Index>(scores.size());
    found.rank =
        1 + std::count_if(scores.begin(), scores.end(), [&](double s) { return s > found.score; });
  }

  std::unique_ptr<Selector> method_;
  Watch& watch_;
  AttentionShape shape_;
};

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
  if (at == text.npos) {
    throw ConfigError(
        fmt::format("the answer {} does not stand in the prompt's tokens as text", answer));
  }
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
  Watch watch;
  watch.fact = std::move(fact);
  SelectorEntry entry;
  entry.name = "watched";
  entry.title = "watched";
  entry.caps = method.caps();
  entry.make = [&](const SelectorOptions&) {
    return std::make_unique<WatchedSelector>(method.make(), watch);
  };
  SelectorRegistry registry;
  registry.put(std::move(entry));
  LiveOptions live_options;
  live_options.selector = MethodSpec::parse(registry, "watched");
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
  Explanation explanation;
  explanation.expected = prompt.answers.at(0);
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
  std::stable_sort(pairs.begin(), pairs.end(), [](const LookPair& a, const LookPair& b) {
    return a.dense->weight > b.dense->weight;
  });
  return pairs;
}

}  // namespace kvscope
