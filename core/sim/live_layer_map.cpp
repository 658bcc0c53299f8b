#include "core/sim/live_layer_map.hpp"

#include <algorithm>

#include "core/attention/layer_divergence.hpp"
#include "core/attention/monotone_map.hpp"
#include "core/base/error.hpp"
#include "core/sim/draft_rows.hpp"

namespace kvscope {

namespace {

constexpr Index kFirstRow = 16;  // shorter rows say little

/// Head-averaged rows of chosen positions, per layer.
class SampledRows final : public Observer {
 public:
  SampledRows(const Transformer& model, std::vector<Index> positions)
      : config_(model.config()),
        sink_logits_(model.sink_logits()),
        positions_(std::move(positions)),
        rows_(static_cast<std::size_t>(config_.n_layers)) {}
  bool wants(Index) const override { return true; }
  void on_attention(const AttentionEvent& event) override {
    const auto at = static_cast<std::size_t>(event.layer);
    std::vector<KeyTable> tables;
    const Index n_kv = event.k_cache.dim(0);
    for (Index head = 0; head < n_kv; ++head) tables.emplace_back(event.k_cache.sub(head));
    for (const Index pos : positions_) {
      if (pos < event.pos_begin || pos >= event.pos_begin + event.n_tok) continue;
      Tensor<double> sums(Shape{1, event.k_cache.dim(1)});
      for (Index head = 0; head < config_.n_q; ++head) {
        add_attention_rows(event.q.sub(head).row(pos - event.pos_begin), event.score_rule(),
                           /*n_rows=*/1, pos,
                           tables[static_cast<std::size_t>(head * n_kv / config_.n_q)],
                           config_.window[at], 1.0 / static_cast<double>(config_.n_q),
                           sink_logit_of(sink_logits_, config_, event.layer, head), scratch_, sums);
      }
      const auto row = sums.flat().first(static_cast<std::size_t>(pos + 1));
      if (!sink_logits_.empty()) normalise_row(row);  // heads count by what they give to keys
      rows_[at].emplace_back(row.begin(), row.end());
    }
  }
  /// The rows of one of the positions, [n_layers][pos + 1].
  std::vector<std::span<const double>> of_layers(std::size_t position) const {
    std::vector<std::span<const double>> out;
    for (const auto& layer : rows_) out.emplace_back(layer[position]);
    return out;
  }

 private:
  const ModelConfig& config_;
  std::vector<float> sink_logits_;
  std::vector<Index> positions_;
  std::vector<std::vector<std::vector<double>>> rows_;  // [n_layers][n_positions][pos + 1]
  ScoreRows scratch_;
};

SampledRows sample(const Transformer& model, std::span<const TokenId> text,
                   const std::vector<Index>& positions, ThreadPool& pool) {
  constexpr std::size_t kChunk = 512;
  const auto cache = model.make_store(static_cast<Index>(text.size()));
  SampledRows rows(model, positions);
  ForwardOptions options;
  options.observer = &rows;
  for (std::size_t at = 0; at < text.size(); at += kChunk) {
    model.forward(text.subspan(at, std::min(kChunk, text.size() - at)), *cache, pool, options);
  }
  return rows;
}

}  // namespace

Tensor<double> measure_layer_divergences(const Transformer& verifier, const Transformer& draft,
                                         std::span<const TokenId> text, Index stride,
                                         ThreadPool& pool) {
  const auto n = static_cast<Index>(text.size());
  if (n < 2 * kFirstRow || stride < 1) {
    throw ConfigError(
        "layer map: expected a calibration text of at least {} tokens and a stride of at least 1, "
        "found {} and {}",
        2 * kFirstRow, n, stride);
  }
  std::vector<Index> positions;
  for (Index pos = kFirstRow; pos < n; pos += stride) positions.push_back(pos);
  const SampledRows of_verifier = sample(verifier, text, positions, pool);
  const SampledRows of_draft = sample(draft, text, positions, pool);
  const auto n_rows = static_cast<Index>(positions.size());
  Tensor<double> of_row(Shape{n_rows, draft.config().n_layers, verifier.config().n_layers});
  pool.parallel_for(n_rows, [&](Index r, int) {
    const auto at = static_cast<std::size_t>(r);
    layer_divergences(RowLogs(of_verifier.of_layers(at), Smoothing::when_zero, kSmoothingEps),
                      RowLogs(of_draft.of_layers(at), Smoothing::when_zero, kSmoothingEps),
                      of_row.sub(r));
  });
  Tensor<double> mean(Shape{of_row.dim(1), of_row.dim(2)});
  for (Index r = 0; r < n_rows; ++r) {
    const auto row = of_row.flat().subspan(static_cast<std::size_t>(r * mean.count()),
                                           static_cast<std::size_t>(mean.count()));
    std::transform(row.begin(), row.end(), mean.data(), mean.data(), std::plus<>());
  }
  for (double& value : mean.flat()) value /= static_cast<double>(n_rows);
  return mean;
}

std::vector<Index> measure_layer_map(const Transformer& verifier, const Transformer& draft,
                                     std::span<const TokenId> text, Index stride,
                                     ThreadPool& pool) {
  return monotone_layer_map(measure_layer_divergences(verifier, draft, text, stride, pool).view())
      .draft_of;
}

}  // namespace kvscope
