// Planning a sweep: which pairs, which items, and what decides the numbers.
#include <algorithm>

#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/number_formats.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/sweep/sweep.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/sim/draft_rows.hpp"

namespace kvscope {

namespace {

/// Intervals do not change any more long before this, and every row of the table draws as many.
constexpr Index kMostResamples = 10'000;

/// What no method of the same cost exceeds, and the oracle that divides its keys evenly. Of keys
/// alone: a method that is measured by what it reads may read less than all keys to choose.
void add_ceiling(SweepOptions& options) {
  const bool is_of_keys = std::ranges::any_of(options.match, [](const MatchTarget& target) {
    return target.quantity == MatchQuantity::density || target.quantity == MatchQuantity::keys;
  });
  if (!is_of_keys || !options.with_ceiling) return;
  for (const char* name : {"oracle-topk", "ceiling"}) {
    const bool is_there = std::ranges::any_of(
        options.selectors, [&](const MethodSpec& method) { return method.text() == name; });
    if (!is_there) options.selectors.emplace_back(name);
  }
}

/// The combinations that make sense; the others go to plan.skipped.
void make_pairs(SweepPlan& plan) {
  std::optional<std::string> without_draft;
  for (const SweepTrace& trace : plan.traces) {
    if (!trace.open_draft && !without_draft) without_draft = trace.name;
  }
  plan.skipped = plan.options.left_out;
  const std::vector<MatchTarget>& match = plan.options.match;
  for (const MatchTarget& target : match) {
    if (target.quantity == MatchQuantity::us && !plan.options.hardware)
      throw ConfigError(
          "match {}: expected a card whose microseconds are meant (--hardware NAME), found none",
          target.to_string());
  }
  if (!plan.options.replay.q_heads.empty() &&
      std::ranges::find(match, MatchQuantity::bytes, &MatchTarget::quantity) != match.end())
    throw ConfigError("match bytes: they are a layer's, expected all heads, found some (--heads)");
  PairPlan pairs =
      plan_pairs(plan.options.selectors, plan.options.budgets, {plan.options.replay.calls.phase},
                 without_draft, "sweep", match.size());
  plan.pairs = std::move(pairs.pairs);
  plan.options.replay.calls = whole_periods(plan.options.replay.calls, plan.pairs);
  for (const std::size_t target : pairs.targets) plan.targets.emplace_back(match[target]);
  plan.targets.resize(plan.pairs.size());
  plan.skipped.insert(plan.skipped.end(), pairs.skipped.begin(), pairs.skipped.end());
}

void check_layers(const TraceInfo& info, const std::string& name, const std::vector<Index>& layers,
                  const std::vector<Index>& heads) {
  try {
    for (Index layer : layers) info.layer_slot(layer);
    for (Index head : heads) info.q_slot(head);
  } catch (const ConfigError& error) {
    throw ConfigError("{}: {}", name, error.what());
  }
}

Json identity(const TraceInfo& info) {
  Json known = {{"uuid", info.uuid}, {"hash", info.content_hash}};
  NumberFormats::of(info).add_to(known);
  return known;
}

Json config_of(const SweepOptions& options) {
  const ReplayOptions& replay = options.replay;
  const auto selectors = mapped<std::string>(options.selectors, &MethodSpec::text);
  const auto budgets = mapped<std::string>(options.budgets, &Budget::to_string);
  Json config = {{"selectors", selectors},
                 {"budgets", budgets},
                 {"phase", std::string(enum_name(replay.calls.phase))},
                 {"chunk", replay.calls.chunk},
                 {"steps", replay.calls.steps},
                 {"drafts", replay.calls.drafts},
                 {"rows_per_chunk", or_null(replay.rows_per_chunk)},
                 {"dense_layers", or_null(replay.dense_layers)},
                 {"n_sink", replay.n_sink},
                 {"layers", options.layers},
                 {"heads", replay.q_heads},
                 {"resamples", options.n_resamples},
                 {"seed", options.seed}};
  if (replay.calls.period > 1) config["period"] = replay.calls.period;
  for (const MatchTarget& target : options.match) config["match"].push_back(target.to_string());
  if (options.hardware) config["hardware"] = hardware_json(*options.hardware);
  return config;
}

void make_items(SweepPlan& plan) {
  const bool is_matched = !plan.options.match.empty();  // over all layers together
  for (std::size_t t = 0; t < plan.infos.size(); ++t) {
    const std::size_t first = plan.items.size();
    for (std::size_t p = 0; is_matched && p < plan.pairs.size(); ++p)
      plan.items.push_back({{plan.infos[t].layers, p, first + p}, t});
    if (is_matched) continue;
    for (ReplayItem& item : replay_items(plan.infos[t].layers, plan.pairs)) {
      item.group += first;
      plan.items.push_back({std::move(item), t});
    }
  }
}

}  // namespace

SweepPlan plan_sweep(std::vector<SweepTrace> traces, SweepOptions options) {
  SweepPlan plan;
  if (traces.empty()) throw ConfigError("sweep: expected at least one trace");
  if (options.n_resamples < 0 || options.seed < 0) {
    throw ConfigError("sweep: expected resamples and seed of at least 0, found {} and {}",
                      options.n_resamples, options.seed);
  }
  if (options.n_resamples > kMostResamples) {
    throw ConfigError("sweep: expected at most {} resamples, found {}", kMostResamples,
                      options.n_resamples);
  }
  std::ranges::sort(options.layers);
  std::ranges::sort(options.replay.q_heads);
  require_unique(options.layers, "layer", "sweep");
  require_unique(options.replay.q_heads, "head", "sweep");
  add_ceiling(options);
  plan.traces = std::move(traces);
  plan.options = std::move(options);
  make_pairs(plan);

  plan.config = config_of(plan.options);
  std::vector<std::string> names;
  for (const SweepTrace& trace : plan.traces) {
    names.push_back(trace.name);
    const auto source = trace.open();
    const TraceInfo& info = source->info();
    check_layers(info, trace.name, plan.options.layers, plan.options.replay.q_heads);
    check_artifacts(plan.options.selectors, info);
    SweepTraceInfo known{
        .name = trace.name,
        .uuid = info.uuid,
        .hash = info.content_hash,
        .layers = plan.options.layers.empty() ? info.layers : plan.options.layers,
        .q_heads = plan.options.replay.q_heads.empty() ? info.q_heads : plan.options.replay.q_heads,
        .calls = plan_calls(info, plan.options.replay.calls, trace.name),
        .has_sinks = !info.sink_logits.empty()};
    const bool has_full_layer =
        std::ranges::any_of(known.layers, [&](Index layer) { return !info.window_of(layer); });
    if (!plan.options.match.empty() && !has_full_layer) {
      throw ConfigError(
          "sweep: {}: expected a layer without a sliding window, whose cost can be matched",
          trace.name);
    }
    plan.infos.push_back(std::move(known));
    plan.described.push_back(info);
    Json known_trace = {{"name", trace.name}};
    known_trace.update(identity(info));
    plan.config["traces"].push_back(std::move(known_trace));
    if (!trace.open_draft) continue;
    const auto draft = trace.open_draft();
    require_same_tokens(*source, *draft);
    plan.config["draft_traces"].push_back(identity(draft->info()));
  }
  if (const TraceSource* text = plan.options.replay.calibration)
    plan.config["calibration_trace"] = identity(text->info());
  add_artifacts(plan.options.selectors, plan.config);
  require_unique(names, "trace", "sweep");
  plan.config_hash = config_checksum(plan.config);
  make_items(plan);
  return plan;
}

}  // namespace kvscope
