#include "analysis/kinds/coverage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/kinds/coverage_writer.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"

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
  CoverageAxes axes;
  NucleusPlan nucleus;
};

std::vector<Index> sorted_unique(std::vector<Index> items, std::string_view what) {
  std::ranges::sort(items);
  require_unique(items, what, "coverage");
  return items;
}

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
    plan.pairs = plan_pairs(options.selectors, options.budgets, options.replay.calls.phase,
                            without_draft, "coverage");
  }
  CoverageAxes& axes = plan.axes;
  axes.pairs = plan.pairs.pairs;
  for (std::size_t p = 0; p < axes.pairs.size(); ++p)
    (axes.pairs[p].selector.caps().cross_layer ? plan.linked : plan.alone).push_back(p);
  axes.layers = options.layers.empty() ? info.layers : sorted_unique(options.layers, "layer");
  axes.q_heads =
      options.replay.q_heads.empty() ? info.q_heads : sorted_unique(options.replay.q_heads, "head");
  for (Index layer : axes.layers) info.layer_slot(layer);
  for (Index head : axes.q_heads) info.q_slot(head);
  for (const TokenRange& call : plan_calls(info, options.replay.calls, trace.where())) {
    for (Index row : measured_rows(call.size(), options.replay.rows_per_chunk))
      axes.row_pos.push_back(call.begin + row);
  }
  axes.shares = options.shares;
  std::ranges::sort(axes.shares);
  axes.n_tokens = info.n_tokens;
  for (Index k = 1; k <= axes.row_pos.back() + 1; k *= 2) axes.top_k.push_back(k);
  const double n_row_heads = static_cast<double>(axes.row_pos.size() * axes.q_heads.size());
  if (n_row_heads > ReproducibleSums::kLargest) {
    throw ConfigError(
        "coverage: {} rows of {} heads are more than the {} that its sums can take; "
        "measure fewer rows per chunk",
        axes.row_pos.size(), axes.q_heads.size(), ReproducibleSums::kLargest);
  }
  plan.nucleus = {axes.row_pos, axes.q_heads, axes.shares, options.target_mass,
                  options.min_visible};
  return plan;
}

void check_cells(const MapGrid& grid, const CoveragePlan& plan, Index max_cells) {
  const auto n_held = static_cast<double>(plan.alone.size() + 1) +
                      static_cast<double>(plan.linked.size() * plan.axes.layers.size());
  const double n_cells = n_held * static_cast<double>(grid.n_cells());
  if (n_cells <= static_cast<double>(max_cells)) return;
  throw ConfigError(
      "coverage: {} maps of {} query blocks x {} pages are {} cells, more than max-cells = {}; "
      "take larger query blocks or pages, or fewer selectors and budgets",
      n_held, grid.n_blocks(), grid.n_pages(), n_cells, max_cells);
}

Json config_of(const CoverageOptions& options, const CoveragePlan& plan) {
  Json config = {{"pairs", Json::array()},
                 {"phase", std::string(name_of(options.replay.calls.phase))},
                 {"chunk", options.replay.calls.chunk},
                 {"steps", options.replay.calls.steps},
                 {"drafts", options.replay.calls.drafts},
                 {"rows_per_chunk", or_null(options.replay.rows_per_chunk)},
                 {"dense_layers", or_null(options.replay.dense_layers)},
                 {"layers", plan.axes.layers},
                 {"heads", plan.axes.q_heads},
                 {"p", plan.axes.shares}};
  for (const ReplayPair& pair : plan.axes.pairs) config["pairs"].push_back(pair_label(pair));
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
                   std::optional<Index> shared, const CoverageAxes& axes) {
  Json row = {{"layer", layer}, {"window", or_null(window)}, {"rows", nucleus.n_rows}};
  for (std::size_t s = 0; s < axes.shares.size(); ++s) {
    Mean over_heads;
    for (std::size_t h = 0; h < axes.q_heads.size(); ++h)
      over_heads.add(nucleus.sizes[h * axes.shares.size() + s].mean);
    row[share_key(axes.shares[s])] = json_number(over_heads.value());
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

/// Adds each layer's floors to its row; returns the totals.
Json pinsker_summary(const PinskerResult& pinsker, Json& layers) {
  Mean floor, tv_floor, nucleus_mass, specattn_mass, specattn_kept;
  Index violations = 0;
  Index vacuous = 0;
  for (std::size_t l = 0; l < pinsker.layers.size(); ++l) {
    const PinskerLayer& layer = pinsker.layers[l];
    Json& row = layers[l];
    row["draft_layer"] = layer.draft_layer;
    row["kl"] = json_number(mean(layer.kl));
    row["pinsker_floor"] = json_number(mean(layer.floor));
    row["tv_floor"] = json_number(mean(layer.tv_floor));
    row["nucleus_mass"] = json_number(mean(layer.nucleus_mass));
    row["specattn_mass"] = json_number(mean(layer.specattn_mass));
    row["specattn_kept"] = json_number(mean(layer.specattn_kept));
    row["violations"] = layer.violations;
    violations += layer.violations;
    for (std::size_t r = 0; r < layer.floor.size(); ++r) {
      if (layer.floor[r] <= 0.0) ++vacuous;
      floor.add(layer.floor[r]);
      tv_floor.add(layer.tv_floor[r]);
      nucleus_mass.add(layer.nucleus_mass[r]);
      specattn_mass.add(layer.specattn_mass[r]);
      specattn_kept.add(layer.specattn_kept[r]);
    }
  }
  return {{"rows", pinsker.row_pos.size()},
          {"rows_without_floor", vacuous},
          {"pinsker_floor", json_number(floor.value())},
          {"tv_floor", json_number(tv_floor.value())},
          {"nucleus_mass", json_number(nucleus_mass.value())},
          {"specattn_mass", json_number(specattn_mass.value())},
          {"specattn_kept", json_number(specattn_kept.value())},
          {"violations", violations}};
}

PinskerOptions pinsker_options(const CoverageOptions& options, const CoveragePlan& plan) {
  PinskerOptions out;
  out.nucleus = options.nucleus;
  out.layer_map = options.layer_map;
  out.steps = options.replay.calls.steps;
  out.drafts = options.replay.calls.drafts;
  out.layers = plan.axes.layers;
  return out;
}

std::vector<ReplayPair> chosen(const std::vector<ReplayPair>& pairs,
                               const std::vector<std::size_t>& which) {
  return mapped<ReplayPair>(which, [&](std::size_t p) { return pairs[p]; });
}

/// Means over the layers, and what holds for all of them together.
Json totals_of(const Json& layers, const CoverageAxes& axes, const std::vector<double>& gains,
               double target_mass) {
  const auto over_layers = [&](const std::string& key) {
    Mean out;
    for (const Json& row : layers)
      if (row[key].is_number()) out.add(row[key].get<double>());
    return json_number(out.value());
  };
  Json totals = {
      {"rows", axes.row_pos.size()}, {"heads", axes.q_heads.size()}, {"target_mass", target_mass}};
  for (const double p : axes.shares) totals[share_key(p)] = over_layers(share_key(p));
  totals["budget_mean"] = over_layers("budget_mean");
  double largest = 0.0;
  for (const Json& row : layers)
    if (row["budget_max"].is_number()) largest = std::max(largest, row["budget_max"].get<double>());
  totals["budget_max"] = largest;
  totals["budget_shared"] = or_null(shared_budget(gains, target_mass));
  return totals;
}

}  // namespace

Json analyze_coverage(const TraceSource& trace, const TraceSource* draft,
                      const CoverageOptions& options, const AnalysisRun& run) {
  const CoveragePlan plan = make_plan(trace, draft != nullptr, options);
  const CoverageAxes& axes = plan.axes;
  const TraceInfo& info = trace.info();
  const MapGrid grid(axes.row_pos, static_cast<Index>(axes.q_heads.size()), options.query_block,
                     options.page_size);
  check_cells(grid, plan, options.max_cells);
  ReplayOptions replay = options.replay;
  replay.q_heads = axes.q_heads;

  // 1. what may still be refused comes before the first array: floors, and linked pairs, whose
  // layers are replayed together
  std::optional<PinskerResult> pinsker;
  if (draft != nullptr)
    pinsker = pinsker_floors(trace, *draft, pinsker_options(options, plan), run.pool, run.progress,
                             run.stop);
  std::vector<std::vector<PairCoverage>> linked(axes.layers.size());
  if (!plan.linked.empty()) {
    linked = replay_coverage(trace, draft, axes.layers, chosen(axes.pairs, plan.linked), replay,
                             grid, run.pool, run.progress, run.stop);
  }

  // 2. layer by layer: nucleus sizes and the map of all attention, then the selections
  std::vector<const TraceSource*> traces = {&trace};
  if (draft != nullptr) traces.push_back(draft);
  run.begin("coverage", traces, config_of(options, plan));
  CoverageWriter writer(run.output, axes, grid);
  ScoreRowLoop loop(run.pool, run.stop, "coverage");
  Json summary;
  summary["tokens"] = axes.n_tokens;
  summary["layers"] = Json::array();
  std::vector<PairSummary> pair_summaries(axes.pairs.size());
  std::vector<double> all_gains(static_cast<std::size_t>(axes.row_pos.back() + 1), 0.0);
  for (std::size_t l = 0; l < axes.layers.size(); ++l) {
    check_stop(run.stop, "coverage");
    const auto slot = static_cast<Index>(l);
    const Index layer = axes.layers[l];
    if (run.progress)
      run.progress({"coverage", slot, static_cast<Index>(axes.layers.size()), "layers"});
    const auto window = info.window_of(layer);
    std::optional<QueryPageMap> map(grid);
    const LayerNucleus nucleus = measure_nucleus(trace, layer, plan.nucleus, loop, *map);
    const std::vector<float> map_mass = map->mean_mass(grid.visible_counts(window));
    map.reset();

    std::vector<PairCoverage> pairs(axes.pairs.size());
    const auto file = [&](std::vector<PairCoverage>&& parts,
                          const std::vector<std::size_t>& which) {
      for (std::size_t i = 0; i < which.size(); ++i) pairs[which[i]] = std::move(parts[i]);
    };
    if (!plan.alone.empty()) {
      auto alone = replay_coverage(trace, draft, {layer}, chosen(axes.pairs, plan.alone), replay,
                                   grid, run.pool, {}, run.stop);
      file(std::move(alone.front()), plan.alone);
    }
    if (!plan.linked.empty()) file(std::move(linked[l]), plan.linked);
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      if (pairs[p].map_kept.empty()) pairs[p].map_kept = map_mass;  // windowed: all is kept
      pair_summaries[p].add(layer, axes.q_heads, pairs[p]);
    }

    const auto shared = shared_budget(nucleus.gains, options.target_mass);
    writer.write_layer(slot, nucleus, shared,
                       mean_topk_mass(nucleus, axes.top_k, axes.q_heads.size()), map_mass, pairs);
    summary["layers"].push_back(layer_summary(layer, window, nucleus, shared, axes));
    for (std::size_t k = 0; k < all_gains.size(); ++k) all_gains[k] += nucleus.gains[k];
  }

  summary["pairs"] = Json::array();
  for (std::size_t p = 0; p < axes.pairs.size(); ++p)
    summary["pairs"].push_back(pair_summaries[p].json(axes.pairs[p]));
  summary["skipped"] = plan.pairs.skipped;
  Json totals = totals_of(summary["layers"], axes, all_gains, options.target_mass);
  totals["has_sinks"] = !info.sink_logits.empty();
  if (pinsker) {
    writer.write_pinsker(*pinsker);
    Json floors = pinsker_summary(*pinsker, summary["layers"]);
    summary["pinsker"] = floors;
    floors.erase("rows");  // of the totals, those are the measured ones
    totals.update(floors);
  } else {
    summary["pinsker"] = std::string(kNoDraft);
  }
  summary["totals"] = std::move(totals);
  writer.add_plots(pinsker.has_value());
  return run.finish(std::move(summary));
}

}  // namespace kvscope
