// The layer map on synthetic pairs of traces: divergences against three loops, identity, copies,
// mismatches, windows.
#include "analysis/kinds/layer_map.hpp"

#include <nlohmann/json.hpp>

#include "core/trace/result.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::layer_map_test {

nlohmann::ordered_json run(const TraceSource& verifier, const TraceSource& draft,
                           const LayerMapOptions& options, MemoryResult& result, int threads = 1) {
  ThreadPool pool(threads);
  return analyze_layer_map(verifier, draft, options, {result, pool});
}

test::PlantOptions verifier_plant() {
  return test::PlantOptions{.n_layers = 3, .n_q = 4, .n_kv = 1, .n_tokens = 50, .seed = 7};
}

test::PlantOptions draft_plant() {
  test::PlantOptions plant{
      .n_layers = 2, .n_q = 2, .n_kv = 2, .d_head = 4, .n_tokens = 50, .seed = 8};
  return plant;
}

/// Head mean of the exact rows over all keys up to pos; a distribution also where sinks take a
/// part.
std::vector<double> naive_mean_row(const TraceSource& trace, Index layer, Index pos) {
  std::vector<double> mean(static_cast<std::size_t>(pos + 1), 0.0);
  const Index first = test::naive_first_visible(trace, layer, pos);
  for (Index head = 0; head < trace.info().n_q; ++head) {
    const auto row = test::naive_row(trace, layer, head, pos);
    for (std::size_t t = 0; t < row.size(); ++t)
      mean[static_cast<std::size_t>(first) + t] += row[t] / double(trace.info().n_q);
  }
  if (trace.info().sink_logits.empty()) return mean;
  double total = 0.0;
  for (const double p : mean) total += p;
  for (double& p : mean) p /= total;
  return mean;
}

TEST_CASE("layer-map: divergence, variation and floor equal three loops") {
  const bool drop_sink = GENERATE(false, true);
  test::PlantOptions plant = verifier_plant();
  plant.has_sink_logits = GENERATE(false, true);
  plant.score_cap = plant.has_sink_logits ? 2.5 : 0.0;
  const MemoryTrace verifier = test::planted_trace(plant);
  const MemoryTrace draft = test::planted_trace(draft_plant());
  LayerMapOptions options{.row_choice = RowChoice::all, .drop_sink = drop_sink};
  MemoryResult result;
  const auto summary = run(verifier, draft, options, result);
  REQUIRE(result.values<std::int64_t>("row_pos").size() == 35);  // positions 15 .. 49
  for (Index i = 0; i < 2; ++i) {
    for (Index j = 0; j < 3; ++j) {
      double kl = 0.0, tv = 0.0, floor = 0.0;
      for (Index pos = 15; pos < 50; ++pos) {
        auto v = naive_mean_row(verifier, j, pos);
        auto d = naive_mean_row(draft, i, pos);
        if (drop_sink) {
          for (auto* row : {&v, &d}) {
            row->erase(row->begin());
            double sum = 0.0;
            for (double x : *row) sum += x;
            for (double& x : *row) x /= sum;
          }
        }
        double row_kl = 0.0;
        for (std::size_t t = 0; t < v.size(); ++t) {
          row_kl += v[t] * std::log(v[t] / d[t]);
          tv += 0.5 * std::abs(v[t] - d[t]) / 35.0;
        }
        kl += row_kl / 35.0;
        floor += std::max(0.0, 0.95 - std::sqrt(row_kl / 2.0)) / 35.0;
      }
      const auto at = static_cast<std::size_t>(i * 3 + j);
      REQUIRE(result.values<double>("kl")[at] == Approx(kl).epsilon(1e-9));
      REQUIRE(result.values<double>("total_variation")[at] == Approx(tv).epsilon(1e-9));
      REQUIRE(result.values<double>("pinsker_floor")[at] == Approx(floor).epsilon(1e-9));
      REQUIRE(tv <= std::sqrt(kl / 2.0) + 1e-12);  // Pinsker, and the root is concave
    }
  }
  REQUIRE(summary["totals"]["smoothed_layer_rows"] == 0);
  REQUIRE(summary["totals"]["largest_change_by_smoothing"].get<double>() < 1e-6);
}

TEST_CASE(
    "layer-map: a draft layer that copies a verifier layer is found; layers keep their true "
    "numbers") {
  auto plant = verifier_plant();
  plant.n_layers = 4;
  MemoryTrace verifier = test::planted_trace(plant);
  TraceInfo info = make_trace_info(9, 4, 1, 8, 50, 16);
  info.layers = {2, 5, 8};
  MemoryTrace draft(info);
  const auto ids = verifier.tokens();
  draft.set_tokens({ids.begin(), ids.end()});
  const std::vector<Index> source = {0, 2, 3};
  for (std::size_t i = 0; i < 3; ++i) {
    std::copy_n(verifier.q(source[i]).data(), verifier.q(source[i]).shape().count(),
                draft.q(info.layers[i]).data());
    std::copy_n(verifier.k(source[i]).data(), verifier.k(source[i]).shape().count(),
                draft.k(info.layers[i]).data());
  }
  MemoryResult result;
  const auto summary = run(verifier, draft, {}, result);
  const auto map = result.values<std::int64_t>("monotone_map");
  REQUIRE(map[0] == 2);
  REQUIRE(map[2] == 5);
  REQUIRE(map[3] == 8);
  REQUIRE(std::ranges::is_sorted(map));
  REQUIRE(summary["layers"][2]["draft_layer"] == 5);
  REQUIRE(summary["layers"][2]["kl"] == 0.0);
}

TEST_CASE("layer-map: dense verifier layers do not constrain the others") {
  const MemoryTrace verifier = test::planted_trace(verifier_plant());
  const MemoryTrace draft = test::planted_trace(draft_plant());
  LayerMapOptions options{.dense_layers = 2};
  MemoryResult result;
  const auto summary = run(verifier, draft, options, result);
  const auto map = result.values<std::int64_t>("monotone_map");
  REQUIRE(map[0] == -1);
  REQUIRE(map[1] == -1);
  REQUIRE(map[2] == result.values<std::int64_t>("argmax_map")[2]);
  REQUIRE(summary["layers"][0]["draft_layer"].is_null());
  options.dense_layers = 3;
  CHECK_SAYS(run(verifier, draft, options, result), "leaves none");
}

TEST_CASE("layer-map: a draft with a sliding window has zeros: smoothed, or infinite on request") {
  const MemoryTrace verifier = test::planted_trace(verifier_plant());
  const MemoryTrace draft =
      test::planted_trace(draft_plant(), [](TraceInfo& info) { info.window[1] = 10; });
  LayerMapOptions options{.row_choice = RowChoice::all};
  MemoryResult result;
  REQUIRE(run(verifier, draft, options, result)["totals"]["smoothed_layer_rows"] == 35);
  double expected = 0.0;
  for (Index pos = 15; pos < 50; ++pos) {
    const auto v = naive_mean_row(verifier, 0, pos);
    auto d = naive_mean_row(draft, 1, pos);
    for (double& x : d) x = (x + 1e-10) / (1.0 + double(d.size()) * 1e-10);
    for (std::size_t t = 0; t < v.size(); ++t) expected += v[t] * std::log(v[t] / d[t]) / 35.0;
  }
  REQUIRE(result.values<double>("kl")[3] == Approx(expected).epsilon(1e-9));
  options.smoothing = Smoothing::never;
  const auto raw = run(verifier, draft, options, result);
  REQUIRE(std::isinf(result.values<double>("kl")[3]));
  REQUIRE(std::isfinite(result.values<double>("kl")[0]));
  const auto map = result.values<std::int64_t>("monotone_map");
  for (std::int64_t layer : map) REQUIRE(layer == 0);
  REQUIRE(raw["totals"]["largest_change_by_smoothing"].is_null());
}

TEST_CASE("layer-map: traces of other tokens are refused with the place where they part") {
  const MemoryTrace verifier = test::planted_trace(verifier_plant());
  MemoryTrace draft = test::planted_trace(draft_plant());
  std::vector<TokenId> ids(50);
  for (std::size_t i = 0; i < 50; ++i) ids[i] = static_cast<TokenId>(i);
  ids[33] = 900;
  draft.set_tokens(ids);
  MemoryResult result;
  CHECK_SAYS(run(verifier, draft, {}, result), "at position 33", "id 900");
  LayerMapOptions options{.token_match = TokenMatch::common_prefix};
  REQUIRE(run(verifier, draft, options, result)["totals"]["tokens"] == 33);

  auto shorter = draft_plant();
  shorter.n_tokens = 40;
  const MemoryTrace part = test::planted_trace(shorter);
  CHECK_SAYS(run(verifier, part, {}, result), "40 positions");
  REQUIRE(run(verifier, part, options, result)["totals"]["tokens"] == 40);
  auto tiny = draft_plant();
  tiny.n_tokens = 12;
  CHECK_SAYS(run(verifier, test::planted_trace(tiny), options, result),
             "at least 16 shared tokens");
  draft.set_tokens({});
  REQUIRE_THROWS_AS(run(verifier, draft, {}, result), ConfigError);
}

TEST_CASE("layer-map: NaN keys and bad options end it with a sentence") {
  MemoryTrace verifier = test::planted_trace(verifier_plant());
  const MemoryTrace draft = test::planted_trace(draft_plant());
  MemoryResult result;
  REQUIRE_THROWS_AS(run(verifier, draft, LayerMapOptions{.eps = 0.0}, result), ConfigError);
  verifier.k(2)(0, 30, 1) = std::nanf("");
  REQUIRE_THROWS_AS(run(verifier, draft, {}, result), FormatError);
}

TEST_CASE("layer-map: peaked rows that underflow are counted as smoothed") {
  auto plant = draft_plant();
  plant.query_scale = 60.0;
  plant.key_scale = 60.0;
  const MemoryTrace draft = test::planted_trace(plant);
  const MemoryTrace verifier = test::planted_trace(verifier_plant());
  MemoryResult result;
  REQUIRE(run(verifier, draft, {}, result)["totals"]["smoothed_layer_rows"].get<int>() > 0);
  for (double x : result.values<double>("kl")) REQUIRE(std::isfinite(x));
}

}  // namespace kvscope::layer_map_test
