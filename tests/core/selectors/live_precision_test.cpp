// Every method in the precision of live runs (f32), through chunks, decode and a rejected
// verification: the same answers from any number of threads, and those of f64 but for rounding.

#include "core/base/parallel.hpp"
#include "core/selectors/registry.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::live_precision_test {

Budget some_budget(const SelectorCaps& caps) {
  const auto takes = [&](Budget::Kind kind) {
    return std::ranges::find(caps.budgets, kind) != caps.budgets.end();
  };
  if (caps.budgets.empty() || takes(Budget::Kind::tokens)) return {Budget::Kind::tokens, 24.0};
  if (takes(Budget::Kind::mass)) return {Budget::Kind::mass, 0.8};
  if (takes(Budget::Kind::ratio)) return {Budget::Kind::ratio, 0.3};
  return {Budget::Kind::pages, 4.0};
}

std::vector<PlainSelection> live_selections(const std::string& spec, const Sequence& sequence,
                                            ScorePrecision precision, ThreadPool& pool) {
  auto selector = make_selector(spec, sequence);
  const SelectorCaps caps = selector->caps();
  SelectorRun run(std::move(selector), sequence.shape, {some_budget(caps)}, std::nullopt,
                  precision);
  std::vector<PlainSelection> selections;
  const auto ask = [&](Phase phase, Index n_tok) {
    const Index begin = run.n_keys();
    const auto drafts = drafts_for(run, sequence, phase, n_tok);
    run.begin_call(phase, n_tok, drafts);
    for (Index layer = 0; layer < sequence.shape.n_layers; ++layer) {
      const auto at = static_cast<std::size_t>(layer);
      selections.push_back(
          selection_of(run.layer_call({.layer = layer,
                                       .q = sequence.q[at].view().range(1, begin, begin + n_tok),
                                       .k = sequence.k[at].view().range(1, 0, begin + n_tok),
                                       .v = sequence.v[at].view().range(1, 0, begin + n_tok),
                                       .window = std::nullopt},
                                      {.pool = &pool})[0]));
    }
  };
  for (const auto& [phase, n_tok] : sequence.calls) {
    if (phase == Phase::decode && caps.verify && run.n_keys() + 3 <= sequence.n_tokens()) {
      const Index begin = run.n_keys();
      ask(Phase::verify, 3);
      run.rollback(begin + 1);
      if (run.n_keys() + n_tok > sequence.n_tokens()) break;
    }
    ask(phase, n_tok);
    if (run.n_keys() == sequence.n_tokens()) break;
  }
  return selections;
}

double share_of_equal_lists(const std::vector<PlainSelection>& a,
                            const std::vector<PlainSelection>& b) {
  REQUIRE(a.size() == b.size());
  double n_equal = 0.0;
  double n_lists = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].scored.size() == b[i].scored.size());
    for (std::size_t j = 0; j < a[i].scored.size(); ++j) {
      n_equal += a[i].scored[j] == b[i].scored[j] && a[i].forced[j] == b[i].forced[j] ? 1.0 : 0.0;
      n_lists += 1.0;
    }
  }
  return n_lists == 0.0 ? 1.0 : n_equal / n_lists;
}

TEST_CASE(
    "live precision: the same lists from any number of threads, and those of f64 to rounding") {
  const float cap = GENERATE(0.0f, 2.0f);  // of scores
  const Index n_tokens = cap > 0.0f ? 700 : 150;
  const Sequence sequence = random_sequence({.n_layers = 4,
                                             .n_kv = 2,
                                             .group = 3,
                                             .d_head = 24,
                                             .n_tokens = n_tokens,
                                             .chunk = 40,
                                             .n_decode = 12,
                                             .score_cap = cap,
                                             .has_ties = false});
  ThreadPool one(1);
  ThreadPool three(3);
  for (const SelectorEntry& entry : selector_registry().entries()) {
    std::vector<std::string> specs = {entry.name};
    for (const auto& [preset, assignments] : entry.presets) {
      // The sequence has no indexer.
      if (!selector_registry().make(preset)->caps().needs_side) specs.push_back(preset);
    }
    for (const std::string& spec : specs) {
      INFO(spec);
      const auto quick = live_selections(spec, sequence, ScorePrecision::f32, one);
      CHECK(quick == live_selections(spec, sequence, ScorePrecision::f32, three));
      const auto exact = live_selections(spec, sequence, ScorePrecision::f64, one);
      CHECK(exact == live_selections(spec, sequence, ScorePrecision::f64, three));
      CHECK(share_of_equal_lists(exact, quick) > 0.97);
    }
  }
}

}  // namespace kvscope::test::live_precision_test
