#include "gui/model/map/attention_row.hpp"

#include <cmath>

#include "analysis/base/analysis.hpp"
#include "core/attention/score_rows.hpp"
#include "core/attention/visible.hpp"
#include "core/base/error.hpp"

namespace kvscope::gui {

AttentionRow attention_row(const TraceSource& trace, Index layer, Index q_head, Index query) {
  const TraceInfo& info = trace.info();
  info.layer_slot(layer);
  info.q_slot(q_head);
  if (query < info.rows.begin || query >= info.rows.end) {
    throw ConfigError("{}: the query at position {} was not recorded, expected {} to {}",
                      trace.where(), query, info.rows.begin, info.rows.end - 1);
  }
  AttentionRow row{.query = query, .visible = visible_keys(query, info.window_of(layer))};
  const Tensor<float> q = trace.read_q(layer, q_head, {query, query + 1});
  const Tensor<float> k = trace.read_k(layer, q_head / info.group(layer), row.visible);
  // One row: dot products as they stand, without the panels that many rows pay for.
  const Index d = info.shape(layer).d_head;
  std::vector<double> scores(static_cast<std::size_t>(row.visible.size()));
  for (Index i = 0; i < row.visible.size(); ++i) {
    const float* key = k.data() + i * d;
    double dot = 0.0;
    for (Index c = 0; c < d; ++c)
      dot += static_cast<double>(q.data()[c]) * static_cast<double>(key[c]);
    scores[static_cast<std::size_t>(i)] = info.shape(layer).score_rule().of(dot);
  }
  const auto sink_logit = info.sink_logit(layer, q_head);
  const double lse = softmax_in_place(scores, sink_logit);
  if (sink_logit) row.sink_weight = std::exp(*sink_logit - lse);
  row.probs.assign(scores.begin(), scores.end());
  return row;
}

}  // namespace kvscope::gui
