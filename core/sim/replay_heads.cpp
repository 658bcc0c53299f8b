#include "core/sim/replay_heads.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "core/base/evenly_spaced.hpp"
#include "core/selectors/cost_units.hpp"

namespace kvscope {

namespace {

/// One KV head and the query heads that read it, as a recording of a model with no others.
class OneKvHead final : public TraceSource {
 public:
  OneKvHead(const TraceSource& whole, Index kv_head)
      : whole_(whole), info_(whole.info()), kv_head_(kv_head), first_q_(kv_head * info_.group()) {
    const Index group = info_.group(), n_q = info_.n_q;
    info_.n_q = group;
    info_.n_kv = 1;
    info_.kv_heads = {0};
    info_.q_heads = all_in(0, group);
    if (info_.sink_logits.empty()) return;
    std::vector<float> sinks;
    for (Index layer = 0; layer < info_.n_layers; ++layer) {
      const auto first = whole.info().sink_logits.begin() + layer * n_q + first_q_;
      sinks.insert(sinks.end(), first, first + group);
    }
    info_.sink_logits = std::move(sinks);
  }
  const TraceInfo& info() const override { return info_; }
  std::string where() const override { return whole_.where(); }
  std::span<const TokenId> tokens() const override { return whole_.tokens(); }
  std::vector<std::string> token_bytes() const override { return whole_.token_bytes(); }
  Tensor<float> read(TraceTensor what, Index layer, Index head, TokenRange range) const override {
    return whole_.read(what, layer, is_of_queries(what) ? first_q_ + head : kv_head_, range);
  }

 private:
  const TraceSource& whole_;
  TraceInfo info_;
  Index kv_head_;
  Index first_q_;
};

/// What a method did for all heads of a layer, by layer, call and pair.
using Costs = std::map<std::tuple<Index, std::size_t, std::size_t>, SelectCost>;

/// The measured heads of one KV head, counted from its first query head.
std::vector<Index> heads_of(const std::vector<Index>& q_heads, Index kv_head, Index group) {
  std::vector<Index> heads;
  for (const Index head : q_heads) {
    if (head / group == kv_head) heads.push_back(head - kv_head * group);
  }
  return heads;
}

/// Puts a KV head's rows [its heads, n] behind those of the heads before.
void append(std::vector<double>& to, const std::vector<double>& rows) {
  to.insert(to.end(), rows.begin(), rows.end());
}

void add_heads(LayerReplay& whole, const LayerReplay& part, Index first_q) {
  for (const Index head : part.q_heads) whole.q_heads.push_back(first_q + head);
  for (std::size_t p = 0; p < whole.pairs.size(); ++p) {
    PairReplay& to = whole.pairs[p];
    const PairReplay& from = part.pairs[p];
    to.is_dense = to.is_dense && from.is_dense;
    for (std::size_t m = 0; m < to.values.size(); ++m) append(to.values[m], from.values[m]);
    append(to.mass_rows, from.mass_rows);
    for (std::size_t bin = 0; bin < to.ages.size(); ++bin) to.ages[bin] += from.ages[bin];
  }
}

/// What all heads together cost is divided among them evenly, as replay does.
void file_costs(LayerReplay& layer, const TraceInfo& info, const Costs& costs) {
  const auto n_q = static_cast<double>(info.n_q), d_head = static_cast<double>(info.d_head);
  const std::size_t n_calls = layer.calls.size();
  for (std::size_t p = 0; p < layer.pairs.size(); ++p) {
    PairReplay& pair = layer.pairs[p];
    for (std::size_t at = 0; at < layer.q_heads.size() * n_calls; ++at) {
      const SelectCost& cost = costs.at({layer.layer, at % n_calls, p});
      const double kv_bytes =
          2.0 * pair.of(ReplayMetric::union_keys)[at] * d_head * kBytesPerElement;
      pair.of(ReplayMetric::score_flops)[at] = cost.score_flops / n_q;
      pair.of(ReplayMetric::bytes)[at] =
          cost.score_bytes / n_q + kv_bytes / static_cast<double>(info.group());
      pair.of(ReplayMetric::metadata_bytes)[at] = cost.metadata_bytes / n_q;
    }
  }
}

}  // namespace

bool chooses_by_head(const std::vector<ReplayPair>& pairs) {
  return std::ranges::all_of(pairs, [](const ReplayPair& pair) {
    const SelectorCaps& caps = pair.selector.caps();
    return !caps.divides_budget && caps.owner != ListOwner::layer && !caps.cross_layer &&
           !caps.needs_calibration && caps.artifact_option.empty() && !caps.needs_draft &&
           !caps.needs_side && !caps.needs_all_heads &&
           std::ranges::none_of(pair.selector.stages(), [](const MethodSpec::Stage& stage) {
             return stage.method->is_own;
           });
  });
}

bool goes_by_head(const TraceInfo& info, const std::vector<ReplayPair>& pairs,
                  const ReplayOptions& options) {
  if (info.n_kv < 2 || options.on_row || options.on_selection || !chooses_by_head(pairs))
    return false;
  const double bytes =
      16.0 * static_cast<double>(info.n_kv * info.d_head) * static_cast<double>(info.n_tokens);
  if (bytes <= options.most_layer_bytes) return false;
  const std::vector<Index>& heads = options.q_heads.empty() ? info.q_heads : options.q_heads;
  for (Index kv_head = 0; kv_head < info.n_kv; ++kv_head) {
    if (heads_of(heads, kv_head, info.group()).empty())
      return false;  // its cost counts all the same
  }
  return true;
}

std::vector<LayerReplay> replay_by_head(const TraceSource& trace, const std::vector<Index>& layers,
                                        const std::vector<ReplayPair>& pairs,
                                        const ReplayOptions& options, ThreadPool& pool,
                                        const ProgressFn& progress, const std::stop_token& stop) {
  const TraceInfo& info = trace.info();
  const std::vector<Index>& heads = options.q_heads.empty() ? info.q_heads : options.q_heads;
  std::vector<LayerReplay> whole;
  Costs costs;
  for (Index kv_head = 0; kv_head < info.n_kv; ++kv_head) {
    const OneKvHead one(trace, kv_head);
    ReplayOptions of_head = options;
    of_head.most_layer_bytes = std::numeric_limits<double>::infinity();
    of_head.q_heads = heads_of(heads, kv_head, info.group());
    of_head.on_selection = [&](const SelectedCall& selected) {
      SelectCost& cost = costs[{selected.layer, selected.call, selected.pair}];
      cost = cost + selected.cost;
    };
    ProgressFn of_all;
    if (progress) {
      of_all = [&](const Progress& at) {
        progress({at.stage, kv_head * at.total + at.done, info.n_kv * at.total, at.unit});
      };
    }
    std::vector<LayerReplay> parts =
        replay_layers(one, nullptr, layers, pairs, of_head, pool, of_all, stop);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (kv_head == 0) {
        whole.push_back(std::move(parts[i]));
      } else {
        add_heads(whole[i], parts[i], kv_head * info.group());
      }
    }
  }
  for (LayerReplay& layer : whole) {
    if (!layer.has_window) file_costs(layer, info, costs);
  }
  return whole;
}

}  // namespace kvscope
