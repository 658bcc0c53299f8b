// The serving ladder on synthetic traces: its levels, ties and bytes against loops.
#include "analysis/kinds/ladder.hpp"

#include <nlohmann/json.hpp>

#include "core/attention/rounded_scores.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/kinds/on_pool.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::ladder_test {

LadderOptions options_for(const std::string& selector, const std::string& budget) {
  LadderOptions options{.selector = selector};
  if (!budget.empty()) options.budget = Budget::parse(budget);
  options.rows = 5;
  options.chunk = 8;
  return options;
}

constexpr test::OnPool run{analyze_ladder};

nlohmann::ordered_json level(const nlohmann::ordered_json& summary, const std::string& name) {
  for (const auto& row : summary["rows"]) {
    if (row["rung"] == name) return row;
  }
  FAIL("no level " << name);
  return {};
}

std::vector<Index> best(const std::vector<double>& scores, Index k) {
  std::vector<Index> order(scores.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Index>(i);
  std::ranges::stable_sort(order, [&](Index a, Index b) { return scores[a] > scores[b]; });
  order.resize(static_cast<std::size_t>(std::min<Index>(k, static_cast<Index>(order.size()))));
  return order;
}

TEST_CASE("ladder: the oracle's levels are those of loops") {
  test::PlantOptions plant{.has_sink_logits = GENERATE(false, true)};
  plant.score_cap = plant.has_sink_logits ? 2.5 : 0.0;
  plant.n_tokens = 72;
  plant.sink = 1.0;
  plant.query_scale = 2.0;
  const MemoryTrace trace = test::planted_trace(plant);
  MemoryResult result;
  const auto summary = run(trace, options_for("oracle-topk", "tokens=16"), result);
  const auto positions = result.values<std::int64_t>("query_pos");
  REQUIRE(positions.size() == 5);
  CHECK(positions.back() == 71);
  // steps between choices, at all of which all positions stand
  for (std::size_t i = 0; i < positions.size(); ++i)
    CHECK((positions[i] - 71 + 4 - static_cast<Index>(i)) % 4 == 0);
  for (std::size_t i = 1; i < positions.size(); ++i) CHECK(positions[i] - positions[i - 1] >= 8);

  // lists of a layer's heads together, whole pages of 16, both by loops
  double own = 0.0;
  double shared = 0.0;
  double paged = 0.0;
  double n = 0.0;
  for (Index layer = 0; layer < 2; ++layer) {
    for (const std::int64_t pos : positions) {
      const auto seen = static_cast<std::size_t>(pos) + 1;
      std::vector<double> sums(seen, 0.0);
      for (Index head = 0; head < 4; ++head) {
        const auto scores = test::naive_scores(trace, layer, head, pos);
        for (std::size_t t = 0; t < seen; ++t) sums[t] += scores[t];
      }
      for (Index head = 0; head < 4; ++head) {
        const auto row = test::naive_row(trace, layer, head, pos);
        const auto scores = test::naive_scores(trace, layer, head, pos);
        double all = 0.0;
        for (const double p : row) all += p;
        for (const Index t : best(scores, 16)) own += row[t] / all;
        for (const Index t : best(sums, 16)) shared += row[t] / all;
        std::vector<double> pages((seen + 15) / 16, -1e300);
        for (std::size_t t = 0; t < seen; ++t) pages[t / 16] = std::max(pages[t / 16], scores[t]);
        for (std::size_t t = 0; t < seen; ++t) {
          if (static_cast<Index>(t / 16) == best(pages, 1)[0]) paged += row[t] / all;
        }
        n += 1.0;
      }
    }
  }
  CHECK(level(summary, "as the method is")["mass"].get<double>() == Approx(own / n));
  CHECK(level(summary, "a list per query head")["mass"].get<double>() == Approx(own / n));
  CHECK(level(summary, "single tokens")["mass"].get<double>() == Approx(own / n));
  CHECK(level(summary, "one list for all heads")["mass"].get<double>() == Approx(shared / n));
  CHECK(level(summary, "pages of 16")["mass"].get<double>() == Approx(paged / n));
  CHECK(level(summary, "scores in f32")["mass"].get<double>() == Approx(own / n).margin(1e-3));
  CHECK(level(summary, "as the method is")["kept"].get<double>() == 16.0);
  const auto mass = result.values<double>("alone/mass");
  CHECK(mass.size() == 2 * 17);
  CHECK((mass[0] + mass[17]) / 2.0 == Approx(own / n));
  CHECK(summary["totals"]["mass"].get<double>() == Approx(own / n));
}

TEST_CASE("ladder: ties at the cut and the keys that their order decides are those of loops") {
  test::PlantOptions plant;
  plant.n_tokens = 72;
  plant.query_scale = 2.0;
  const MemoryTrace trace = test::planted_trace(plant);
  MemoryResult result;
  const auto summary = run(trace, options_for("oracle-topk", "tokens=16"), result);
  CHECK(level(summary, "as the method is")["tie_share"].is_null());
  for (const auto& [name, type] :
       {std::pair("scores in f32", ScoreType::f32), std::pair("scores in bf16", ScoreType::bf16),
        std::pair("scores in fp8 (e4m3)", ScoreType::fp8)}) {
    INFO(name);
    double n = 0.0, ties = 0.0, changed = 0.0;
    for (Index layer = 0; layer < 2; ++layer) {
      for (const std::int64_t pos : result.values<std::int64_t>("query_pos")) {
        for (Index head = 0; head < 4; ++head) {
          auto scores = test::naive_scores(trace, layer, head, pos);
          scores.resize(static_cast<std::size_t>(pos) + 1);
          round_scores(scores, type);
          std::ranges::sort(scores, std::greater<>());
          const auto n_equal = std::ranges::count(scores, scores[15]);
          const auto n_in = std::count(scores.begin(), scores.begin() + 16, scores[15]);
          ties += n_in < n_equal ? 1.0 : 0.0;
          changed += static_cast<double>(std::min(n_in, n_equal - n_in));
          n += 1.0;
        }
      }
    }
    CHECK(level(summary, name)["tie_share"].get<double>() == Approx(ties / n));
    CHECK(level(summary, name)["tie_changed"].get<double>() == Approx(changed / n));
  }
  CHECK(level(summary, "scores in fp8 (e4m3)")["tie_share"].get<double>() > 0.1);
}

TEST_CASE("ladder: bytes follow the lists; levels that a method cannot take say why") {
  // every measured chunk lies far behind the sinks
  const MemoryTrace trace = test::planted_trace(test::PlantOptions{.n_tokens = 160});
  MemoryResult result;
  const auto summary = run(trace, options_for("streamingllm", "tokens=16"), result);
  const auto bytes = [&](const char* name) { return level(summary, name)["bytes"].get<double>(); };
  // No scores; K and V in two bytes. A query reads its own list.
  const auto key_bytes = static_cast<double>(2 * 2 * trace.info().n_kv * trace.info().d_head);
  const double kept = level(summary, "as the method is")["kept"].get<double>();
  CHECK(bytes("as the method is") == Approx(kept * key_bytes));
  CHECK(bytes("a list per query") == Approx(16 * key_bytes));
  CHECK_HAS(level(summary, "a list per chunk of 8")["refused"].get<std::string>(),
            "a list per query in chunks too");
  CHECK_HAS(level(summary, "pages of 64")["refused"].get<std::string>(), "gives no score per key");
  CHECK(level(summary, "pages of 64")["mass"].is_null());
  CHECK(level(summary, "chosen at every 4th step")["refused"] == "");
}

}  // namespace kvscope::ladder_test
