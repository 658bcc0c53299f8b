#include "core/selectors/calibration_rows.hpp"

#include <fmt/format.h>

#include "core/attention/exact_rows.hpp"
#include "core/base/error.hpp"

namespace kvscope {

std::vector<Index> full_attention_layers(const TraceSource& text, std::string_view method) {
  require_full_qkv(text, fmt::format("calibration of {}", method));
  const TraceInfo& info = text.info();
  if (static_cast<Index>(info.q_heads.size()) != info.n_q ||
      static_cast<Index>(info.kv_heads.size()) != info.n_kv) {
    throw ConfigError(
        "{}: {} holds {} of {} query heads, expected all: record without a head filter", method,
        text.where(), info.q_heads.size(), info.n_q);
  }
  std::vector<Index> layers;
  for (Index layer = 0; layer < info.n_layers; ++layer) {
    if (info.window_of(layer)) continue;
    if (!info.has_layer(layer)) {
      throw ConfigError(
          "{}: {} does not hold layer {}, expected all layers: record without --layers", method,
          text.where(), layer);
    }
    layers.push_back(layer);
  }
  if (layers.empty()) {
    throw ConfigError("{}: all layers of {} have a sliding window: there is nothing to learn",
                      method, text.where());
  }
  return layers;
}

void visit_weight_rows(const TraceSource& text, Index layer, Index kv_head,
                       std::span<const Index> positions, const WeightRowVisitor& visit) {
  if (positions.empty()) return;
  const TraceInfo& info = text.info();
  const TokenRange rows{positions.front(), positions.back() + 1};
  const KeyTable keys(text.read_k(layer, kv_head, {0, rows.end}).view());
  ScoreRows scratch;
  for (Index q_head = kv_head * info.group(); q_head < (kv_head + 1) * info.group(); ++q_head) {
    const Tensor<float> q = text.read_q(layer, q_head, rows);
    const RowSource source{q.view(), rows.begin, keys, info.score_rule(), std::nullopt};
    visit_score_rows(source, positions, scratch,
                     [&](Index index, std::span<double> scores, TokenRange) {
                       softmax_in_place(scores, info.sink_logit(layer, q_head));
                       visit(q_head, index, scores);
                     });
  }
}

}  // namespace kvscope
