// Comparisons of kept keys against three loops, and against what a sweep says of the same pair.
#include "gui/model/compare/compare_kept.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>

#include "core/base/error.hpp"
#include "core/selectors/registry.hpp"
#include "support/planted_trace.hpp"
#include "tests/gui_model/job_context.hpp"

namespace kvscope::gui::test::compare_kept_test {

using Catch::Approx;
using kvscope::test::planted_trace;
using kvscope::test::PlantOptions;
using kvscope::test::Random;

PlantOptions plant() {
  return PlantOptions{.n_tokens = 160, .chunk = 16, .sink = 1.0, .band = 1.0, .seed = 5};
}

KeptRequest request_for(const std::string& spec, double budget) {
  return KeptRequest{.layer = 1,
                     .q_head = 2,
                     .chunk = 16,
                     .spec = spec,
                     .budget = Budget{Budget::Kind::tokens, budget}};
}

/// Rows with random keys, without any method.
KeptRows random_rows(std::uint64_t seed, Index n, double share) {
  Random random(seed);
  KeptRows rows;
  for (Index pos = 0; pos < n; ++pos) {
    KeptRow row{.pos = pos, .visible = {0, pos + 1}};
    for (Index key = 0; key <= pos; ++key) {
      if (random.uniform() < share) row.keys.push_back(static_cast<KeyPos>(key));
    }
    row.mass = random.uniform();
    rows.rows.push_back(std::move(row));
  }
  return rows;
}

TEST_CASE("maps, masses and Jaccard are those of three loops") {
  TestJob job;
  const KeptRows a = random_rows(1, 90, 0.3);
  KeptRows b = random_rows(2, 90, 0.5);
  b.rows.erase(b.rows.begin() + 40);  // not measured on this side
  const MapCells cells{20, 8};
  const KeptComparison c =
      compare_kept(a, b, std::nullopt, Phase::prefill, /*chunk=*/10, cells, job.context);
  REQUIRE(c.n_queries == 89);
  REQUIRE(c.n_calls == 9);
  REQUIRE(c.block_begins == std::vector<Index>{0, 20, 40, 60, 80});
  REQUIRE(c.n_pages() == 12);

  for (Index block = 0; block < 5; ++block) {
    for (Index page = 0; page < 12; ++page) {
      double n_visible = 0.0;
      double n_a = 0.0;
      double n_b = 0.0;
      for (Index pos = block * 20; pos < std::min<Index>(90, block * 20 + 20); ++pos) {
        if (pos == 40) continue;
        for (Index key = page * 8; key < page * 8 + 8 && key <= pos; ++key) {
          n_visible += 1.0;
          const auto holds = [&](const KeptRows& rows) {
            const auto& keys = rows.nearest(pos)->keys;
            return std::find(keys.begin(), keys.end(), static_cast<KeyPos>(key)) != keys.end();
          };
          n_a += holds(a);
          n_b += holds(b);
        }
      }
      const auto at = static_cast<std::size_t>(block * 12 + page);
      if (n_visible == 0.0) {
        CHECK(std::isnan(c.share_a[at]));
        CHECK(std::isnan(c.difference[at]));
        continue;
      }
      CHECK(c.share_a[at] == Approx(n_a / n_visible));
      CHECK(c.share_b[at] == Approx(n_b / n_visible));
      CHECK(c.difference[at] == Approx((n_a - n_b) / n_visible).margin(1e-6));
    }
  }

  double mass_a = 0.0;
  double jaccard = 0.0;
  double kept_b = 0.0;
  for (Index call = 0; call < 9; ++call) {
    double n = 0.0;
    double call_mass = 0.0;
    double call_jaccard = 0.0;
    double call_kept = 0.0;
    for (Index pos = call * 10; pos < call * 10 + 10; ++pos) {
      if (pos == 40) continue;
      n += 1.0;
      call_mass += a.nearest(pos)->mass;
      const auto& x = a.nearest(pos)->keys;
      const auto& y = b.nearest(pos)->keys;
      std::set<KeyPos> any(x.begin(), x.end());
      std::size_t both = 0;
      for (const KeyPos key : y) both += any.contains(key);
      any.insert(y.begin(), y.end());
      call_jaccard +=
          any.empty() ? 1.0 : static_cast<double>(both) / static_cast<double>(any.size());
      call_kept += static_cast<double>(y.size());
    }
    mass_a += call_mass / n / 9.0;
    jaccard += call_jaccard / n / 9.0;
    kept_b += call_kept / n / 9.0;
  }
  CHECK(c.mass_a == Approx(mass_a));
  CHECK(c.jaccard == Approx(jaccard));
  CHECK(c.kept_b == Approx(kept_b));
  REQUIRE(c.interval);
  CHECK(c.interval->low < c.mass_a - c.mass_b);
  CHECK(c.interval->high > c.mass_a - c.mass_b);
}

TEST_CASE("the mean masses are those of a sweep over the same queries") {
  TestJob job;
  const MemoryTrace trace = planted_trace(plant());
  const KeptRows quoka =
      kept_rows(trace, nullptr, request_for("quoka:n-queries=4", 24), job.context);
  const KeptRows oracle = kept_rows(trace, nullptr, request_for("oracle-topk", 24), job.context);
  const KeptComparison c = compare_kept(quoka, oracle, std::nullopt, Phase::prefill, 16,
                                        map_cells_for(160, 0, Phase::prefill, 16, 8), job.context);
  ReplayOptions options{.calls = {.phase = Phase::prefill, .chunk = 16}};
  options.rows_per_chunk.reset();
  options.dense_layers = 0;
  options.q_heads = {2};
  const Budget budget{Budget::Kind::tokens, 24};
  const auto layers =
      replay_layers(trace, nullptr, {1}, {{"quoka:n-queries=4", budget}, {"oracle-topk", budget}},
                    options, job.context.pool);
  const auto mean_of = [](const std::vector<double>& values) {
    double sum = 0.0;
    for (const double v : values) sum += v;
    return sum / static_cast<double>(values.size());
  };
  CHECK(c.mass_a == Approx(mean_of(layers[0].pairs[0].of(ReplayMetric::mass))));
  CHECK(c.mass_b == Approx(mean_of(layers[0].pairs[1].of(ReplayMetric::mass))));
  CHECK(c.mass_b >= c.mass_a);
  CHECK(c.n_calls == 10);
}

TEST_CASE("sides without a common query, and a single call") {
  TestJob job;
  KeptRows early = random_rows(1, 10, 0.5);
  KeptRows late = random_rows(1, 20, 0.5);
  late.rows.erase(late.rows.begin(), late.rows.begin() + 10);
  CHECK_THROWS_AS(compare_kept(early, late, std::nullopt, Phase::prefill, 10, {10, 8}, job.context),
                  ConfigError);
  const KeptComparison one =
      compare_kept(early, early, std::nullopt, Phase::prefill, 10, {10, 8}, job.context);
  CHECK_FALSE(one.interval);
}

}  // namespace kvscope::gui::test::compare_kept_test
