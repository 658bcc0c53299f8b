// The QuoKA replay on synthetic traces: every array against three loops, scopes, windows, budgets,
// decode steps.
#include "analysis/kinds/quoka.hpp"

#include <set>

#include "analysis/base/statistics.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/kinds/on_pool.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::quoka_test {

using Vector = std::vector<double>;

constexpr test::OnPool run{analyze_quoka};

QuokaOptions small_options() {
  QuokaOptions options;
  options.chunk = 16;
  options.n_queries = 4;
  options.budget = 10;
  return options;
}

/// An element of an array by its indices.
template <class T>
T at(const MemoryResult& result, std::string_view name, std::initializer_list<Index> index) {
  for (const ResultArray& array : result.arrays()) {
    if (array.name != name) continue;
    Index offset = 0;
    int axis = 0;
    for (Index i : index) offset = offset * array.shape[axis++] + i;
    return result.values<T>(name)[offset];
  }
  FAIL("no array " << name);
  return {};
}

Vector row_of(const Tensor<float>& x, Index i) {
  const auto row = x.view().row(i);
  return {row.begin(), row.end()};
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0.0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

Vector unit(Vector x) {
  const double norm = std::max(std::sqrt(dot(x, x)), 1e-12);
  for (double& value : x) value /= norm;
  return x;
}

/// One chunk of one KV head, straight from the listing: S-hat of the past keys, and each head's
/// chosen queries.
struct NaiveChunk {
  std::vector<std::vector<Index>> picks;  // [group][slot], positions
  std::vector<Vector> s_q;                // [group][token]
  Vector key_scores;                      // [begin]
  std::vector<Index> kept;
};

NaiveChunk naive_chunk(const TraceSource& trace, Index layer, Index kv_head, Index begin, Index end,
                       Index n_queries, Index budget) {
  const TraceInfo& info = trace.info();
  const Index group = info.n_q / info.n_kv;
  NaiveChunk out;
  std::vector<std::vector<Vector>> chosen;  // [group][slot] unit queries
  for (Index r = 0; r < group; ++r) {
    const Tensor<float> q = trace.read_q(layer, kv_head * group + r, {begin, end});
    Vector mean(static_cast<std::size_t>(info.d_head), 0.0);
    for (Index i = 0; i < end - begin; ++i) {
      const Vector row = row_of(q, i);
      for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += row[c] / double(end - begin);
    }
    Vector s_q;
    std::vector<Index> order;
    for (Index i = 0; i < end - begin; ++i) {
      s_q.push_back(-dot(unit(mean), unit(row_of(q, i))));
      order.push_back(i);
    }
    if (end - begin > n_queries) {
      std::ranges::stable_sort(order, [&](Index a, Index b) { return s_q[a] > s_q[b]; });
      order.resize(static_cast<std::size_t>(n_queries));
    }
    std::vector<Vector> units;
    for (Index& i : order) {
      units.push_back(unit(row_of(q, i)));
      i += begin;
    }
    out.picks.push_back(order);
    out.s_q.push_back(s_q);
    chosen.push_back(units);
  }
  const Tensor<float> k = trace.read_k(layer, kv_head, {0, info.n_tokens});
  std::vector<Index> order;
  for (Index t = 0; t < begin; ++t) {
    double best = -2.0;
    for (std::size_t slot = 0; slot < chosen[0].size(); ++slot) {
      double mean = 0.0;
      for (const auto& head : chosen) mean += dot(head[slot], unit(row_of(k, t))) / double(group);
      best = std::max(best, mean);
    }
    out.key_scores.push_back(best);
    order.push_back(t);
  }
  std::ranges::stable_sort(order,
                           [&](Index a, Index b) { return out.key_scores[a] > out.key_scores[b]; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(budget)));
  std::ranges::sort(order);
  out.kept = order;
  return out;
}

TEST_CASE("quoka: every array equals the three-loop reference") {
  test::PlantOptions plant{.n_q = GENERATE(2, 8), .n_kv = 2};
  plant.n_tokens = 57;  // the last chunk is short
  plant.sink = 1.5;
  plant.band = 1.0;
  plant.zero_keys = {7};
  plant.has_sink_logits = GENERATE(false, true);
  plant.score_cap = plant.has_sink_logits ? 2.5 : 0.0;
  MemoryTrace trace = test::planted_trace(plant);
  const QuokaOptions options = small_options();
  MemoryResult result;
  run(trace, options, result);
  const Index group = plant.n_q / plant.n_kv;
  const auto score_offsets = result.values<std::int64_t>("key_scores/offsets");
  const auto kept_offsets = result.values<std::int64_t>("selected/offsets");

  for (Index layer = 0; layer < plant.n_layers; ++layer) {
    for (Index kv = 0; kv < plant.n_kv; ++kv) {
      for (Index c = 0; c * 16 < plant.n_tokens; ++c) {
        const Index begin = c * 16;
        const Index end = std::min<Index>(begin + 16, plant.n_tokens);
        const NaiveChunk naive = naive_chunk(trace, layer, kv, begin, end, 4, 10);
        const Index score_begin = score_offsets[c];
        REQUIRE(score_offsets[c + 1] - score_begin == begin);
        for (Index t = 0; t < begin; ++t) {
          REQUIRE(at<float>(result, "key_scores/values", {layer, kv, score_begin + t}) ==
                  Approx(naive.key_scores[t]).margin(1e-6));
        }
        const Index kept_begin = kept_offsets[c];
        REQUIRE(kept_offsets[c + 1] - kept_begin == static_cast<Index>(naive.kept.size()));
        for (std::size_t i = 0; i < naive.kept.size(); ++i) {
          REQUIRE(at<std::int32_t>(result, "selected/positions",
                                   {layer, kv, kept_begin + static_cast<Index>(i)}) ==
                  naive.kept[i]);
        }
        REQUIRE(at<std::int32_t>(result, "loaded", {layer, kv, c}) ==
                std::min<Index>(10, begin) + end - begin);
        Vector best_weight(static_cast<std::size_t>(begin), 0.0);
        for (Index r = 0; r < group; ++r) {
          const Index head = kv * group + r;
          for (std::size_t slot = 0; slot < 4; ++slot) {
            REQUIRE(at<std::int32_t>(result, "selected_queries",
                                     {layer, head, c, static_cast<Index>(slot)}) ==
                    naive.picks[r][slot]);
          }
          for (Index pos = begin; pos < end; ++pos) {
            REQUIRE(at<float>(result, "s_q", {layer, head, pos}) ==
                    Approx(naive.s_q[r][static_cast<std::size_t>(pos - begin)]).margin(1e-6));
            const Vector row = test::naive_row(trace, layer, head, pos);
            double mass = 0.0, largest = 0.0, entropy = 0.0;
            double total = 0.0;  // 1 without a sink; mass and breadth are shares of it
            for (const double p : row) total += p;
            for (Index t = 0; t <= pos; ++t) {
              const double p = row[t];
              const double share = p / total;
              const bool kept = std::ranges::binary_search(naive.kept, t);
              if (t >= begin || kept) mass += share;
              if (t > 0) largest = std::max(largest, p);
              entropy -= share * std::log(share);
              if (t < begin) best_weight[t] = std::max(best_weight[t], p);
            }
            REQUIRE(at<float>(result, "mass", {layer, head, pos}) == Approx(mass).margin(1e-6));
            REQUIRE(at<float>(result, "breadth", {layer, head, pos}) ==
                    Approx(std::exp(entropy)).epsilon(1e-5));
            const float log_max = at<float>(result, "log_max_weight", {layer, head, pos});
            if (pos == 0) {
              REQUIRE(std::isnan(log_max));
            } else {
              REQUIRE(log_max == Approx(std::log(largest)).margin(1e-5));
            }
          }
        }
        const float recall = at<float>(result, "oracle_recall", {layer, kv, c});
        if (begin <= 10) {
          REQUIRE(std::isnan(recall));
          continue;
        }
        std::vector<Index> oracle;
        for (Index t = 0; t < begin; ++t) oracle.push_back(t);
        std::ranges::stable_sort(oracle,
                                 [&](Index a, Index b) { return best_weight[a] > best_weight[b]; });
        oracle.resize(10);
        Index hits = 0;
        for (Index t : oracle) hits += std::ranges::binary_search(naive.kept, t);
        REQUIRE(recall == Approx(hits / 10.0));
      }
    }
  }
}

TEST_CASE("quoka: whole_cache counts the chunk, masks on request, keeps every query's own key") {
  test::PlantOptions plant{.band = 3.0};
  MemoryTrace trace = test::planted_trace(plant);
  QuokaOptions options = small_options();
  options.scope = QuokaScope::whole_cache;
  options.mask_scores = GENERATE(false, true);
  MemoryResult result;
  run(trace, options, result);
  const auto kept_offsets = result.values<std::int64_t>("selected/offsets");
  REQUIRE(kept_offsets[1] == 10);  // the first chunk selects among its own 16 keys
  for (Index head = 0; head < plant.n_q; ++head) {
    for (Index pos = 0; pos < plant.n_tokens; ++pos) {
      const Vector row = test::naive_row(trace, 0, head, pos);
      const auto c = static_cast<std::size_t>(pos / 16);
      std::set<Index> kept = {pos};
      for (Index i = kept_offsets[c]; i < kept_offsets[c + 1]; ++i) {
        const auto key = at<std::int32_t>(result, "selected/positions", {0, head / 2, i});
        if (key >= 0 && key <= pos) kept.insert(key);
      }
      double mass = 0.0;
      for (Index t : kept) mass += row[t];
      REQUIRE(at<float>(result, "mass", {0, head, pos}) == Approx(mass).margin(1e-6));
    }
  }
  options.force_self = false;
  MemoryResult bare;
  run(trace, options, bare);
  const auto mean_of = [](std::span<const float> x) {
    Mean all;
    for (const float value : x) all.add(static_cast<double>(value));
    return all.value();
  };
  REQUIRE(mean_of(bare.values<float>("mass")) < mean_of(result.values<float>("mass")));
}

TEST_CASE("quoka: sliding-window and dense layers stay as they are") {
  const MemoryTrace trace = test::planted_trace({}, [](TraceInfo& info) { info.window[1] = 9; });
  MemoryResult result;
  const auto summary = run(trace, small_options(), result);
  REQUIRE(summary["layers"][0]["dense"] == false);
  REQUIRE(summary["layers"][1]["dense"] == true);
  REQUIRE(at<float>(result, "mass", {1, 0, 60}) == 1.0f);
  REQUIRE(at<std::int32_t>(result, "selected/positions", {1, 0, 0}) == -1);
  REQUIRE(std::isnan(at<float>(result, "key_scores/values", {1, 0, 0})));
  const Vector row = test::naive_row(trace, 1, 2, 60);  // 9 keys, key 0 not among them
  REQUIRE(row.size() == 9);
  REQUIRE(at<float>(result, "log_max_weight", {1, 2, 60}) ==
          Approx(std::log(*std::ranges::max_element(row))).margin(1e-5));
  const double sparse = summary["totals"]["reduction_per_kv_head"];
  const double all = summary["totals"]["reduction_per_kv_head_with_dense_layers"];
  REQUIRE(all == Approx(sparse / 2));
  CHECK(summary["totals"]["pearson_log_mean"] == summary["layers"][0]["pearson_log_mean"]);

  QuokaOptions options = small_options();
  options.dense_layers = 1;
  MemoryResult none;
  REQUIRE(run(trace, options, none)["totals"]["mass_mean"].is_null());
}

TEST_CASE("quoka: decoded positions are chunks of one query, or dense") {
  const MemoryTrace trace = test::planted_trace({}, [](TraceInfo& info) { info.n_prompt = 60; });
  MemoryResult result;
  QuokaOptions options = small_options();
  run(trace, options, result);
  const auto begins = result.values<std::int64_t>("chunk_begin");
  REQUIRE(std::vector<std::int64_t>(begins.begin(), begins.end()) ==
          std::vector<std::int64_t>{0, 16, 32, 48, 60, 61, 62, 63});
  REQUIRE(at<std::int32_t>(result, "loaded", {0, 0, 5}) == 11);
  REQUIRE(at<std::int32_t>(result, "selected_queries", {0, 0, 5, 0}) == 61);
  REQUIRE(at<std::int32_t>(result, "selected_queries", {0, 0, 5, 1}) == -1);
  options.decode = QuokaDecode::dense;
  MemoryResult dense;
  run(trace, options, dense);
  REQUIRE(at<std::int32_t>(dense, "loaded", {0, 0, 5}) == 62);
  REQUIRE(at<float>(dense, "mass", {0, 0, 61}) == 1.0f);
}

}  // namespace kvscope::quoka_test
