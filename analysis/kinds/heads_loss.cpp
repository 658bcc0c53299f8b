#include "analysis/kinds/heads_loss.hpp"

#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"
#include "core/selectors/spec_lists.hpp"

namespace kvscope {

HeadLosses measure_head_losses(const TraceSource& trace, const TraceInfo& part,
                               const HeadsOptions& options, ThreadPool& pool,
                               const ProgressFn& progress, const std::stop_token& stop) {
  HeadLosses out;
  out.n_heads = part.q_heads.size();
  if (options.selector.empty()) return out;
  const std::vector<Budget> budgets = split_budgets({options.budget});
  if (budgets.size() != 1) {
    throw ConfigError("heads: budget: expected one, found {}: \"{}\"", budgets.size(),
                      options.budget);
  }
  PairPlan plan = plan_pairs(parse_methods({options.selector}, "selector"), budgets, options.phase,
                             trace.where(), "heads");
  out.pairs = std::move(plan.pairs);
  out.skipped = std::move(plan.skipped);

  ReplayOptions replay = options.replay(part.q_heads);
  replay.dense_layers = options.dense_layers;
  replay.n_sink = options.sink_tokens;
  const std::vector<LayerReplay> layers =
      replay_layers(trace, /*draft=*/nullptr, part.layers, out.pairs, replay, pool, progress, stop);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const LayerReplay& layer = layers[l];
    const std::size_t n_calls = layer.calls.size();
    const bool is_dense = layer.has_window || part.layers[l] < options.dense_layers;
    for (std::size_t h = 0; h < out.n_heads; ++h) {
      for (const PairReplay& pair : layer.pairs) {
        const std::span<const double> kept(pair.of(ReplayMetric::mass).data() + h * n_calls,
                                           n_calls);
        out.lost.push_back(is_dense ? kNan : 1.0 - mean(kept));
      }
    }
  }
  return out;
}

}  // namespace kvscope
