#include "analysis/base/mean_rows.hpp"

#include <algorithm>

#include "core/attention/layer_divergence.hpp"

namespace kvscope {

void head_mean_rows(const TraceSource& trace, Index layer, std::span<const Index> positions,
                    ScoreRowLoop& loop, TensorView<double> out) {
  const TraceInfo& info = trace.info();
  if (positions.empty()) return;
  const TokenRange seen{0, *std::max_element(positions.begin(), positions.end()) + 1};
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto row = out.row(static_cast<Index>(i));
    std::fill(row.begin(), row.begin() + positions[i] + 1, 0.0);
  }
  // heads one after another, so that the order of the sum does not depend on the threads
  const double share = 1.0 / static_cast<double>(info.q_heads.size());
  for (Index kv_head : info.kv_heads_of(layer)) {
    const Tensor<float> k = trace.read_k(layer, kv_head, seen);
    const KeyTable keys(k.view());
    for (Index q_head : info.q_heads) {
      if (q_head / info.group(layer) != kv_head) continue;
      loop.run(trace, layer, q_head, positions, keys,
               [&](Index i, std::span<double> scores, TokenRange visible) {
                 softmax_in_place(scores, info.sink_logit(layer, q_head));
                 const auto row =
                     out.row(i).subspan(static_cast<std::size_t>(visible.begin), scores.size());
                 add_scaled(scores, share, row);
               });
    }
  }
  if (info.layer_sink_logits(layer).empty()) return;
  // Heads count by what they give to keys; the mean is a distribution over keys again.
  for (std::size_t i = 0; i < positions.size(); ++i)
    normalise_row(out.row(static_cast<Index>(i)).first(static_cast<std::size_t>(positions[i] + 1)));
}

void drop_first_key(std::span<double> row) {
  if (row.empty()) return;
  row[0] = 0.0;
  normalise_row(row);
}

}  // namespace kvscope
