#include "traces/score_rounding.hpp"

#include <algorithm>
#include <cmath>

#include "core/model/kv_store.hpp"
#include "traces/verify_rows.hpp"

namespace kvscope {

namespace {

double norm_of(std::span<const float> row) {
  double sum = 0.0;
  for (const float x : row) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

/// Measures both types in every layer.
class Probe final : public Observer {
 public:
  Probe(const TraceInfo& info, ThreadPool& pool)
      : f16(info, DType::f16), bf16(info, DType::bf16), info_(info), pool_(pool) {}
  bool wants(Index layer) const override { return info_.has_layer(layer); }
  void on_attention(const AttentionEvent& event) override {
    f16.add(event, pool_);
    bf16.add(event, pool_);
    for (Index head = 0; head < event.v.dim(0); ++head) {
      for (Index row = 0; row < event.n_tok; ++row)
        largest_value = std::max(largest_value, norm_of(event.v.sub(head).row(row)));
    }
  }
  ScoreRounding f16, bf16;
  double largest_value = 0.0;

 private:
  const TraceInfo& info_;
  ThreadPool& pool_;
};

}  // namespace

ScoreRounding::ScoreRounding(const TraceInfo& info, DType dtype)
    : info_(info),
      dtype_(dtype),
      by_layer_(info.layers.size(), 0.0F),
      keys_(info.layers.size() * static_cast<std::size_t>(info.n_q)) {}

double ScoreRounding::most() const {
  return by_layer_.empty() ? 0.0 : static_cast<double>(std::ranges::max(by_layer_));
}

/// Of one row after the other, in memory of its own.
class ScoreRounding::Rounded {
 public:
  explicit Rounded(DType dtype) : dtype_(dtype) {}
  Norms operator()(std::span<const float> row) {
    bytes_.resize(row.size() * size_of(dtype_));
    stored_.resize(row.size());
    from_float(row.data(), dtype_, bytes_.data(), row.size());
    to_float(dtype_, bytes_.data(), stored_.data(), row.size());
    double exact = 0.0, stored = 0.0, error = 0.0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto x = static_cast<double>(row[i]);
      const auto y = static_cast<double>(stored_[i]);
      exact += x * x;
      stored += y * y;
      error += (y - x) * (y - x);
    }
    return {std::sqrt(std::max(exact, stored)), std::sqrt(error)};
  }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
  std::vector<float> stored_;
};

template <class NormsOf>
void ScoreRounding::add_call(Index layer, TokenRange call, TensorView<const float> q,
                             TensorView<const float> k, ThreadPool& pool, const NormsOf& first) {
  const auto slot = static_cast<std::size_t>(info_.layer_slot(layer));
  const std::vector<Index> kv_heads = info_.kv_heads_of(layer);
  const std::size_t n_kv = kv_heads.size();
  const TokenRange rows{std::clamp(info_.rows.begin, call.begin, call.end) - call.begin,
                        std::clamp(info_.rows.end, call.begin, call.end) - call.begin};
  std::vector<double> moved(n_kv, 0.0);
  std::vector<double> longest(n_kv, 0.0);
  pool.parallel_for(static_cast<Index>(n_kv), [&](Index i, int) {
    const auto kv = static_cast<std::size_t>(i);
    NormsOf norms_of = first;
    Norms& keys = keys_[slot * static_cast<std::size_t>(info_.n_q) + kv];
    for (Index row = 0; row < call.size(); ++row) {
      const Norms key = norms_of(k.sub(kv_heads[kv]).row(row));
      keys.row = std::max(keys.row, key.row);
      keys.error = std::max(keys.error, key.error);
    }
    longest[kv] = keys.row;
    for (const Index q_head : info_.q_heads) {
      if (q_head / info_.group(layer) != kv_heads[kv]) continue;
      for (Index row = rows.begin; row < rows.end; ++row) {
        const Norms query = norms_of(q.sub(q_head).row(row));
        longest[kv] = std::max(longest[kv], query.row);
        moved[kv] = std::max(moved[kv], query.row * keys.error + query.error * keys.row);
      }
    }
  });
  for (std::size_t kv = 0; kv < n_kv; ++kv) {
    const double nats = std::abs(static_cast<double>(info_.shape(layer).score_scale)) * moved[kv];
    by_layer_[slot] = std::max(by_layer_[slot], static_cast<float>(nats));
    largest_norm_ = std::max(largest_norm_, longest[kv]);
  }
}

void ScoreRounding::add(const AttentionEvent& event, ThreadPool& pool) {
  add_call(event.layer, {event.pos_begin, event.pos_begin + event.n_tok}, event.q, event.k, pool,
           Rounded(dtype_));
}

void ScoreRounding::add(const RowsEvent& event, ThreadPool& pool) {
  Tensor<float> q_storage, k_storage;
  const double u = unit_roundoff(dtype_);
  const auto norms = [u](std::span<const float> row) {
    const double norm = norm_of(row);
    return Norms{norm * (1.0 + u), norm * u};
  };
  add_call(event.layer, {event.pos_begin, event.pos_begin + event.n_tok}, event.q.floats(q_storage),
           event.k.floats(k_storage), pool, norms);
}

ChosenDType choose_dtype(const Transformer& model, std::span<const TokenId> prompt,
                         const TraceInfo& info, ThreadPool& pool) {
  constexpr double kMostInF16 = 65504.0 / 16.0;
  const auto ids = prompt.first(std::min(prompt.size(), static_cast<std::size_t>(info.chunk)));
  const std::unique_ptr<KvStore> store = model.make_store(static_cast<Index>(ids.size()));
  TraceInfo whole = info;  // the recorded rows may all come later
  whole.rows = {0, whole.n_tokens};
  Probe probe(whole, pool);
  ForwardOptions options;
  options.logits = Logits::none;
  options.observer = &probe;
  model.forward(ids, *store, pool, options);
  ChosenDType chosen{DType::f32, probe.f16.most(), probe.bf16.most()};
  const double largest = std::max(probe.f16.largest_norm(), probe.largest_value);
  if (chosen.moved_f16 <= kMostMoved && largest <= kMostInF16)
    chosen.dtype = DType::f16;
  else if (chosen.moved_bf16 <= kMostMoved)
    chosen.dtype = DType::bf16;
  return chosen;
}

}  // namespace kvscope
