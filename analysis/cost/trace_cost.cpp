#include "analysis/cost/trace_cost.hpp"

#include <algorithm>

#include "analysis/base/measure_layers.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

void WorkCollector::add(const SelectedCall& selected) {
  const LayerShape shape = info_.shape(selected.layer);
  const LayerWork work = measured_work(selected.selection, selected.cost, info_.n_q, shape.n_kv,
                                       shape.d_head, selected.tokens, selected.page_size);
  put(selected.pair, selected.layer, selected.call, work);
}

void WorkCollector::put(std::size_t pair, Index layer, std::size_t call, const LayerWork& work) {
  const std::scoped_lock lock(mutex_);
  works_[{pair, layer}][call] = work;
}

std::vector<LayerWork> WorkCollector::calls(std::size_t pair, Index layer) const {
  std::vector<LayerWork> out;
  const std::scoped_lock lock(mutex_);
  const auto found = works_.find({pair, layer});
  if (found == works_.end()) return out;
  for (const auto& [call, work] : found->second) out.push_back(work);
  const auto n_tok = [](const LayerWork& work) { return work.shape.n_tok; };
  const double most = out.empty() ? 0.0 : n_tok(*std::ranges::max_element(out, {}, n_tok));
  std::erase_if(out, [&](const LayerWork& work) { return n_tok(work) < most; });
  return out;
}

Json trace_cost_report(const TraceInfo& info, const std::vector<Index>& layers,
                       const std::vector<ReplayPair>& pairs, const WorkCollector& works,
                       Phase phase, const CostOptions& options) {
  Json rows = Json::array();
  Json lists = Json::array();
  const CostModel model = cost_model(info, options.weight_bits);
  std::vector<MethodWork> of_pairs;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    std::vector<AlikeLayers> calls;
    for (const Index layer : layers) calls.push_back({1.0, works.calls(p, layer)});
    of_pairs.push_back(method_work(pairs[p], layers, std::move(calls)));
    if (Json sizes = list_sizes(pairs[p], phase, of_pairs.back()); !sizes.is_null())
      lists.push_back(std::move(sizes));
  }
  const bool says_nothing =
      std::ranges::all_of(of_pairs, [](const MethodWork& one) { return !one.too_short.empty(); });
  if (says_nothing && !options.contexts.empty() && !of_pairs.empty())
    throw ConfigError("cost: " + of_pairs.front().too_short);
  for (const HardwareProfile& hardware : options.hardware) {
    for (const double batch : options.batches) {
      const CostSetting setting{batch, options.kv_bytes.value_or(usual_kv_bytes(hardware)),
                                std::nullopt};
      for (std::size_t c = 0; c <= options.contexts.size(); ++c) {
        const auto context = c > 0 ? std::optional(options.contexts[c - 1]) : std::nullopt;
        for (std::size_t p = 0; p < pairs.size(); ++p) {
          const MethodWork& work = of_pairs[p];
          if (context && !work.too_short.empty()) continue;
          const CallCost cost = call_cost(model, work, context, hardware, setting);
          rows.push_back(
              cost_row(model, hardware, setting, pairs[p], phase, work, cost, context.has_value()));
          rows.back()["note"] = work.too_short;
        }
      }
    }
  }
  return {{"kind", "cost"},
          {"model", info.model_name},
          {"n_q", info.n_q},
          {"n_kv", info.n_kv},
          {"d_head", info.d_head},
          {"n_layers", info.n_layers},
          {"measured_layers", layers},
          {"weight_bits", options.weight_bits},
          {"lists", lists},
          {"rows", rows}};
}

}  // namespace kvscope
