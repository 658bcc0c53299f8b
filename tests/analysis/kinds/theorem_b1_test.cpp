// Theorem B.1 on synthetic traces: against three loops, on sliding windows, with every choice of
// k*.
#include "analysis/kinds/theorem_b1.hpp"

#include <numeric>

#include "core/trace/result.hpp"
#include "tests/analysis/kinds/on_pool.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::theorem_b1_test {

constexpr test::OnPool run{analyze_theorem_b1};

double naive_norm(std::span<const float> x) {
  double sum = 0.0;
  for (float value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

TEST_CASE("theorem-b1: a rank that a row does not have makes no statement") {
  test::PlantOptions plant{.n_tokens = 12};
  const MemoryTrace trace = test::planted_trace(plant);
  MemoryResult result;
  const auto summary = run(trace, TheoremB1Options{.star = StarKey::rank, .rank = 5}, result);
  const auto cos = result.values<float>("cos");
  for (std::size_t pos = 0; pos < 12; ++pos) {
    CHECK(std::isnan(cos[pos]) == (pos < 4));
    CHECK(std::isnan(result.values<float>("bounds/jensen")[pos]) == (pos < 4));
    CHECK((result.values<std::int32_t>("star_pos")[pos] == -1) == (pos < 4));
    CHECK(result.values<std::uint8_t>("violated/jensen")[pos] == 0);
  }
  CHECK(summary["totals"]["rows"] == plant.n_layers * plant.n_q * 8);
}

TEST_CASE("theorem-b1: every row equals the three-loop reference") {
  test::PlantOptions plant;
  plant.has_sink_logits = GENERATE(false, true);  // the theorem's weights are those among the keys
  plant.n_q = GENERATE(2, 8);
  plant.n_kv = 2;
  plant.n_tokens = 41;
  plant.sink = 2.0;
  plant.band = 1.0;
  plant.duplicates = {{3, 9}};
  MemoryTrace trace = test::planted_trace(plant);
  TraceInfo info = trace.info();
  MemoryResult result;
  run(trace, {}, result);

  const auto cos = result.values<float>("cos");
  const auto weight = result.values<float>("weight");
  const auto printed = result.values<float>("bounds/printed");
  const auto repaired = result.values<float>("bounds/repaired");
  const auto jensen = result.values<float>("bounds/jensen");
  const auto worst = result.values<float>("bounds/worst");
  const auto star_pos = result.values<std::int32_t>("star_pos");
  std::size_t at = 0;
  for (Index layer = 0; layer < plant.n_layers; ++layer) {
    for (Index head = 0; head < plant.n_q; ++head) {
      const Tensor<float> q = trace.read_q(layer, head, {0, plant.n_tokens});
      const Tensor<float> k = trace.read_k(layer, head / info.group(), {0, plant.n_tokens});
      for (Index pos = 0; pos < plant.n_tokens; ++pos, ++at) {
        if (pos == 0) {
          REQUIRE(std::isnan(cos[at]));
          continue;
        }
        auto row = test::naive_row(trace, layer, head, pos);
        const double keys_mass = std::accumulate(row.begin(), row.end(), 0.0);
        for (double& x : row) x /= keys_mass;
        const auto scores = test::naive_scores(trace, layer, head, pos);
        std::size_t star = 0;
        for (std::size_t t = 1; t < row.size(); ++t) {
          if (scores[t] > scores[star]) star = t;
        }
        REQUIRE(star_pos[at] == static_cast<int>(star));
        const double n = static_cast<double>(row.size() - 1);
        const double factor = naive_norm(q.view().row(pos)) * static_cast<double>(info.score_scale);
        double largest = 0.0;
        double mean = 0.0;
        double others = 0.0;
        for (std::size_t t = 0; t < row.size(); ++t) {
          largest = std::max(largest, factor * naive_norm(k.view().row(static_cast<Index>(t))));
          if (t == star) continue;
          mean += scores[t] / n;
          others += row[t];
        }
        const double w = row[star];
        const double star_norm = factor * naive_norm(k.view().row(static_cast<Index>(star)));
        const double rho = std::log(n / (n + 1.0)) - std::log(others);
        const double tau = std::log(n * w / others);
        REQUIRE(cos[at] == Approx(scores[star] / star_norm).margin(1e-6));
        REQUIRE(weight[at] == Approx(w).margin(1e-6));
        const auto clamp = [](double x) { return std::max(x, -1.0); };
        REQUIRE(printed[at] == Approx(clamp(rho / (2 * largest * largest) - 1)).margin(1e-6));
        REQUIRE(repaired[at] == Approx(clamp(rho / largest - 1)).margin(1e-6));
        REQUIRE(
            jensen[at] ==
            Approx(clamp((std::log(w / others) + std::log(n) + mean) / star_norm)).margin(1e-6));
        const double b3 = tau >= largest ? (tau - largest) / largest : (tau - largest) / star_norm;
        REQUIRE(worst[at] == Approx(clamp(b3)).margin(1e-6));
      }
    }
  }
}

TEST_CASE("theorem-b1: the corrected bounds never fail, whatever k* is") {
  test::PlantOptions plant{.n_tokens = 150,
                           .key_scale = GENERATE(0.05, 1.0, 12.0),
                           .sink = GENERATE(0.0, 20.0),
                           .duplicates = {{2, 3}, {2, 4}},
                           .zero_keys = {5, 77}};
  MemoryTrace trace = test::planted_trace(plant);
  TheoremB1Options options{.star = GENERATE(StarKey::argmax, StarKey::rank, StarKey::current,
                                            StarKey::first, StarKey::random),
                           .rank = 3};
  MemoryResult result;
  const auto summary = run(trace, options, result);
  const auto& totals = summary["totals"];
  REQUIRE(totals["jensen_violations"] == 0);
  REQUIRE(totals["worst_violations"] == 0);
  REQUIRE(totals["main_text_relaxed_violations"] == 0);
  REQUIRE(totals["main_text_exact_violations"] == 0);
  REQUIRE(totals["violations_of_proved_bounds"] == 0);
  // a row needs another key beside k*, and three for a third one
  const Index n_without = options.star == StarKey::rank ? 2 : 1;
  REQUIRE(totals["rows"] == plant.n_layers * plant.n_q * (plant.n_tokens - n_without));
}

TEST_CASE("theorem-b1: a sliding window hides older keys") {
  test::PlantOptions plant{.n_layers = 1, .n_tokens = 30};
  const MemoryTrace trace = test::planted_trace(plant, [](TraceInfo& info) { info.window[0] = 7; });
  MemoryResult result;
  run(trace, {}, result);
  const auto n = result.values<std::int32_t>("n_others");
  const auto star = result.values<std::int32_t>("star_pos");
  for (Index pos = 0; pos < plant.n_tokens; ++pos) {
    REQUIRE(n[pos] == std::min<Index>(pos, 6));
    REQUIRE(star[pos] >= test::naive_first_visible(trace, 0, pos));
  }
}

}  // namespace kvscope::theorem_b1_test
