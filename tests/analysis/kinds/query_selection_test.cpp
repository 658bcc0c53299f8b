// S_q against the largest weight on synthetic traces: against loops and against analyze quoka,
// with a planted relation and a planted confounding.
#include "analysis/kinds/query_selection.hpp"

#include "analysis/base/statistics.hpp"
#include "analysis/kinds/quoka.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/kinds/on_pool.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::query_selection_test {

constexpr test::OnPool run{analyze_query_selection};

/// A trace with a sliding window in layer 1 and some decoded positions.
MemoryTrace windowed_trace(const test::PlantOptions& plant, Index window, Index n_prompt) {
  return test::planted_trace(plant, [&](TraceInfo& info) {
    info.window[1] = window;
    info.n_prompt = n_prompt;
  });
}

TEST_CASE("query-selection: every row equals the loops") {
  test::PlantOptions plant{.n_tokens = 53, .sink = 1.0, .has_sink_logits = GENERATE(false, true)};
  plant.score_cap = plant.has_sink_logits ? 2.5 : 0.0;
  plant.duplicates = {{3, 9}, {3, 12}};
  const MemoryTrace trace = windowed_trace(plant, 7, 48);
  QuerySelectionOptions options{
      .chunk = 16, .skip = GENERATE(0, 1, 5), .skip_recent = GENERATE(0, 3)};
  MemoryResult result;
  run(trace, options, result);
  const auto log_max = result.values<float>("log_max_weight");
  const auto max_weight = result.values<float>("max_weight");
  const auto max_key = result.values<std::int32_t>("max_key");
  const auto lse = result.values<float>("lse");
  const auto breadth = result.values<float>("breadth");
  std::size_t at = 0;
  for (Index layer = 0; layer < plant.n_layers; ++layer) {
    for (Index head = 0; head < plant.n_q; ++head) {
      for (Index pos = 0; pos < plant.n_tokens; ++pos, ++at) {
        const auto row = test::naive_row(trace, layer, head, pos);
        const auto scores = test::naive_scores(trace, layer, head, pos);
        const Index first = test::naive_first_visible(trace, layer, pos);
        double sum = 0.0, entropy = 0.0;
        Index best = -1;
        for (const double score : scores) sum += std::exp(score);
        const auto sink_logit = trace.info().sink_logit(layer, head);
        const double total = sum + (sink_logit ? std::exp(*sink_logit) : 0.0);
        for (std::size_t t = 0; t < row.size(); ++t) {
          const double share = std::exp(scores[t]) / sum;  // of what the keys get
          entropy -= share * std::log(share);
          const Index key = first + static_cast<Index>(t);
          if (key < options.skip || key > pos - options.skip_recent) continue;
          if (best < 0 || scores[t] > scores[best - first]) best = key;
        }
        CHECK(lse[at] == Approx(std::log(total)));
        CHECK(breadth[at] == Approx(std::exp(entropy)));
        REQUIRE(max_key[at] == best);
        if (best < 0) {
          CHECK(std::isnan(log_max[at]));
          CHECK(std::isnan(max_weight[at]));
          continue;
        }
        const double weight = row[best - first];
        CHECK(max_weight[at] == Approx(weight));
        CHECK(log_max[at] == Approx(std::log(weight)).margin(1e-6));
      }
    }
  }
}

TEST_CASE("query-selection: correlations are those of the arrays it writes") {
  const MemoryTrace trace = windowed_trace(test::PlantOptions{.n_tokens = 80, .band = 1.0}, 9, 72);
  QuerySelectionOptions options;
  options.chunk = 16;  // 4 whole chunks and one of 8
  options.control = GENERATE(QueryControl::position, QueryControl::log_position);
  MemoryResult result;
  const auto summary = run(trace, options, result);
  const auto log_max = result.values<float>("log_max_weight");
  const auto within = result.values<double>("correlation/within_chunk");
  REQUIRE(within.size() == 2u * 4u * 5u);
  for (const std::string span : {"prompt", "chunk"}) {
    const auto s_q = result.values<float>(span + "/s_q");
    for (std::size_t slot = 0; slot < 8; ++slot) {
      std::vector<double> x, y, weight, z;
      for (std::size_t pos = 1; pos < 80; ++pos) {
        const std::size_t at = slot * 80 + pos;
        x.push_back(static_cast<double>(s_q[at]));
        y.push_back(static_cast<double>(log_max[at]));
        weight.push_back(std::exp(y.back()));
        z.push_back(options.control == QueryControl::position ? static_cast<double>(pos)
                                                              : std::log1p(pos));
        if (span == "chunk") CHECK(std::isnan(x.back()) == (pos >= 72));
      }
      const auto value = [&](const char* name) {
        return result.values<double>("correlation/" + span + "/" + name)[slot];
      };
      CHECK(value("pearson") == Approx(pearson(x, weight)).margin(1e-5));
      CHECK(value("pearson_log") == Approx(pearson(x, y)).margin(1e-5));
      CHECK(value("spearman") == Approx(spearman(x, y)).margin(1e-4));
      CHECK(value("partial_pearson") == Approx(partial_correlation(x, y, z)).margin(1e-5));
      CHECK(value("partial_spearman") == Approx(partial_spearman(x, y, z)).margin(1e-4));
      if (span == "prompt") continue;
      for (std::size_t c = 0; c < 5; ++c) {
        const std::size_t first = c == 0 ? 0 : c * 16 - 1;  // query 0 is left out
        const std::size_t n = c == 0 ? 15 : c == 4 ? 8 : 16;
        CHECK(within[slot * 5 + c] ==
              Approx(pearson(std::span(x).subspan(first, n), std::span(y).subspan(first, n)))
                  .margin(1e-5));
      }
    }
  }
  CHECK(summary["totals"]["queries_per_head"] == 79);
}

TEST_CASE("query-selection: the confounding is measured over the queries that are correlated") {
  const MemoryTrace trace = test::planted_trace(test::PlantOptions{.n_tokens = 80});
  QuerySelectionOptions options;
  options.skip_recent = 60;  // queries before 61 have no key left
  MemoryResult result;
  run(trace, options, result);
  const auto s_q = result.values<float>("prompt/s_q");
  std::vector<double> position, scores;
  for (std::size_t pos = 61; pos < 80; ++pos) {
    position.push_back(static_cast<double>(pos));
    scores.push_back(static_cast<double>(s_q[pos]));
  }
  CHECK(result.values<double>("correlation/position/prompt_s_q")[0] ==
        Approx(pearson(position, scores)).margin(1e-5));
}

TEST_CASE("query-selection: the prompt's correlations are those of analyze quoka") {
  test::PlantOptions plant{.n_tokens = 200, .sink = 3.0, .has_sink_logits = GENERATE(false, true)};
  plant.score_cap = plant.has_sink_logits ? 2.5 : 0.0;
  const MemoryTrace trace = test::planted_trace(plant);
  MemoryResult mine, quoka;
  run(trace, {}, mine);
  ThreadPool pool(1);
  analyze_quoka(trace, {}, {quoka, pool});
  for (const auto& [ours, theirs] : {std::pair{"prompt/pearson", "pearson"},
                                     {"prompt/pearson_log", "pearson_log"},
                                     {"prompt/spearman", "spearman"},
                                     {"prompt/partial_pearson", "partial_log"}}) {
    const auto a = mine.values<double>(std::string("correlation/") + ours);
    const auto b = quoka.values<double>(std::string("correlation/") + theirs);
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).margin(1e-4));
  }
}

TEST_CASE("query-selection: a planted relation is found, a planted confounding is taken out") {
  // Both layers: queries (5, +-x, y, 0) with alternating signs, so that the mean lies along channel
  // 0 and S_q grows with x; all keys are zero but 1 and 2.
  // Layer 0: keys 1 and 2 wait along +-channel 1, so the weight grows with x: S_q tells it.
  // Layer 1: x grows with the position, and the weight falls with it since more zero keys are seen;
  // beyond that x and y (which key 1 sees) are noise of their own: nothing joins them.
  const Index n = 400;
  MemoryTrace trace(make_trace_info(2, 1, 1, 4, n, 100));
  test::Random random(11);
  trace.k(0)(0, 1, 1) = 4.0f;
  trace.k(0)(0, 2, 1) = -4.0f;
  trace.k(1)(0, 1, 2) = 4.0f;
  for (Index t = 0; t < n; ++t) {
    const double sign = t % 2 == 0 ? 1.0 : -1.0;
    const double when = static_cast<double>(t) / static_cast<double>(n);
    trace.q(0)(0, t, 0) = 5.0f;
    trace.q(0)(0, t, 1) = static_cast<float>(sign * 6.0 * random.uniform());
    trace.q(1)(0, t, 0) = 5.0f;
    trace.q(1)(0, t, 1) = static_cast<float>(sign * (8.0 * when + 0.5 * random.normal()));
    trace.q(1)(0, t, 2) = static_cast<float>(0.5 * std::abs(random.normal()));
  }
  MemoryResult result;
  const auto summary = run(trace, QuerySelectionOptions{.skip = 0}, result);
  const auto value = [&](const char* name, std::size_t layer) {
    return result.values<double>(std::string("correlation/") + name)[layer];
  };
  CHECK(value("prompt/partial_spearman", 0) > 0.9);
  CHECK(value("prompt/partial_pearson", 0) > 0.8);
  CHECK(value("prompt/pearson_log", 0) > 0.6);
  CHECK(summary["layers"][0]["within_chunk"].get<double>() > 0.6);
  CHECK(value("prompt/spearman", 1) < -0.6);
  CHECK(std::abs(value("prompt/partial_spearman", 1)) < 0.2);
  CHECK(value("position/log_weight", 1) < -0.6);
  CHECK(value("position/prompt_s_q", 1) > 0.8);
}

}  // namespace kvscope::query_selection_test
