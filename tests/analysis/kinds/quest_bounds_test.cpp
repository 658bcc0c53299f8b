// Quest's bounds on synthetic traces: against three loops, with partial pages, windows, shared
// groups and both programs.
#include "analysis/kinds/quest_bounds.hpp"

#include <numeric>
#include <set>

#include "core/trace/result.hpp"
#include "tests/analysis/kinds/on_pool.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::quest_bounds_test {

constexpr test::OnPool run{analyze_quest};

std::vector<Index> naive_top(const std::vector<double>& scores, Index k) {
  std::vector<Index> order(scores.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Index>(i);
  std::ranges::stable_sort(order, [&](Index a, Index b) { return scores[a] > scores[b]; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(std::max<Index>(k, 0))));
  return order;
}

TEST_CASE("quest: bounds, maxima, selections and masses equal three loops") {
  test::PlantOptions plant{.has_sink_logits = GENERATE(false, true)};
  plant.score_cap = plant.has_sink_logits ? 2.5 : 0.0;
  plant.n_q = GENERATE(2, 8);
  plant.n_kv = 2;
  plant.n_tokens = 45;
  plant.sink = 1.0;
  const MemoryTrace trace =
      test::planted_trace(plant, [](TraceInfo& info) { info.window[1] = 21; });
  const TraceInfo& info = trace.info();
  QuestOptions options;
  options.page_size = 4;
  options.budget = 16;
  options.steps = 45;
  MemoryResult result;
  REQUIRE(run(trace, options, result)["totals"]["violations"] == 0);

  const Index n_pages = 12;
  const auto bound = result.values<float>("bound");
  const auto true_max = result.values<float>("true_max");
  std::size_t row = 0;
  for (Index layer = 0; layer < plant.n_layers; ++layer) {
    for (Index head = 0; head < plant.n_q; ++head) {
      const Tensor<float> q = trace.read_q(layer, head, {0, plant.n_tokens});
      const Tensor<float> k = trace.read_k(layer, head / info.group(), {0, plant.n_tokens});
      for (Index pos = 0; pos < plant.n_tokens; ++pos, ++row) {
        const Index first = test::naive_first_visible(trace, layer, pos);
        auto probs = test::naive_row(trace, layer, head, pos);
        const double keys_mass = std::accumulate(probs.begin(), probs.end(), 0.0);
        for (double& x : probs) x /= keys_mass;  // shares of what the keys get: a sink has its own
        std::vector<double> bounds, maxima;
        for (Index page = 0; page < n_pages; ++page) {
          const Index begin = std::max(first, page * 4);
          const Index end = std::min(pos + 1, page * 4 + 4);
          const std::size_t at =
              row * static_cast<std::size_t>(n_pages) + static_cast<std::size_t>(page);
          if (begin >= end) {
            REQUIRE(std::isnan(bound[at]));
            REQUIRE(std::isnan(true_max[at]));
            continue;
          }
          double u = 0.0;
          for (Index c = 0; c < plant.d_head; ++c) {
            double low = k(begin, c), high = k(begin, c);
            for (Index t = begin; t < end; ++t) {
              low = std::min<double>(low, k(t, c));
              high = std::max<double>(high, k(t, c));
            }
            u += std::max(q(pos, c) * low, q(pos, c) * high);
          }
          double best = -1e300;
          for (Index t = begin; t < end; ++t) {
            double dot = 0.0;
            for (Index c = 0; c < plant.d_head; ++c) dot += double(q(pos, c)) * double(k(t, c));
            best = std::max(best, dot);
          }
          REQUIRE(bound[at] == Approx(u).margin(1e-4));
          REQUIRE(true_max[at] == Approx(best).margin(1e-4));
          bounds.push_back(u);
          maxima.push_back(best);
        }
        const Index first_page = first / 4;
        const auto n = static_cast<Index>(bounds.size());
        const auto heaviest = naive_top(probs, 10);
        const Index best_page = naive_top(maxima, 1)[0];
        for (const bool kernel : {false, true}) {
          std::vector<Index> kept;
          const Index visible = pos + 1 - first;
          if (visible <= 16) {  // the budget covers the context: nothing is dropped
            kept = naive_top(bounds, n);
          } else if (kernel) {
            const Index budget = std::min<Index>(std::max<Index>(1, 16 / 4), n);
            kept = naive_top({bounds.begin(), bounds.end() - 1}, budget - 1);
            kept.push_back(n - 1);
          } else {
            kept = naive_top(bounds,
                             std::min(n, std::max<Index>(3, std::min<Index>(16, visible) / 4)));
          }
          double mass = 0.0;
          Index loaded = 0, hits = 0;
          bool has_best = false;
          for (Index page : kept) {
            has_best = has_best || page == best_page;
            for (Index t = 0; t < visible; ++t) {
              if ((first + t) / 4 - first_page != page) continue;
              mass += probs[t];
              ++loaded;
              hits += std::ranges::count(heaviest, t);
            }
          }
          const std::string s = kernel ? "kernel/" : "eval/";
          REQUIRE(result.values<float>(s + "mass")[row] == Approx(mass).margin(1e-6));
          REQUIRE(result.values<std::int32_t>(s + "loaded")[row] == loaded);
          REQUIRE(result.values<std::int32_t>(s + "pages")[row] == static_cast<int>(kept.size()));
          REQUIRE(result.values<float>(s + "recall")[row] ==
                  Approx(double(hits) / double(heaviest.size())));
          REQUIRE(result.values<std::uint8_t>(s + "best_kept")[row] == (has_best ? 1 : 0));
        }
      }
    }
  }
}

TEST_CASE("quest: a shared selection loads what each head loads, separate ones load their union") {
  MemoryTrace trace = test::planted_trace(test::PlantOptions{.n_q = 8, .n_kv = 2, .n_tokens = 256});
  QuestOptions options;
  options.budget = 64;
  options.group_shared = GENERATE(GroupShared::none, GroupShared::max, GroupShared::mean);
  MemoryResult result;
  run(trace, options, result);
  const auto loaded = result.values<std::int32_t>("kernel/loaded");
  const auto shared = result.values<std::int32_t>("kernel/union_loaded");
  const auto selected = result.values<std::uint8_t>("kernel/selected");
  const std::size_t steps = 64;
  const std::size_t pages = 16;
  bool any_larger = false;
  for (std::size_t kv = 0; kv < 2; ++kv) {
    for (std::size_t step = 0; step < steps; ++step) {
      std::set<std::size_t> all;
      for (std::size_t head = kv * 4; head < kv * 4 + 4; ++head) {
        for (std::size_t page = 0; page < pages; ++page) {
          if (selected[(head * steps + step) * pages + page]) all.insert(page);
        }
      }
      const Index pos = result.values<std::int64_t>("step_pos")[step];
      Index tokens = 0;
      for (std::size_t page : all)
        tokens += std::min<Index>(16, pos + 1 - static_cast<Index>(page) * 16);
      REQUIRE(shared[kv * steps + step] == tokens);
      any_larger = any_larger || shared[kv * steps + step] > loaded[kv * 4 * steps + step];
    }
  }
  REQUIRE(any_larger == (options.group_shared == GroupShared::none));
}

TEST_CASE("quest: steps are the decoded positions if there are any") {
  const MemoryTrace trace = test::planted_trace({}, [](TraceInfo& info) { info.n_prompt = 50; });
  MemoryResult result;
  run(trace, {}, result);
  REQUIRE(result.values<std::int64_t>("step_pos").front() == 50);
  REQUIRE(result.values<std::int64_t>("step_pos").size() == 14);
  QuestOptions options;
  options.step_source = StepSource::prompt;
  options.steps = 5;
  run(trace, options, result);
  const auto steps = result.values<std::int64_t>("step_pos");
  REQUIRE(std::vector<std::int64_t>(steps.begin(), steps.end()) ==
          std::vector<std::int64_t>{0, 12, 24, 36, 49});
  options.step_source = StepSource::decode;
  CHECK_SAYS(run(test::planted_trace({}), options, result), "64 prompt and 0 decoded");
}

TEST_CASE("quest: totals leave out the dense layers, and those with a sliding window") {
  MemoryTrace trace = test::planted_trace(test::PlantOptions{.n_layers = 3, .n_tokens = 200});
  MemoryTrace windowed = test::planted_trace(test::PlantOptions{.n_layers = 3, .n_tokens = 200},
                                             [](TraceInfo& info) { info.window[1] = 20; });
  QuestOptions options;
  options.dense_layers = 1;
  MemoryResult of_windowed;
  const auto left = run(windowed, options, of_windowed);
  REQUIRE(left["totals"]["kernel_mass"] == left["layers"][2]["kernel_mass"]);
  REQUIRE(left["totals"]["windowed_layers"] == 1);
  options = {};
  options.budget = 48;
  MemoryResult result;
  const auto summary = run(trace, options, result);
  REQUIRE(summary["layers"][1]["dense"] == true);
  REQUIRE(summary["layers"][2]["dense"] == false);
  REQUIRE(summary["totals"]["kernel_mass"] == summary["layers"][2]["kernel_mass"]);
  const double alone = summary["totals"]["kernel_reduction_per_kv_head"];
  const double all = summary["totals"]["kernel_reduction_per_kv_head_with_dense_layers"];
  REQUIRE(all == Approx(alone / 3));
}

}  // namespace kvscope::quest_bounds_test
