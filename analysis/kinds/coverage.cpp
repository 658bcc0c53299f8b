#include "analysis/kinds/coverage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/replay_means.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/base/trace_selection.hpp"
#include "analysis/kinds/nucleus_sizes.hpp"
#include "analysis/kinds/pinsker_floor.hpp"
#include "core/attention/layer_divergence.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kNoDraft =
    "no Pinsker floor: it compares a verifier with its draft model, and no draft trace was given";

void require_share(std::string_view name, double p) {
  if (p > 0.0 && p <= 1.0) return;
  throw ConfigError("{}: expected a share in (0, 1], found {}", name, p);
}

/// What is computed, before anything is.
struct CoveragePlan {
  PairPlan pairs;
  std::vector<std::size_t> alone;   // pairs that are replayed layer by layer
  std::vector<std::size_t> linked;  // pairs whose method passes context between layers
  std::vector<Index> layers;
  Index n_windowed = 0;  // layers with a sliding window, which means over layers leave out
  CallPlan calls;
  NucleusPlan nucleus;  // rows, heads and shares
  Index n_tokens = 0;
  std::vector<Index> top_k;  // budgets whose oracle mass is kept: 1, 2, 4, ...
};

CoveragePlan make_plan(const TraceSource& trace, bool has_draft, const CoverageOptions& options) {
  check_fields(options);
  require_share("target-mass", options.target_mass);
  require_share("nucleus", options.nucleus);
  for (const double p : options.shares) require_share("p", p);
  require_unique(options.shares, "p", "coverage");
  if (options.shares.empty()) throw ConfigError("coverage: expected at least one p");
  require_full_qkv(trace, "coverage");
  const TraceInfo& info = trace.info();

  CoveragePlan plan;
  if (options.selectors.empty() && !options.budgets.empty())
    throw ConfigError("coverage: a budget is of no use without a selector");
  if (!options.selectors.empty()) {
    const auto without_draft = has_draft ? std::nullopt : std::optional(trace.where());
    plan.pairs = plan_pairs(options.selectors, options.budgets, {options.replay.calls.phase},
                            without_draft, "coverage");
  }
  for (std::size_t p = 0; p < plan.pairs.pairs.size(); ++p)
    (plan.pairs.pairs[p].selector.caps().cross_layer ? plan.linked : plan.alone).push_back(p);
  const TraceInfo part = selected_part(info, {options.layers, options.replay.q_heads});
  plan.nucleus.target_mass = options.target_mass;
  plan.nucleus.min_visible = options.min_visible;
  plan.layers = part.layers;
  for (const Index layer : plan.layers) plan.n_windowed += info.window_of(layer) ? 1 : 0;
  plan.nucleus.q_heads = part.q_heads;
  plan.calls = whole_periods(options.replay.calls, plan.pairs.pairs);
  for (const TokenRange& call : plan_calls(info, plan.calls, trace.where())) {
    for (Index row : measured_rows(call.size(), options.replay.rows_per_chunk))
      plan.nucleus.row_pos.push_back(call.begin + row);
  }
  plan.nucleus.shares = options.shares;
  std::ranges::sort(plan.nucleus.shares);
  plan.n_tokens = info.n_tokens;
  for (Index k = 1; k <= plan.nucleus.row_pos.back() + 1; k *= 2) plan.top_k.push_back(k);
  const double n_row_heads =
      static_cast<double>(plan.nucleus.row_pos.size() * plan.nucleus.q_heads.size());
  if (n_row_heads > ReproducibleSums::kLargest) {
    throw ConfigError(
        "coverage: {} rows of {} heads are more than the {} that its sums can take; "
        "measure fewer rows per chunk",
        plan.nucleus.row_pos.size(), plan.nucleus.q_heads.size(), ReproducibleSums::kLargest);
  }
  return plan;
}

void check_cells(const MapGrid& grid, const CoveragePlan& plan, Index max_cells) {
  const auto n_held = static_cast<double>(plan.alone.size() + 1) +
                      static_cast<double>(plan.linked.size() * plan.layers.size());
  const double n_cells = n_held * static_cast<double>(grid.n_cells());
  if (n_cells <= static_cast<double>(max_cells)) return;
  throw ConfigError(
      "coverage: {} maps of {} query blocks x {} pages are {} cells, more than max-cells = {}; "
      "take larger query blocks or pages, or fewer selectors and budgets",
      n_held, grid.n_blocks(), grid.n_pages(), n_cells, max_cells);
}

/// One pair in one layer.
struct PairCoverage {
  std::vector<double> mass;       // [n_heads] mean over rows
  std::vector<double> mass_p05;   // [n_heads]
  std::vector<double> kept_keys;  // [n_heads] mean over rows
  double mass_mean = 0.0;         // over heads and rows
  double mass_p05_all = 0.0;      // 5th percentile over heads and rows
  bool is_dense = false;
  std::vector<float> map_kept;      // [n_cells]; empty for a windowed layer: all that is there
  std::vector<float> map_selected;  // [n_cells]
};

/// The maps of one layer; filled by the replay's callback.
struct LayerMaps {
  Index layer = 0;
  std::vector<std::unique_ptr<QueryPageMap>> pairs;
};

void fill_heads(const LayerReplay& replay, const PairReplay& pair, PairCoverage& out) {
  const auto n_rows = static_cast<std::size_t>(replay.row_begin.back());
  for (std::size_t h = 0; h < replay.q_heads.size(); ++h) {
    const std::span<const double> masses(pair.mass_rows.data() + h * n_rows, n_rows);
    out.mass.push_back(mean(masses));
    out.mass_p05.push_back(quantile(masses, 0.05));
    out.kept_keys.push_back(mean_of(replay, pair, ReplayMetric::kept, h, h + 1));
  }
  out.mass_mean = mean(out.mass);
  out.mass_p05_all = quantile(pair.mass_rows, 0.05);
  out.is_dense = pair.is_dense;
}

/// Replays `pairs` over `layers`; answers [layers.size()][pairs.size()]. The maps of all these
/// layers and pairs are held at once.
std::vector<std::vector<PairCoverage>> replay_coverage(
    const TraceSource& trace, const TraceSource* draft, const std::vector<Index>& layers,
    const std::vector<ReplayPair>& pairs, const ReplayOptions& options, const MapGrid& grid,
    ThreadPool& pool, const ProgressFn& progress, const std::stop_token& stop) {
  std::vector<LayerMaps> maps;
  for (Index layer : layers) {
    maps.push_back({layer, {}});
    if (trace.info().window_of(layer)) continue;
    for (std::size_t p = 0; p < pairs.size(); ++p)
      maps.back().pairs.push_back(std::make_unique<QueryPageMap>(grid));
  }
  ReplayOptions watched = options;
  watched.on_row = [&](const MeasuredRow& row) {
    const auto it =
        std::ranges::find_if(maps, [&](const LayerMaps& one) { return one.layer == row.layer; });
    std::span<const double> probs = row.probs;
    std::vector<double> shares;  // of what the keys get, as in the map of all attention
    if (!trace.info().layer_sink_logits(row.layer).empty()) {
      shares.assign(probs.begin(), probs.end());
      normalise_row(shares);
      probs = shares;
    }
    for (std::size_t p = 0; p < pairs.size(); ++p)
      it->pairs[p]->add_kept(row.pos, probs, row.visible, row.kept[p]);
  };
  const std::vector<LayerReplay> replays =
      replay_layers(trace, draft, layers, pairs, watched, pool, progress, stop);

  std::vector<std::vector<PairCoverage>> out(layers.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const auto window = trace.info().window_of(layers[l]);
    const std::vector<Index> visible_counts = grid.visible_counts(window);
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      PairCoverage one;
      fill_heads(replays[l], replays[l].pairs[p], one);
      if (window) {  // all is kept: the kept mass is the mass itself, which the caller knows
        one.map_selected =
            mapped<float>(visible_counts, [](Index n) { return n > 0 ? 1.0f : kNanF; });
      } else {
        one.map_kept = maps[l].pairs[p]->mean_mass(visible_counts);
        one.map_selected = maps[l].pairs[p]->kept_share(visible_counts);
        maps[l].pairs[p].reset();
      }
      out[l].push_back(std::move(one));
    }
  }
  return out;
}

void write_axes(ResultWriter& output, const CoveragePlan& plan, const MapGrid& grid) {
  std::vector<Index> bins;
  for (Index i = 0; i < n_size_bins(plan.n_tokens); ++i) bins.push_back(Index{1} << i);
  write_axis(output, "layer", plan.layers, "1", "layer");
  write_axis(output, "q_head", plan.nucleus.q_heads, "1", "query head");
  write_axis(output, "row_pos", plan.nucleus.row_pos, "token", "measured query positions");
  write_axis(output, "query_block", grid.block_begins(), "token", "first query of a block");
  write_axis(output, "page", grid.page_begins(), "token", "first key of a page");
  write_axis(output, "size_bin", bins, "key", "smallest nucleus size of a bin");
  write_axis(output, "k", plan.top_k, "key", "budget of an oracle");
  output.put<double>("p", {n_of(plan.nucleus.shares)}, {"p"}, "1", "share of the attention",
                     plan.nucleus.shares);
}

/// What the arrays of a layer are filled from.
struct CoverageLayer {
  const LayerNucleus& nucleus;
  std::optional<Index> shared;    // budget
  std::vector<double> topk_mass;  // [top_k]
  const std::vector<float>& map_mass;
  const std::vector<PairCoverage>& pairs;
};

/// The arrays of a layer, each said once with what fills it.
class CoverageArrays {
 public:
  /// Declares everything and writes the axes.
  CoverageArrays(ResultWriter& output, const CoveragePlan& plan, const MapGrid& grid)
      : arrays_(output, n_of(plan.layers)) {
    write_axes(output, plan, grid);
    const Index n_heads = n_of(plan.nucleus.q_heads);
    const auto sizes = [&](const std::string& name, double KeyCounts::*of, const char* text) {
      add<double>("nucleus_" + name, {n_heads, n_of(plan.nucleus.shares)}, {"q_head", "p"}, "key",
                  text, [of](const auto& one) { return mapped<double>(one.nucleus.sizes, of); });
    };
    sizes("mean", &KeyCounts::mean, "mean nucleus size");
    sizes("p50", &KeyCounts::p50, "median nucleus size");
    sizes("p95", &KeyCounts::p95, "95th percentile of nucleus sizes");
    add<double>("nucleus_share", {n_heads, n_of(plan.nucleus.shares)}, {"q_head", "p"}, "1",
                "mean of nucleus size / visible keys",
                [](const auto& one) { return one.nucleus.size_share; });
    add<std::int64_t>("nucleus_counts",
                      {n_heads, n_of(plan.nucleus.shares), n_size_bins(plan.n_tokens)},
                      {"q_head", "p", "size_bin"}, "row", "rows by nucleus size",
                      [](const auto& one) { return one.nucleus.size_counts; });
    const auto budgets = [&](const std::string& name, double KeyCounts::*of, const char* text) {
      add<double>("budget_" + name, {n_heads}, {"q_head"}, "key", text,
                  [of](const auto& one) { return mapped<double>(one.nucleus.head_budget, of); });
      add<double>("layer_budget_" + name, {}, {}, "key", name + " of the rows' smallest budgets",
                  [of](const auto& one) { return std::vector{one.nucleus.budget.*of}; });
    };
    budgets("mean", &KeyCounts::mean, "mean smallest budget for the target mass");
    budgets("p95", &KeyCounts::p95, "95th percentile of smallest budgets");
    budgets("max", &KeyCounts::max, "largest smallest budget");
    add<double>("layer_budget_shared", {}, {}, "key",
                "one budget whose mean mass reaches the target", [](const auto& one) {
                  return std::vector{one.shared ? static_cast<double>(*one.shared) : kNan};
                });
    add<double>("topk_mass", {n_of(plan.top_k)}, {"k"}, "1", "mean mass of the oracle's k keys",
                [](const auto& one) { return one.topk_mass; });
    add<float>("map_mass", {grid.n_blocks(), grid.n_pages()}, {"query_block", "page"}, "1",
               "attention in the page", [](const auto& one) { return one.map_mass; });
    if (plan.pairs.pairs.empty()) return;
    const Index n_pairs = n_of(plan.pairs.pairs);
    write_axis(output, "pair", all_in(0, n_pairs), "1", "place in the summary's pairs");
    const Shape heads{n_pairs, n_heads};
    add_pairs("kept_mass", heads, {"pair", "q_head"}, "1", "mean kept attention",
              &PairCoverage::mass);
    add_pairs("kept_mass_p05", heads, {"pair", "q_head"}, "1", "5th percentile of kept attention",
              &PairCoverage::mass_p05);
    add_pairs("kept_keys", heads, {"pair", "q_head"}, "key", "mean number of kept keys",
              &PairCoverage::kept_keys);
    const Shape maps{n_pairs, grid.n_blocks(), grid.n_pages()};
    add_pairs("map_kept", maps, {"pair", "query_block", "page"}, "1", "kept attention in the page",
              &PairCoverage::map_kept);
    add_pairs("map_selected", maps, {"pair", "query_block", "page"}, "1",
              "share of visible keys selected", &PairCoverage::map_selected);
  }

  void write(Index slot, const CoverageLayer& layer) {
    for (const auto& fill : fills_) fill(layer);
    arrays_.write(slot);
  }

 private:
  template <class T>
  void add(const std::string& name, const Shape& shape, std::vector<std::string> axes,
           const std::string& units, const std::string& text,
           std::function<std::vector<T>(const CoverageLayer&)> of) {
    Tensor<T>& values = arrays_.add<T>(name, shape, std::move(axes), units, text);
    fills_.push_back([&values, of = std::move(of)](const CoverageLayer& layer) {
      std::ranges::copy(of(layer), values.flat().begin());
    });
  }
  /// The pairs' vectors one after another.
  template <class T>
  void add_pairs(const char* name, const Shape& shape, std::vector<std::string> axes,
                 const char* units, const char* text, std::vector<T> PairCoverage::*of) {
    add<T>(name, shape, std::move(axes), units, text, [of](const CoverageLayer& layer) {
      std::vector<T> all;
      for (const PairCoverage& pair : layer.pairs)
        all.insert(all.end(), (pair.*of).begin(), (pair.*of).end());
      return all;
    });
  }

  LayerArrays arrays_;
  std::vector<std::function<void(const CoverageLayer&)>> fills_;
};

Json config_of(const CoverageOptions& options, const CoveragePlan& plan) {
  Json config = {{"pairs", Json::array()},
                 {"phase", std::string(enum_name(options.replay.calls.phase))},
                 {"chunk", options.replay.calls.chunk},
                 {"steps", options.replay.calls.steps},
                 {"drafts", options.replay.calls.drafts},
                 {"rows_per_chunk", or_null(options.replay.rows_per_chunk)},
                 {"dense_layers", or_null(options.replay.dense_layers)},
                 {"layers", plan.layers},
                 {"heads", plan.nucleus.q_heads},
                 {"p", plan.nucleus.shares}};
  for (const ReplayPair& pair : plan.pairs.pairs) config["pairs"].push_back(pair_label(pair));
  config.update(fields_to_json(options));
  add_artifacts(options.selectors, config);
  return config;
}

/// Mean over rows and heads of the oracle's mass with each of `budgets`.
std::vector<double> mean_topk_mass(const LayerNucleus& nucleus, std::span<const Index> budgets,
                                   std::size_t n_heads) {
  const auto n = static_cast<double>(nucleus.n_rows) * static_cast<double>(n_heads);
  std::vector<double> sums(nucleus.gains.size());
  std::partial_sum(nucleus.gains.begin(), nucleus.gains.end(), sums.begin());
  return mapped<double>(budgets,
                        [&](Index k) { return sums[static_cast<std::size_t>(k - 1)] / n; });
}

std::string share_key(double p) {
  return fmt::format("nucleus_{}", p);
}

Json layer_summary(Index layer, std::optional<Index> window, const LayerNucleus& nucleus,
                   std::optional<Index> shared, const CoveragePlan& plan) {
  Json row = {{"layer", layer},
              {"window", or_null(window)},
              {"rows", nucleus.n_rows * n_of(plan.nucleus.q_heads)}};
  for (std::size_t s = 0; s < plan.nucleus.shares.size(); ++s) {
    Mean over_heads;
    for (std::size_t h = 0; h < plan.nucleus.q_heads.size(); ++h)
      over_heads.add(nucleus.sizes[h * plan.nucleus.shares.size() + s].mean);
    row[share_key(plan.nucleus.shares[s])] = json_number(over_heads.value());
  }
  row["budget_mean"] = json_number(nucleus.budget.mean);
  row["budget_p95"] = json_number(nucleus.budget.p95);
  row["budget_max"] = json_number(nucleus.budget.max);
  row["budget_shared"] = or_null(shared);
  return row;
}

/// One pair over all layers, from its parts in each.
class PairSummary {
 public:
  void add(Index layer, const std::vector<Index>& q_heads, const PairCoverage& one) {
    layer_mass_.push_back(one.mass_mean);
    layer_p05_.push_back(one.mass_p05_all);
    kept_.push_back(mean(one.kept_keys));
    is_dense_ = is_dense_ && one.is_dense;
    for (std::size_t h = 0; h < q_heads.size(); ++h) {
      if (one.mass[h] >= worst_mass_) continue;
      worst_mass_ = one.mass[h];
      worst_layer_ = layer;
      worst_head_ = q_heads[h];
    }
  }
  Json json(const ReplayPair& pair) const {
    return {{"pair", pair_label(pair)},
            {"selector", pair.selector.text()},
            {"budget", pair.budget ? Json(pair.budget->to_string()) : Json(nullptr)},
            {"dense", is_dense_},
            {"kept_keys", json_number(mean(kept_))},
            {"mass_mean", json_number(mean(layer_mass_))},
            {"mass_p05", json_number(mean(layer_p05_))},
            {"worst_layer", or_null(worst_layer_)},
            {"worst_head", or_null(worst_head_)},
            {"worst_mass", worst_layer_ ? json_number(worst_mass_) : Json(nullptr)},
            {"layer_mass", layer_mass_}};
  }

 private:
  std::vector<double> layer_mass_, layer_p05_, kept_;
  double worst_mass_ = 2.0;  // above every mass
  std::optional<Index> worst_layer_, worst_head_;
  bool is_dense_ = true;
};

/// A number of each verified row: its array, what summaries call it, and what it is.
struct PinskerNumber {
  const char* array;
  const char* key;
  std::vector<double> PinskerLayer::*of;
  const char* units;
  const char* text;
};
constexpr PinskerNumber kPinskerNumbers[] = {
    {"pinsker_kl", "kl", &PinskerLayer::kl, "nat", "KL(verifier || mapped draft layer)"},
    {"pinsker_floor", "pinsker_floor", &PinskerLayer::floor, "1", "max(0, p - sqrt(KL / 2))"},
    {"tv_floor", "tv_floor", &PinskerLayer::tv_floor, "1", "max(0, p - total variation)"},
    {"nucleus_mass", "nucleus_mass", &PinskerLayer::nucleus_mass, "1",
     "verifier's mass on the draft's nucleus"},
    {"specattn_mass", "specattn_mass", &PinskerLayer::specattn_mass, "1",
     "attention that SpecAttn keeps"},
    {"specattn_kept", "specattn_kept", &PinskerLayer::specattn_kept, "1",
     "share of visible keys it keeps"}};

/// Writes the floors, and adds each layer's to its row, of the rows that have a floor; returns the
/// totals of the layers that `counts`.
Json add_pinsker(const PinskerResult& pinsker, const std::vector<bool>& counts, Json& layers,
                 ResultWriter& output) {
  write_axis(output, "verified_pos", pinsker.row_pos, "token", "verified positions");
  const Index n_layers = n_of(pinsker.layers);
  const auto draft_layers = mapped<std::int64_t>(pinsker.layers, &PinskerLayer::draft_layer);
  output.put<std::int64_t>("draft_layer", {n_layers}, {"layer"}, "1", "mapped draft layer",
                           draft_layers);
  Index violations = 0;
  Index vacuous = 0;
  for (std::size_t l = 0; l < pinsker.layers.size(); ++l) {
    layers[l]["draft_layer"] = pinsker.layers[l].draft_layer;
    if (!counts[l]) continue;
    violations += pinsker.layers[l].violations;
    vacuous += std::ranges::count_if(pinsker.layers[l].floor, [](double x) { return x <= 0.0; });
  }
  Json totals = {{"rows", pinsker.row_pos.size()}, {"rows_without_floor", vacuous}};
  for (const PinskerNumber& number : kPinskerNumbers) {
    output.declare({number.array,
                    ResultType::f64,
                    {n_layers, n_of(pinsker.row_pos)},
                    {"layer", "verified_pos"},
                    number.units,
                    number.text});
    Mean over_rows;
    for (std::size_t l = 0; l < pinsker.layers.size(); ++l) {
      const std::vector<double>& values = pinsker.layers[l].*number.of;
      output.write<double>(number.array, static_cast<Index>(l), values);
      Mean of_layer;
      for (std::size_t r = 0; r < values.size(); ++r) {
        if (std::isnan(pinsker.layers[l].floor[r])) continue;  // the last position of a call
        of_layer.add(values[r]);
        if (counts[l]) over_rows.add(values[r]);
      }
      layers[l][number.key] = json_number(of_layer.value());
    }
    totals[number.key] = json_number(over_rows.value());
  }
  totals["violations"] = violations;
  for (std::size_t l = 0; l < pinsker.layers.size(); ++l)
    layers[l]["violations"] = pinsker.layers[l].violations;
  return totals;
}

void add_plots(ResultWriter& output, bool has_pairs, bool has_pinsker) {
  output.add_plot(
      {"plot_map_mass", "map_mass", {"layer", "query_block", "page"}, "Where the attention lies"});
  output.add_plot({"plot_nucleus", "nucleus_mean", {"layer", "q_head", "p"}, "Mean nucleus size"});
  output.add_plot({"plot_budget", "budget_mean", {"layer", "q_head"}, "Mean smallest budget"});
  output.add_plot({"plot_topk_mass", "topk_mass", {"layer", "k"}, "Mass of the oracle's k keys"});
  if (has_pairs) {
    const std::vector<std::string> map_axes = {"layer", "pair", "query_block", "page"};
    output.add_plot({"plot_kept_mass", "kept_mass", {"layer", "pair", "q_head"}, "Kept attention"});
    output.add_plot({"plot_map_kept", "map_kept", map_axes, "Kept attention by page"});
    output.add_plot({"plot_map_selected", "map_selected", map_axes, "Selected keys by page"});
  }
  if (has_pinsker) {
    const std::vector<std::string> row_axes = {"layer", "verified_pos"};
    output.add_plot({"plot_pinsker_floor", "pinsker_floor", row_axes, "Pinsker floor"});
    output.add_plot({"plot_specattn_mass", "specattn_mass", row_axes, "What SpecAttn keeps"});
  }
}

std::vector<ReplayPair> chosen(const std::vector<ReplayPair>& pairs,
                               const std::vector<std::size_t>& which) {
  return mapped<ReplayPair>(which, [&](std::size_t p) { return pairs[p]; });
}

/// Means over these layers, and what holds for all of them together.
Json totals_of(const Json& layers, const CoveragePlan& plan, const std::vector<double>& gains,
               double target_mass) {
  const Json means = mean_of_layers(layers);
  Json totals = {{"rows", plan.nucleus.row_pos.size()},
                 {"heads", plan.nucleus.q_heads.size()},
                 {"target_mass", target_mass}};
  for (const double p : plan.nucleus.shares) totals[share_key(p)] = means[share_key(p)];
  totals["budget_mean"] = means["budget_mean"];
  totals["budget_max"] = max_of_layers(layers, "budget_max");
  totals["windowed_layers"] = n_of(plan.layers) > plan.n_windowed ? plan.n_windowed : 0;
  totals["budget_shared"] = or_null(shared_budget(gains, target_mass));
  return totals;
}

}  // namespace

Json analyze_coverage(const TraceSource& trace, const TraceSource* draft,
                      const CoverageOptions& options, const AnalysisRun& run) {
  const CoveragePlan plan = make_plan(trace, draft != nullptr, options);
  const TraceInfo& info = trace.info();
  const MapGrid grid(plan.nucleus.row_pos, static_cast<Index>(plan.nucleus.q_heads.size()),
                     options.query_block, options.page_size);
  check_cells(grid, plan, options.max_cells);
  ReplayOptions replay = options.replay;
  replay.calls = plan.calls;
  replay.q_heads = plan.nucleus.q_heads;

  // 1. what may still be refused comes before the first array: floors, and linked pairs, whose
  // layers are replayed together
  std::optional<PinskerResult> pinsker;
  if (draft != nullptr)
    pinsker = pinsker_floors(trace, *draft, options, plan.layers, run.pool, run.progress, run.stop);
  std::vector<std::vector<PairCoverage>> linked(plan.layers.size());
  if (!plan.linked.empty()) {
    linked = replay_coverage(trace, draft, plan.layers, chosen(plan.pairs.pairs, plan.linked),
                             replay, grid, run.pool, run.progress, run.stop);
  }

  // 2. layer by layer: nucleus sizes and the map of all attention, then the selections
  std::vector<const TraceSource*> traces = {&trace};
  if (draft != nullptr) traces.push_back(draft);
  run.begin("coverage", traces, config_of(options, plan));
  CoverageArrays arrays(run.output, plan, grid);
  ScoreRowLoop loop(run.pool, run.stop, "coverage");
  Json summary;
  summary["tokens"] = plan.n_tokens;
  summary["layers"] = Json::array();
  std::vector<PairSummary> pair_summaries(plan.pairs.pairs.size());
  const bool only_windows = plan.n_windowed == n_of(plan.layers);
  Json counted = Json::array();  // rows of the layers that totals are of
  std::vector<bool> counts;      // by layer
  std::vector<double> all_gains(static_cast<std::size_t>(plan.nucleus.row_pos.back() + 1), 0.0);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    check_stop(run.stop, "coverage");
    const auto slot = static_cast<Index>(l);
    const Index layer = plan.layers[l];
    if (run.progress)
      run.progress({"coverage", slot, static_cast<Index>(plan.layers.size()), "layers"});
    const auto window = info.window_of(layer);
    std::optional<QueryPageMap> map(grid);
    const LayerNucleus nucleus = measure_nucleus(trace, layer, plan.nucleus, loop, *map);
    const std::vector<float> map_mass = map->mean_mass(grid.visible_counts(window));
    map.reset();

    std::vector<PairCoverage> pairs(plan.pairs.pairs.size());
    const auto file = [&](std::vector<PairCoverage>&& parts,
                          const std::vector<std::size_t>& which) {
      for (std::size_t i = 0; i < which.size(); ++i) pairs[which[i]] = std::move(parts[i]);
    };
    if (!plan.alone.empty()) {
      auto alone = replay_coverage(trace, draft, {layer}, chosen(plan.pairs.pairs, plan.alone),
                                   replay, grid, run.pool, {}, run.stop);
      file(std::move(alone.front()), plan.alone);
    }
    if (!plan.linked.empty()) file(std::move(linked[l]), plan.linked);
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      if (pairs[p].map_kept.empty()) pairs[p].map_kept = map_mass;  // windowed: all is kept
      if (!window || only_windows) pair_summaries[p].add(layer, plan.nucleus.q_heads, pairs[p]);
    }

    const auto shared = shared_budget(nucleus.gains, options.target_mass);
    arrays.write(slot,
                 {nucleus, shared, mean_topk_mass(nucleus, plan.top_k, plan.nucleus.q_heads.size()),
                  map_mass, pairs});
    summary["layers"].push_back(layer_summary(layer, window, nucleus, shared, plan));
    counts.push_back(!window || only_windows);
    if (!counts.back()) continue;
    counted.push_back(summary["layers"].back());
    for (std::size_t k = 0; k < all_gains.size(); ++k) all_gains[k] += nucleus.gains[k];
  }

  summary["pairs"] = Json::array();
  for (std::size_t p = 0; p < plan.pairs.pairs.size(); ++p)
    summary["pairs"].push_back(pair_summaries[p].json(plan.pairs.pairs[p]));
  summary["skipped"] = plan.pairs.skipped;
  Json totals = totals_of(counted, plan, all_gains, options.target_mass);
  totals["has_sinks"] = !info.sink_logits.empty();
  if (pinsker) {
    Json floors = add_pinsker(*pinsker, counts, summary["layers"], run.output);
    summary["pinsker"] = floors;
    floors.erase("rows");  // of the totals, those are the measured ones
    totals.update(floors);
  } else {
    summary["pinsker"] = std::string(kNoDraft);
  }
  summary["totals"] = std::move(totals);
  add_plots(run.output, !plan.pairs.pairs.empty(), pinsker.has_value());
  return run.finish(std::move(summary));
}

}  // namespace kvscope
