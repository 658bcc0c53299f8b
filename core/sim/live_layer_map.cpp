#include "core/sim/live_layer_map.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

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
        sinks_(model.sinks()),
        positions_(std::move(positions)),
        rows_(static_cast<std::size_t>(config_.n_layers)) {}
  bool wants(Index) const override { return true; }
  void on_attention(const AttentionEvent& event) override {
    const auto at = static_cast<std::size_t>(event.layer);
    std::vector<KeyTable> tables;
    for (Index head = 0; head < config_.n_kv; ++head) tables.emplace_back(event.k_cache.sub(head));
    for (const Index pos : positions_) {
      if (pos < event.pos_begin || pos >= event.pos_begin + event.n_tok) continue;
      Tensor<double> sums(Shape{1, event.k_cache.dim(1)});
      for (Index head = 0; head < config_.n_q; ++head) {
        add_attention_rows(widened(event.q.sub(head).row(pos - event.pos_begin),
                                   static_cast<double>(event.score_scale)),
                           /*n_rows=*/1, pos,
                           tables[static_cast<std::size_t>(head / config_.group())],
                           config_.window[at], 1.0 / static_cast<double>(config_.n_q),
                           sink_of(sinks_, config_, event.layer, head), scratch_, sums);
      }
      rows_[at].emplace_back(sums.data(), sums.data() + pos + 1);
    }
  }
  /// [n_layers][n_positions][pos + 1]
  const std::vector<std::vector<std::vector<double>>>& rows() const { return rows_; }

 private:
  const ModelConfig& config_;
  std::vector<float> sinks_;
  std::vector<Index> positions_;
  std::vector<std::vector<std::vector<double>>> rows_;
  ScoreRows scratch_;
};

/// KL(p || q) in nats; q is kept above 0, as float rows of long contexts may hold zeros.
double divergence(const std::vector<double>& p, const std::vector<double>& q) {
  constexpr double kFloor = 1e-300;
  double sum = 0.0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0.0) sum += p[i] * std::log(p[i] / std::max(q[i], kFloor));
  }
  return std::max(sum, 0.0);
}

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

std::vector<Index> measure_layer_map(const Transformer& verifier, const Transformer& draft,
                                     std::span<const TokenId> text, Index stride,
                                     ThreadPool& pool) {
  const auto n = static_cast<Index>(text.size());
  if (n < 2 * kFirstRow || stride < 1) {
    throw ConfigError(fmt::format(
        "layer map: expected a calibration text of at least {} tokens and a stride of at least 1, "
        "found {} and {}",
        2 * kFirstRow, n, stride));
  }
  std::vector<Index> positions;
  for (Index pos = kFirstRow; pos < n; pos += stride) positions.push_back(pos);
  const SampledRows of_verifier = sample(verifier, text, positions, pool);
  const SampledRows of_draft = sample(draft, text, positions, pool);
  Tensor<double> cost(Shape{draft.config().n_layers, verifier.config().n_layers});
  pool.parallel_for(cost.count(), [&](Index index, int) {
    const Index i = index / cost.dim(1);
    const Index j = index % cost.dim(1);
    const auto& p = of_verifier.rows()[static_cast<std::size_t>(j)];
    const auto& q = of_draft.rows()[static_cast<std::size_t>(i)];
    double sum = 0.0;
    for (std::size_t r = 0; r < p.size(); ++r) sum += divergence(p[r], q[r]);
    cost(i, j) = sum / static_cast<double>(p.size());
  });
  return monotone_layer_map(cost.view()).draft_of;
}

std::string layer_map_text(std::span<const Index> draft_of) {
  return fmt::format("{}", fmt::join(draft_of, "/"));
}

}  // namespace kvscope
