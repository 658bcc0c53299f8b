// Coverage against three loops: maps, kept mass, nucleus sizes, smallest budgets, Pinsker floors.
#include "analysis/kinds/coverage.hpp"

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/base/statistics.hpp"
#include "analysis/kinds/nucleus_sizes.hpp"
#include "core/trace/result.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::coverage_test {

constexpr Index kWindow = 21;

/// The trace with layer 1 behind a sliding window.
MemoryTrace windowed_trace(const PlantOptions& plant) {
  return planted_trace(plant, [](TraceInfo& info) { info.window[1] = kWindow; });
}

PlantOptions small_plant() {
  return PlantOptions{.n_layers = 3,
                      .n_tokens = 75,
                      .sink = 1.5,
                      .band = 1.0,
                      .duplicates = {{3, 9}, {3, 40}},
                      .zero_keys = {12, 33}};
}

CoverageOptions small_options() {
  return CoverageOptions{.selectors = {"recent", "oracle-topk:dense-layers=0"},
                         .budgets = {Budget::parse("6"), Budget::parse("20")},
                         .replay = {.calls = {.chunk = 16}, .rows_per_chunk = 3},
                         .shares = {0.5, 0.9, 1.0},
                         .query_block = 10,
                         .page_size = 4,
                         .target_mass = 0.9};
}

nlohmann::ordered_json run(const TraceSource& trace, const CoverageOptions& options,
                           MemoryResult& result, int threads = 1,
                           const TraceSource* draft = nullptr) {
  ThreadPool pool(threads);
  return analyze_coverage(trace, draft, options, {result, pool});
}

/// Attention among the visible keys: what an attention sink takes is left out of the whole.
std::vector<double> naive_share_row(const TraceSource& trace, Index layer, Index head, Index pos) {
  auto row = test::naive_row(trace, layer, head, pos);
  double sum = 0.0;
  for (const double x : row) sum += x;
  for (double& x : row) x /= sum;
  return row;
}

/// Visible keys from the heaviest on, ties by position.
std::vector<Index> by_weight(const std::vector<double>& row) {
  std::vector<Index> order;
  for (std::size_t i = 0; i < row.size(); ++i) order.push_back(static_cast<Index>(i));
  std::ranges::stable_sort(order, [&](Index a, Index b) { return row[a] > row[b]; });
  return order;
}

double naive_mean(const std::vector<double>& x) {
  double sum = 0.0;
  for (double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}

/// Linear between neighbours, as analysis/base/statistics.hpp defines it.
double naive_quantile(std::vector<double> x, double q) {
  std::ranges::sort(x);
  const double at = q * static_cast<double>(x.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  if (low + 1 >= x.size()) return x.back();
  return x[low] + (at - static_cast<double>(low)) * (x[low + 1] - x[low]);
}

/// Sums over the rows and heads of one cell.
struct Cell {
  double mass = 0.0;
  double n_visible = 0.0;
  std::map<std::size_t, double> kept;    // by pair
  std::map<std::size_t, double> n_kept;  // by pair
};

TEST_CASE("coverage: every number equals three loops") {
  PlantOptions plant = small_plant();
  plant.n_q = GENERATE(2, 4, 8);
  plant.has_sink_logits = GENERATE(false, true);
  plant.score_cap = plant.has_sink_logits ? 2.5 : 0.0;
  const MemoryTrace trace = windowed_trace(plant);
  CoverageOptions options = small_options();
  options.min_visible = GENERATE(1, 12);
  MemoryResult result;
  const auto summary = run(trace, options, result);

  std::vector<std::pair<Index, Index>> rows;  // (position, begin of its call)
  for (Index begin = 0; begin < plant.n_tokens; begin += 16) {
    const Index n = std::min<Index>(16, plant.n_tokens - begin);
    for (Index row : measured_rows(n, 3)) rows.emplace_back(begin + row, begin);
  }
  REQUIRE(result.values<std::int64_t>("row_pos").size() == rows.size());

  const Index n_blocks = (plant.n_tokens + 9) / 10;
  const Index n_pages = (plant.n_tokens + 3) / 4;
  const std::size_t n_pairs = 4;
  const auto n_heads = static_cast<std::size_t>(plant.n_q);
  std::map<Index, Index> rows_of_block;
  for (const auto& [pos, begin] : rows) ++rows_of_block[pos / 10];
  std::vector<double> all_curve(static_cast<std::size_t>(plant.n_tokens), 0.0);
  std::size_t all_counted = 0;
  std::size_t map_at = 0;

  for (Index layer = 0; layer < plant.n_layers; ++layer) {
    const auto l = static_cast<std::size_t>(layer);
    std::map<std::pair<Index, Index>, Cell> cells;
    std::vector<double> layer_budget;
    std::vector<double> curve(static_cast<std::size_t>(plant.n_tokens), 0.0);  // mass of k + 1
    for (std::size_t h = 0; h < n_heads; ++h) {
      std::vector<std::vector<double>> kept_mass(n_pairs), kept_keys(n_pairs);
      std::vector<std::vector<double>> sizes(4), shares(4);  // three p's and the target
      for (const auto& [pos, call_begin] : rows) {
        const Index first = test::naive_first_visible(trace, layer, pos);
        const auto probs = naive_share_row(trace, layer, static_cast<Index>(h), pos);
        const auto n_visible = static_cast<Index>(probs.size());
        const std::vector<Index> order = by_weight(probs);
        for (std::size_t p = 0; p < n_pairs; ++p) {
          const Index budget = p % 2 == 0 ? 6 : 20;
          std::set<Index> kept;  // counted from the first visible key
          if (layer == 1) {
            for (Index i = 0; i < n_visible; ++i) kept.insert(i);  // windowed: dense
          } else if (p < 2) {
            for (Index i = std::max<Index>(0, call_begin - budget); i <= pos; ++i) kept.insert(i);
          } else {
            for (Index i = 0; i < std::min(budget, n_visible); ++i) kept.insert(order[i]);
          }
          double mass = 0.0;
          for (Index i : kept) {
            Cell& cell = cells[{pos / 10, (first + i) / 4}];
            cell.kept[p] += probs[i];
            cell.n_kept[p] += 1.0;
            mass += probs[i];
          }
          kept_mass[p].push_back(mass);
          kept_keys[p].push_back(static_cast<double>(kept.size()));
        }
        for (Index i = 0; i < n_visible; ++i) {
          cells[{pos / 10, (first + i) / 4}].mass += probs[i];
          cells[{pos / 10, (first + i) / 4}].n_visible += 1.0;
        }
        if (n_visible < options.min_visible) continue;
        for (std::size_t s = 0; s < 4; ++s) {
          const double p = s < 3 ? options.shares[s] : options.target_mass;
          double mass = 0.0;
          Index size = 0;
          while (size < n_visible && (p >= 1.0 || mass < p - 1e-12)) mass += probs[order[size++]];
          sizes[s].push_back(static_cast<double>(size));
          shares[s].push_back(static_cast<double>(size) / static_cast<double>(n_visible));
        }
        double mass = 0.0;
        for (Index k = 0; k < plant.n_tokens; ++k) {
          if (k < n_visible) mass += probs[order[k]];
          curve[k] += mass;
        }
      }
      INFO("layer " << layer << " head " << h);
      for (std::size_t p = 0; p < n_pairs; ++p) {
        const std::size_t at = (l * n_pairs + p) * n_heads + h;
        CHECK(result.values<double>("kept_mass")[at] == Approx(naive_mean(kept_mass[p])));
        CHECK(result.values<double>("kept_mass_p05")[at] ==
              Approx(naive_quantile(kept_mass[p], 0.05)));
        CHECK(result.values<double>("kept_keys")[at] == Approx(naive_mean(kept_keys[p])));
      }
      const auto n_bins = static_cast<std::size_t>(n_size_bins(plant.n_tokens));
      for (std::size_t s = 0; s < 3; ++s) {
        const std::size_t at = (l * n_heads + h) * 3 + s;
        CHECK(result.values<double>("nucleus_mean")[at] == Approx(naive_mean(sizes[s])));
        CHECK(result.values<double>("nucleus_p50")[at] == Approx(naive_quantile(sizes[s], 0.5)));
        CHECK(result.values<double>("nucleus_p95")[at] == Approx(naive_quantile(sizes[s], 0.95)));
        CHECK(result.values<double>("nucleus_share")[at] == Approx(naive_mean(shares[s])));
        for (std::size_t bin = 0; bin < n_bins; ++bin) {
          const double low = std::pow(2.0, static_cast<double>(bin));
          const auto n = std::ranges::count_if(
              sizes[s], [&](double size) { return size >= low && size < 2.0 * low; });
          CHECK(result.values<std::int64_t>("nucleus_counts")[at * n_bins + bin] == n);
        }
      }
      const std::size_t at = l * n_heads + h;
      CHECK(result.values<double>("budget_mean")[at] == Approx(naive_mean(sizes[3])));
      CHECK(result.values<double>("budget_p95")[at] == Approx(naive_quantile(sizes[3], 0.95)));
      CHECK(result.values<double>("budget_max")[at] == *std::ranges::max_element(sizes[3]));
      layer_budget.insert(layer_budget.end(), sizes[3].begin(), sizes[3].end());
    }
    CHECK(result.values<double>("layer_budget_mean")[l] == Approx(naive_mean(layer_budget)));
    CHECK(result.values<double>("layer_budget_p95")[l] ==
          Approx(naive_quantile(layer_budget, 0.95)));
    CHECK(result.values<double>("layer_budget_max")[l] == *std::ranges::max_element(layer_budget));
    const auto n_counted = static_cast<double>(layer_budget.size());
    Index shared = 1;
    while (curve[shared - 1] / n_counted < options.target_mass) ++shared;
    CHECK(result.values<double>("layer_budget_shared")[l] == static_cast<double>(shared));
    CHECK(summary["layers"][l]["budget_shared"] == shared);
    const auto ks = result.values<std::int64_t>("k");
    for (std::size_t i = 0; i < ks.size(); ++i) {
      CHECK(result.values<double>("topk_mass")[l * ks.size() + i] ==
            Approx(curve[ks[i] - 1] / n_counted).margin(1e-9));
    }
    if (!trace.info().window_of(layer)) {  // others are in no total
      for (std::size_t k = 0; k < curve.size(); ++k) all_curve[k] += curve[k];
      all_counted += layer_budget.size();
    }

    for (Index block = 0; block < n_blocks; ++block) {
      const double n_rows = static_cast<double>(rows_of_block[block] * plant.n_q);
      for (Index page = 0; page < n_pages; ++page, ++map_at) {
        INFO("layer " << layer << " block " << block << " page " << page);
        const auto found = cells.find({block, page});
        const float mass = result.values<float>("map_mass")[map_at];
        CHECK(std::isnan(mass) == (found == cells.end()));
        if (found != cells.end()) CHECK(mass == Approx(found->second.mass / n_rows).margin(1e-7));
        for (std::size_t p = 0; p < n_pairs; ++p) {
          const auto at = ((l * n_pairs + p) * static_cast<std::size_t>(n_blocks) +
                           static_cast<std::size_t>(block)) *
                              static_cast<std::size_t>(n_pages) +
                          static_cast<std::size_t>(page);
          const float kept = result.values<float>("map_kept")[at];
          const float selected = result.values<float>("map_selected")[at];
          CHECK(std::isnan(kept) == (found == cells.end()));
          CHECK(std::isnan(selected) == (found == cells.end()));
          if (found == cells.end()) continue;
          CHECK(kept == Approx(found->second.kept[p] / n_rows).margin(1e-7));
          CHECK(selected == Approx(found->second.n_kept[p] / found->second.n_visible));
        }
      }
    }
  }
  Index shared = 1;
  while (all_curve[shared - 1] / static_cast<double>(all_counted) < options.target_mass) ++shared;
  CHECK(summary["totals"]["budget_shared"] == shared);
  CHECK(summary["totals"]["windowed_layers"] == 1);
  CHECK(summary["pairs"][0]["layer_mass"].size() == 2);
  CHECK_HAS(summary["pinsker"].get<std::string>(), "no draft trace was given");
}

TEST_CASE("coverage: linked methods, whose layers are replayed together, file the same arrays") {
  PlantOptions plant = small_plant();
  plant.n_layers = 5;
  const MemoryTrace trace = planted_trace(plant);
  CoverageOptions both = small_options();
  both.selectors = {"lessismore", "recent"};
  CoverageOptions alone = both;
  alone.selectors = {"lessismore"};
  MemoryResult together, single;
  run(trace, both, together);
  run(trace, alone, single);
  const auto a = together.values<float>("map_kept");
  const auto b = single.values<float>("map_kept");
  const std::size_t layer = a.size() / 5;
  REQUIRE(b.size() * 2 == a.size());
  for (std::size_t l = 0; l < 5; ++l)
    CHECK(std::memcmp(a.data() + l * layer, b.data() + l * layer / 2, layer / 2 * sizeof(float)) ==
          0);
}

/// Head-averaged row by loops.
std::vector<double> naive_head_mean(const TraceSource& trace, Index layer, Index pos) {
  std::vector<double> out(static_cast<std::size_t>(pos + 1), 0.0);
  const Index first = test::naive_first_visible(trace, layer, pos);
  for (Index head = 0; head < trace.info().n_q; ++head) {
    const auto row = test::naive_row(trace, layer, head, pos);
    for (std::size_t i = 0; i < row.size(); ++i)
      out[static_cast<std::size_t>(first) + i] += row[i] / static_cast<double>(trace.info().n_q);
  }
  double sum = 0.0;  // heads count by what they give to keys
  for (const double x : out) sum += x;
  for (double& x : out) x /= sum;
  return out;
}

TEST_CASE("coverage: Pinsker floors and SpecAttn's mass equal three loops") {
  PlantOptions plant = small_plant();
  plant.query_scale = 0.4;  // flat rows: the floors are far from 0
  plant.has_sink_logits = GENERATE(false, true);
  plant.score_cap = plant.has_sink_logits ? 2.5 : 0.0;
  const MemoryTrace trace = windowed_trace(plant);
  plant.n_layers = 2;
  plant.n_q = 2;
  plant.query_scale = 0.35;
  const MemoryTrace draft = planted_trace(plant);
  CoverageOptions options = small_options();
  options.selectors.clear();
  options.budgets.clear();
  options.nucleus = 0.8;
  options.layer_map = "1/0/1";
  options.replay.calls.steps = 3;
  options.replay.calls.drafts = 4;
  MemoryResult result;
  const auto summary = run(trace, options, result, 1, &draft);
  const Index map[] = {1, 0, 1};
  const auto positions = result.values<std::int64_t>("verified_pos");
  REQUIRE(positions.size() == 12);
  double smallest = 1.0;
  Mean counted;  // rows that have a floor, of layers without a window
  for (Index layer = 0; layer < 3; ++layer) {
    CHECK(result.values<std::int64_t>("draft_layer")[layer] == map[layer]);
    for (std::size_t call = 0; call < 3; ++call) {
      const Index begin = positions[call * 4];
      std::set<Index> chosen;           // union of the rows' nuclei, closed over blocks of 16
      for (Index r = -1; r < 3; ++r) {  // of the queries that proposed the four tokens
        const auto b = naive_head_mean(draft, map[layer], begin + r);
        double mass = 0.0;
        for (Index key : by_weight(b)) {
          if (mass >= 0.8) break;
          mass += b[key];
          for (Index i = key / 16 * 16; i < key / 16 * 16 + 16; ++i) chosen.insert(i);
        }
      }
      for (Index i = begin - 1; i < begin + 4; ++i) chosen.insert(i);
      for (Index r = 0; r < 4; ++r) {
        const Index pos = begin + r;
        const std::size_t at =
            static_cast<std::size_t>(layer) * 12 + call * 4 + static_cast<std::size_t>(r);
        const auto a = naive_head_mean(trace, layer, pos);
        const auto b = naive_head_mean(draft, map[layer], pos);
        double kl = 0.0, variation = 0.0, kept = 0.0, on_nucleus = 0.0, mass = 0.0;
        Index n_kept = 0;
        const Index first_visible = test::naive_first_visible(trace, layer, pos);
        const Index n_visible = pos + 1 - first_visible;
        for (std::size_t i = 0; i < a.size(); ++i) {
          const auto key = static_cast<Index>(i);
          if (key >= first_visible && (layer == 1 || chosen.contains(key))) ++n_kept;
          if (a[i] > 0.0) kl += a[i] * std::log(a[i] / b[i]);
          variation += 0.5 * std::abs(a[i] - b[i]);
          if (layer == 1 || chosen.contains(static_cast<Index>(i))) kept += a[i];
        }
        for (Index key : by_weight(b)) {
          if (mass >= 0.8) break;
          mass += b[key];
          on_nucleus += a[key];
        }
        INFO("layer " << layer << " position " << pos);
        CHECK(result.values<double>("specattn_mass")[at] == Approx(kept));
        CHECK(result.values<double>("specattn_kept")[at] ==
              Approx(static_cast<double>(n_kept) / static_cast<double>(n_visible)));
        smallest = std::min(smallest, kept);
        if (r == 3) {  // the draft never ran the last token
          CHECK(std::isnan(result.values<double>("pinsker_floor")[at]));
          CHECK(std::isnan(result.values<double>("nucleus_mass")[at]));
          continue;
        }
        if (layer != 1) counted.add(kept);
        const double floor = std::max(0.0, 0.8 - std::sqrt(kl / 2));
        CHECK(result.values<double>("pinsker_kl")[at] == Approx(kl));
        CHECK(result.values<double>("pinsker_floor")[at] == Approx(floor).margin(1e-9));
        CHECK(result.values<double>("tv_floor")[at] ==
              Approx(std::max(0.0, 0.8 - variation)).margin(1e-9));
        CHECK(result.values<double>("nucleus_mass")[at] == Approx(on_nucleus));
        CHECK(floor <= std::max(0.0, 0.8 - variation) + 1e-9);
        CHECK(on_nucleus >= 0.8 - variation - 1e-9);
      }
    }
  }
  CHECK(smallest < 1.0);
  CHECK(summary["pinsker"]["violations"] == 0);
  CHECK(summary["pinsker"]["rows"] == 12);
  CHECK(summary["totals"]["specattn_mass"].get<double>() == Approx(counted.value()));
  CHECK(summary["layers"][0]["rows"] == 4 * summary["totals"]["rows"].get<int>());  // heads
}

TEST_CASE("coverage: a floor holds where one head gives all it has to its attention sink") {
  PlantOptions plant = small_plant();
  plant.n_q = plant.n_kv = 2;
  plant.has_sink_logits = true;
  const MemoryTrace trace = planted_trace(plant, [](TraceInfo& info) {
    for (std::size_t i = 0; i < info.sink_logits.size(); ++i)
      info.sink_logits[i] = i % 2 == 0 ? 40.0f : -40.0f;
  });
  CoverageOptions options = small_options();
  options.selectors.clear();
  options.budgets.clear();
  options.nucleus = 0.6;
  options.layer_map = "identity";
  MemoryResult result;
  const auto summary = run(trace, options, result, 1, &trace);
  CHECK(summary["pinsker"]["violations"] == 0);
  CHECK(summary["pinsker"]["pinsker_floor"].get<double>() == Approx(0.6).margin(1e-6));
}

}  // namespace kvscope::coverage_test
