// Numbers of heads against three loops: windows, attention sinks, grouped heads, repeated tokens,
// needles, losses beside a replay.
#include "analysis/kinds/heads.hpp"

#include <numeric>

#include "core/base/evenly_spaced.hpp"
#include "core/sim/replay.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/kinds/on_pool.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::heads_test {

/// A planted trace whose tokens repeat every 7 positions, the second layer with a window of 20.
MemoryTrace windowed_trace(const test::PlantOptions& plant, Index period) {
  MemoryTrace trace = test::planted_trace(plant, [](TraceInfo& info) { info.window[1] = 20; });
  std::vector<TokenId> tokens;
  for (Index t = 0; t < plant.n_tokens; ++t) tokens.push_back(static_cast<TokenId>(t % period));
  trace.set_tokens(tokens);
  return trace;
}

constexpr test::OnPool run{analyze_heads};

/// Means of the seven numbers over `rows`, by loops over the keys of each.
std::vector<double> naive_numbers(const TraceSource& trace, const HeadsOptions& options,
                                  const std::vector<Index>& needle, Index layer, Index head,
                                  const std::vector<Index>& rows) {
  std::vector<double> sums(7, 0.0);
  double n_looking = 0.0;
  for (const Index pos : rows) {
    const std::vector<double> row = test::naive_row(trace, layer, head, pos);
    const Index first = test::naive_first_visible(trace, layer, pos);
    const double total = std::accumulate(row.begin(), row.end(), 0.0);
    double found = 0.0;
    double n_found = 0.0;
    for (Index key = first; key <= pos; ++key) {
      const double a = row[key - first];
      sums[0] += a / total * static_cast<double>(pos - key);
      sums[1] -= a > 0.0 ? a / total * std::log(a / total) : 0.0;
      if (key < options.sink_tokens) sums[2] += a;
      if (pos - key < options.local_tokens) sums[3] += a;
      bool wanted = false;
      if (needle.empty()) {
        wanted = key >= 1 && key < pos && trace.tokens()[key - 1] == trace.tokens()[pos];
      } else {
        wanted = pos > needle.back() && std::ranges::find(needle, key) != needle.end();
      }
      found += wanted ? a : 0.0;
      n_found += wanted ? 1.0 : 0.0;
    }
    if (n_found > 0.0) {
      sums[4] += found;
      sums[5] += n_found / static_cast<double>(row.size());
      n_looking += 1.0;
    }
    sums[6] += trace.info().sink_logits.empty() ? 0.0 : 1.0 - total;
  }
  for (std::size_t m = 0; m < sums.size(); ++m)
    sums[m] /= m == 4 || m == 5 ? n_looking : static_cast<double>(rows.size());
  return sums;
}

TEST_CASE("heads: every number equals the three-loop reference") {
  test::PlantOptions plant{
      .n_tokens = 61, .sink = 1.5, .band = 1.0, .has_sink_logits = GENERATE(false, true)};
  plant.score_cap = plant.has_sink_logits ? 2.5 : 0.0;
  const MemoryTrace trace = windowed_trace(plant, 7);
  HeadsOptions options;
  options.selector.clear();
  options.rows = GENERATE(61, 17);
  options.sink_tokens = 3;
  options.local_tokens = 9;
  options.cells = 16;
  options.pooling = GENERATE(MapPooling::max, MapPooling::mean);
  std::vector<Index> needle;
  if (GENERATE(false, true)) {
    options.needle = "30-33";
    needle = {30, 31, 32, 33};
  }
  const std::vector<Index> rows = evenly_spaced(0, plant.n_tokens, options.rows);
  MemoryResult result;
  const auto summary = run(trace, options, result);
  REQUIRE(summary["rows"].size() == 8);
  REQUIRE(summary["block"] == 4);

  const auto map = result.values<float>("map");
  for (Index layer = 0; layer < 2; ++layer) {
    for (Index head = 0; head < 4; ++head) {
      INFO("layer " << layer << ", head " << head);
      const auto expected = naive_numbers(trace, options, needle, layer, head, rows);
      const auto slot = static_cast<std::size_t>(layer * 4 + head);
      for (std::size_t m = 0; m < kHeadMeasures.size(); ++m) {
        INFO(kHeadMeasures[m].name);
        CHECK(result.values<double>(kHeadMeasures[m].name)[slot] ==
              Approx(expected[m]).epsilon(1e-6).margin(1e-9));
      }
      std::vector<double> largest(16 * 16, 0.0), sum(16 * 16, 0.0), count(16 * 16, 0.0);
      for (const Index pos : rows) {
        const auto row = test::naive_row(trace, layer, head, pos);
        const Index first = test::naive_first_visible(trace, layer, pos);
        for (std::size_t t = 0; t < row.size(); ++t) {
          const auto cell =
              static_cast<std::size_t>(pos / 4 * 16) + (static_cast<std::size_t>(first) + t) / 4;
          largest[cell] = std::max(largest[cell], row[t]);
          sum[cell] += row[t];
          count[cell] += 1.0;
        }
      }
      for (std::size_t cell = 0; cell < count.size(); ++cell) {
        const float found = map[slot * count.size() + cell];
        if (count[cell] == 0.0) {
          CHECK(std::isnan(found));
        } else {
          CHECK(found == Approx(options.pooling == MapPooling::max ? largest[cell]
                                                                   : sum[cell] / count[cell]));
        }
      }
    }
  }
}

TEST_CASE("heads: losses are what a replay keeps, taken from 1") {
  test::PlantOptions plant{
      .n_q = 6, .n_kv = 2, .n_tokens = 128, .has_sink_logits = GENERATE(false, true)};
  const MemoryTrace trace = windowed_trace(plant, 11);
  HeadsOptions options;
  options.selector = "quoka,quest:page-size=4";
  options.budget = "tokens=16";
  options.chunk = 32;
  options.selection.q_heads = {1, 2, 4};
  MemoryResult result;
  const auto summary = run(trace, options, result);

  ReplayOptions replay{.calls = {.chunk = 32}, .dense_layers = 0};
  ThreadPool pool(1);
  const std::vector<ReplayPair> pairs = {{"quoka", Budget{Budget::Kind::tokens, 16.0}},
                                         {"quest:page-size=4", Budget{Budget::Kind::tokens, 16.0}}};
  const auto layers = replay_layers(trace, nullptr, {0, 1}, pairs, replay, pool);
  const auto lost = result.values<double>("lost_mass");
  REQUIRE(lost.size() == 2 * 3 * 2);
  const std::size_t n_calls = layers[0].calls.size();
  const std::size_t heads[] = {1, 2, 4};
  for (std::size_t h = 0; h < 3; ++h) {
    for (std::size_t p = 0; p < 2; ++p) {
      const auto& mass = layers[0].pairs[p].of(ReplayMetric::mass);
      const double kept =
          std::accumulate(mass.begin() + static_cast<std::ptrdiff_t>(heads[h] * n_calls),
                          mass.begin() + static_cast<std::ptrdiff_t>((heads[h] + 1) * n_calls),
                          0.0) /
          static_cast<double>(n_calls);
      CHECK(lost[h * 2 + p] == Approx(1.0 - kept).margin(1e-12));
      CHECK(std::isnan(lost[6 + h * 2 + p]));  // the windowed layer stays dense
    }
  }
  CHECK(lost[0] > 0.0);
  REQUIRE(summary["methods"].size() == 2);
  CHECK(summary["methods"][0]["pair"] == "quoka tokens=16");
  CHECK(summary["methods"][0]["worst_layer"] == 0);
  CHECK(summary["rows"].size() == 2 * 3 * 2);
  CHECK(summary["rows"][1]["selector"] == "quest:page-size=4");
}

}  // namespace kvscope::heads_test
