#include "analysis/sweep/match_replay.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/base/replay_means.hpp"
#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

/// Kept by rule: from this share on it is worth a word.
constexpr double kMostlyForced = 0.5;

}  // namespace

std::vector<LayerReplay> replay_side_by_side(const MatchScene& scene, const ReplayPair& pair,
                                             const ReplayOptions& options,
                                             const ProgressFn& progress) {
  const SelectorCaps& caps = pair.selector.caps();
  if (caps.cross_layer || caps.uses_pool || caps.needs_draft || caps.needs_calibration ||
      scene.layers.size() == 1) {
    return replay_layers(scene.trace, scene.draft, scene.layers, {pair}, options, scene.pool,
                         progress, scene.stop);
  }
  std::vector<LayerReplay> layers(scene.layers.size());
  scene.pool.parallel_for(static_cast<Index>(layers.size()), [&](Index i, int) {
    ThreadPool own(/*n_threads=*/1);
    const auto at = static_cast<std::size_t>(i);
    layers[at] = std::move(replay_layers(scene.trace, scene.draft, {scene.layers[at]}, {pair},
                                         options, own, {}, scene.stop)
                               .front());
  });
  return layers;
}

double mean_visible(const LayerReplay& layer) {
  if (layer.has_window)
    return layer.pairs.empty() ? kNan : mean_of(layer, layer.pairs.front(), ReplayMetric::kept);
  std::vector<double> by_call;
  for (std::size_t c = 0; c < layer.calls.size(); ++c) {
    const TokenRange call = layer.calls[c];
    double sum = 0.0;
    const std::vector<Index> rows =
        measured_rows(call.size(), layer.row_begin[c + 1] - layer.row_begin[c]);
    for (const Index row : rows) sum += static_cast<double>(call.begin + row + 1);
    by_call.push_back(sum / static_cast<double>(rows.size()));
  }
  return weighted_mean(by_call, row_weights(layer));
}

double measured_cost(std::span<const LayerReplay> layers, std::size_t slot,
                     MatchQuantity quantity) {
  Mean keys;
  Mean visible;
  Mean bytes;
  for (const LayerReplay& layer : layers) {
    if (layer.has_window) continue;
    keys.add(mean_of(layer, layer.pairs[slot], ReplayMetric::kept));
    visible.add(mean_visible(layer));
    bytes.add(mean_of(layer, layer.pairs[slot], ReplayMetric::bytes) *
              static_cast<double>(layer.q_heads.size()));
  }
  if (quantity == MatchQuantity::us) return kNan;
  return quantity == MatchQuantity::keys    ? keys.value()
         : quantity == MatchQuantity::bytes ? bytes.value()
                                            : keys.value() / visible.value();
}

CostedReplay replay_and_cost(const MatchScene& scene, const ReplayPair& pair,
                             const ReplayOptions& options, MatchQuantity quantity,
                             const ProgressFn& progress) {
  CostedReplay out;
  if (quantity != MatchQuantity::us) {
    out.layers = replay_side_by_side(scene, pair, options, progress);
    out.cost = measured_cost(out.layers, 0, quantity);
    return out;
  }
  if (scene.hardware == nullptr)
    throw ConfigError("match us: expected a card whose microseconds are meant, found none");
  const TraceInfo& info = scene.trace.info();
  WorkCollector works(info);
  ReplayOptions listening = options;
  listening.on_selection = [&](const SelectedCall& selected) {
    works.add(selected);
    if (options.on_selection) options.on_selection(selected);
  };
  out.layers = replay_side_by_side(scene, pair, listening, progress);
  const CostSetting setting{1.0, usual_kv_bytes(*scene.hardware), std::nullopt};
  Mean us;
  for (const LayerReplay& layer : out.layers) {
    const std::vector<LayerWork> calls = works.calls(0, layer.layer);
    if (!calls.empty()) us.add(1e6 * mean_cost(calls, *scene.hardware, setting).stages.total());
  }
  out.cost = us.value();
  return out;
}

MatchedPair match_pair(const MatchScene& scene, const MethodSpec& method,
                       const MatchTarget& target) {
  ReplayOptions options = scene.options;
  options.only_costs = true;
  options.on_row = {};
  MatchContext context;
  for (const TokenRange& call : plan_calls(scene.trace.info(), options.calls, scene.trace.where()))
    context.n_keys = std::max(context.n_keys, call.end);
  const bool has_setting = BudgetSetting::of(method, /*by_share=*/true, context.n_keys).has_value();
  if (has_setting) {  // what the trace itself cannot do is no fault of the method's
    const std::vector<LayerReplay> dense =
        replay_side_by_side(scene, {MethodSpec("full"), std::nullopt}, options);
    context.n_visible = measured_cost(dense, 0, MatchQuantity::keys);
  }
  MatchedMethod matched = match_method(method, target, context, [&](const MethodAtSetting& tried) {
    if (scene.stop.stop_requested()) throw Interrupted("match: stopped on request");
    return replay_and_cost(scene, {tried.selector, tried.budget}, options, target.quantity).cost;
  });
  return {{std::move(matched.method.selector), matched.method.budget}, std::move(matched.labels)};
}

std::string match_reasons(std::span<const LayerReplay> layers, std::size_t slot) {
  Index n_dense = 0;
  Index n_layers = 0;
  Mean forced;
  for (const LayerReplay& layer : layers) {
    if (layer.has_window) continue;
    ++n_layers;
    n_dense += layer.pairs[slot].is_dense ? 1 : 0;
    if (!layer.pairs[slot].is_dense)
      forced.add(mean_of(layer, layer.pairs[slot], ReplayMetric::forced_share));
  }
  std::string text;
  if (n_dense > 0) text += fmt::format("; {} of {} layers stay dense", n_dense, n_layers);
  if (forced.n() > 0 && forced.value() > kMostlyForced)
    text += fmt::format("; {:.0f} % of its keys are kept by rule", 100.0 * forced.value());
  return text;
}

}  // namespace kvscope
