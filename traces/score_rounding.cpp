#include "traces/score_rounding.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/attention/key_kernels.hpp"
#include "core/attention/visible.hpp"
#include "core/model/kv_store.hpp"

namespace kvscope {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<float> rounded(std::span<const float> row, DType dtype) {
  std::vector<std::byte> stored(row.size() * size_of(dtype));
  std::vector<float> out(row.size());
  from_float(row.data(), dtype, stored.data(), row.size());
  to_float(dtype, stored.data(), out.data(), out.size());
  return out;
}

/// Of the recorded query heads that read this KV head.
double moved_in_head(const AttentionEvent& event, const TraceInfo& info, DType dtype,
                     Index kv_head) {
  const TensorView<const float> keys = event.k_cache.sub(kv_head);
  auto stored = Tensor<float>::uninitialized({keys.dim(0), keys.dim(1)});
  for (Index i = 0; i < keys.dim(0); ++i)
    std::ranges::copy(rounded(keys.row(i), dtype), stored.view().row(i).begin());
  std::optional<Index> window;
  if (!info.window.empty()) window = info.window[static_cast<std::size_t>(event.layer)];
  double most = 0.0;
  std::vector<double> exact, moved;
  for (const Index q_head : info.q_heads) {
    if (q_head / info.group() != kv_head) continue;
    for (const Index row : {event.n_tok / 2, event.n_tok - 1}) {
      const Index pos = event.pos_begin + row;
      const TokenRange seen{first_visible(pos, window), pos + 1};
      exact.resize(static_cast<std::size_t>(seen.size()));
      moved.resize(exact.size());
      const std::span<const float> q = event.q.sub(q_head).row(row);
      const std::vector<float> stored_q = rounded(q, dtype);
      key_dots(std::vector<double>(q.begin(), q.end()), 1, keys.range(0, seen.begin, seen.end),
               exact.data(), seen.size());
      key_dots(std::vector<double>(stored_q.begin(), stored_q.end()), 1,
               stored.view().range(0, seen.begin, seen.end), moved.data(), seen.size());
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const double change =
            std::abs(event.score_rule().of(moved[i]) - event.score_rule().of(exact[i]));
        most = std::max(most, std::isnan(change) ? kInfinity : change);
      }
    }
  }
  return most;
}

/// Measures both types in every layer.
class Probe final : public Observer {
 public:
  Probe(const TraceInfo& info, ThreadPool& pool) : info_(info), pool_(pool) {}
  bool wants(Index layer) const override { return info_.has_layer(layer); }
  void on_attention(const AttentionEvent& event) override {
    found.moved_f16 = std::max(found.moved_f16, moved_scores(event, info_, DType::f16, pool_));
    found.moved_bf16 = std::max(found.moved_bf16, moved_scores(event, info_, DType::bf16, pool_));
    for (const TensorView<const float>& rows : {event.q, event.k, event.v}) {
      for (Index head = 0; head < rows.dim(0); ++head) {
        for (Index i = 0; i < rows.dim(1); ++i) {
          for (const float x : rows.sub(head).row(i)) largest = std::max(largest, std::abs(x));
        }
      }
    }
  }
  ChosenDType found;
  float largest = 0.0F;

 private:
  const TraceInfo& info_;
  ThreadPool& pool_;
};

}  // namespace

double moved_scores(const AttentionEvent& event, const TraceInfo& info, DType dtype,
                    ThreadPool& pool) {
  std::vector<double> of_heads(info.kv_heads.size(), 0.0);
  pool.parallel_for(static_cast<Index>(of_heads.size()), [&](Index i, int) {
    const auto slot = static_cast<std::size_t>(i);
    of_heads[slot] = moved_in_head(event, info, dtype, info.kv_heads[slot]);
  });
  return of_heads.empty() ? 0.0 : std::ranges::max(of_heads);
}

ChosenDType choose_dtype(const Transformer& model, std::span<const TokenId> prompt,
                         const TraceInfo& info, ThreadPool& pool) {
  constexpr float kMostInF16 = 65504.0F / 16.0F;
  const auto ids = prompt.first(std::min(prompt.size(), static_cast<std::size_t>(info.chunk)));
  const std::unique_ptr<KvStore> store = model.make_store(static_cast<Index>(ids.size()));
  Probe probe(info, pool);
  ForwardOptions options;
  options.logits = Logits::none;
  options.observer = &probe;
  model.forward(ids, *store, pool, options);
  ChosenDType chosen = probe.found;
  if (chosen.moved_f16 <= kMostMoved && probe.largest <= kMostInF16)
    chosen.dtype = DType::f16;
  else if (chosen.moved_bf16 <= kMostMoved)
    chosen.dtype = DType::bf16;
  return chosen;
}

}  // namespace kvscope
