#include "core/cuda/kv_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "core/cuda/layer_kernels.hpp"

namespace kvscope::gpu {

namespace {

constexpr Index kLeastChunk = 128;  // tokens that a method's state is made for, at least

QuokaOptions quoka_options(const ListPlan& plan, Index most_tok, Index capacity) {
  QuokaOptions options;
  options.n_queries = static_cast<int>(plan.n_queries);
  options.budget = static_cast<int>(std::min(plan.budget, capacity));  // memory is made for it
  options.most_tok = static_cast<int>(most_tok);
  options.eps = plan.eps;
  return options;
}

QuestOptions quest_options(const ListPlan& plan) {
  QuestOptions options;
  options.page_size = static_cast<int>(plan.page_size);
  options.budget = static_cast<int>(plan.budget);
  options.pages = plan.pages;
  options.owner = plan.owner;
  return options;
}

}  // namespace

std::size_t KvRows::device_bytes(const ModelConfig& config, Index capacity, DType dtype) {
  return 2 * static_cast<std::size_t>(config.n_layers * config.n_kv * capacity * config.d_head) *
         kvscope::size_of(dtype);
}

KvRows::KvRows(const ModelConfig& config, Index capacity, DType dtype, int device,
               const Backend* backend)
    : KvStore(config, capacity, dtype),
      n_kv_(config.n_kv),
      n_q_(config.n_q),
      d_head_(config.d_head),
      score_scale_(config.score_scale()),
      device_((use_device(device), device)),  // where the stream is made
      backend_(backend),
      stream_(own_stream_) {
  bytes_ = static_cast<std::size_t>(n_kv_ * capacity * d_head_) * kvscope::size_of(dtype);
  const auto n = static_cast<std::size_t>(n_layers_);
  const std::string use = fmt::format("the keys and values of {} tokens", capacity);
  k_ = DeviceBuffer(bytes_ * n, use);
  v_ = DeviceBuffer(bytes_ * n, use);
  positions_ = DeviceBuffer(2 * sizeof(std::int32_t), use);
  host_k_.resize(n);
  host_v_.resize(n);
  quoka_.resize(n);
  quest_.resize(n);
}

void KvRows::forget_from(Index n_tokens) {
  const auto forget = [&](auto& all) {
    for (auto& one : all) one.n_noted = std::min(one.n_noted, n_tokens);
  };
  forget(quoka_);
  forget(quest_);
  for (auto* rows : {&host_k_, &host_v_}) {
    for (HostRows& one : *rows) one.n_copied = std::min(one.n_copied, n_tokens);
  }
}

void KvRows::begin_call(StreamHandle stream) {
  stream_ = stream;
  forget_from(n_tokens_);
  set_word(reinterpret_cast<std::int32_t*>(positions_.data()), static_cast<std::int32_t>(n_tokens_),
           stream_);
}

void KvRows::copy_from(const KvStore& other) {
  const auto* from = dynamic_cast<const KvRows*>(&other);
  if (from == nullptr) return copy_from_host(other);
  if (from->dtype_ != dtype_ || from->backend_ != backend_ || from->n_layers_ != n_layers_ ||
      from->n_kv_ != n_kv_ || from->d_head_ != d_head_) {
    throw ConfigError(
        "a store of keys on the GPU takes over the tokens of another one of the same model and "
        "dtype, and found a different store");
  }
  if (from->n_tokens_ > capacity_) {
    throw ConfigError(
        fmt::format("context full: {} tokens do not fit into {}", from->n_tokens_, capacity_));
  }
  use_device(device_);
  const std::size_t row = static_cast<std::size_t>(d_head_) * kvscope::size_of(dtype_);
  Pieces pieces;  // of all layers and heads
  pieces.width = static_cast<std::size_t>(from->n_tokens_) * row;
  pieces.n_rows = static_cast<std::size_t>(n_layers_ * n_kv_);
  pieces.to_pitch = static_cast<std::size_t>(capacity_) * row;
  pieces.from_pitch = static_cast<std::size_t>(from->capacity_) * row;
  copy_pieces(k_.data(), from->k_.data(), pieces, stream_);
  copy_pieces(v_.data(), from->v_.data(), pieces, stream_);
  forget_from(0);  // nothing that was noted holds
  n_tokens_ = from->n_tokens_;
  wait_for(stream_);
}

void KvRows::copy_from_host(const KvStore& other) {
  const Index n = other.n_tokens();
  if (n > capacity_ || other.n_layers() != n_layers_)
    throw ConfigError(
        fmt::format("{} layers and {} tokens do not fit into a store of {} layers and room for {}",
                    other.n_layers(), n, n_layers_, capacity_));
  use_device(device_);
  wait_for(stream_);
  const std::size_t row = static_cast<std::size_t>(d_head_) * kvscope::size_of(dtype_);
  std::vector<std::byte> rows(static_cast<std::size_t>(n) * row);  // of one head
  const auto take = [&](DeviceBuffer& to, Index layer, TensorView<const float> from) {
    for (Index head = 0; head < n_kv_; ++head) {
      for (Index pos = 0; pos < n; ++pos) {
        from_float(from.sub(head).row(pos).data(), dtype_,
                   rows.data() + static_cast<std::size_t>(pos) * row,
                   static_cast<std::size_t>(d_head_));
      }
      to.upload(rows.data(), rows.size(),
                static_cast<std::size_t>(layer) * bytes_ +
                    static_cast<std::size_t>(head * capacity_) * row);
    }
  };
  for (Index layer = 0; layer < n_layers_; ++layer) {
    take(k_, layer, other.host_k(layer, 0, n));
    take(v_, layer, other.host_v(layer, 0, n));
  }
  forget_from(0);
  n_tokens_ = n;
}

TensorView<const float> KvRows::host(const DeviceBuffer& from, HostRows& to, Index layer,
                                     Index begin, Index end) const {
  if (to.rows.count() == 0) to.rows = Tensor<float>::uninitialized({n_kv_, capacity_, d_head_});
  if (to.n_copied < end) {
    use_device(device_);
    const Index n = end - to.n_copied;
    const std::size_t row = static_cast<std::size_t>(d_head_) * kvscope::size_of(dtype_);
    Pieces pieces;
    pieces.width = static_cast<std::size_t>(n) * row;
    pieces.n_rows = static_cast<std::size_t>(n_kv_);
    pieces.to_pitch = pieces.width;
    pieces.from_pitch = static_cast<std::size_t>(capacity_) * row;
    std::byte* const staged = staging_.room(pieces.width * pieces.n_rows);
    copy_pieces(staged,
                from.data() + static_cast<std::size_t>(layer) * bytes_ +
                    static_cast<std::size_t>(to.n_copied) * row,
                pieces, stream_);
    wait_for(stream_);
    for (Index head = 0; head < n_kv_; ++head) {
      to_float(dtype_, staged + static_cast<std::size_t>(head) * pieces.width,
               &to.rows(head, to.n_copied, Index{0}), static_cast<std::size_t>(n * d_head_));
    }
    to.n_copied = end;
  }
  return std::as_const(to.rows).view().range(1, begin, end);
}

CallShape KvRows::call_shape() const {
  CallShape shape;
  shape.n_q = static_cast<int>(n_q_);
  shape.n_kv = static_cast<int>(n_kv_);
  shape.d_head = static_cast<int>(d_head_);
  shape.capacity = capacity_;
  shape.dtype = dtype_;
  shape.score_scale = score_scale_;
  return shape;
}

const std::int32_t* KvRows::noted_until(Index position) {
  auto* const at = reinterpret_cast<std::int32_t*>(positions_.data()) + 1;
  set_word(at, static_cast<std::int32_t>(position), stream_);
  return at;
}

Quoka& KvRows::quoka(Index layer, const ListPlan& plan, Index n_tok) {
  Noted<Quoka>& noted = quoka_[static_cast<std::size_t>(layer)];
  if (!noted.method || noted.plan != plan || noted.most_tok < n_tok) {
    noted = {};  // first: there may not be memory for both
    const Index most_tok = std::max(kLeastChunk, n_tok);
    noted.method = std::make_unique<Quoka>(call_shape(), quoka_options(plan, most_tok, capacity_));
    noted.most_tok = most_tok;
    noted.plan = plan;
  }
  if (noted.n_noted < n_tokens_) {
    noted.method->append(k(layer), noted_until(noted.n_noted),
                         static_cast<int>(n_tokens_ - noted.n_noted), stream_);
  }
  noted.n_noted = n_tokens_ + n_tok;  // choose() notes those of the call
  return *noted.method;
}

Quest& KvRows::quest(Index layer, ListPlan plan, Index n_tok) {
  Noted<Quest>& noted = quest_[static_cast<std::size_t>(layer)];
  if (noted.method && plan.forces_own) plan.owner = noted.plan.owner;  // of steps
  plan.forces_own = false;
  if (!noted.method || noted.plan != plan) {
    noted = {};
    noted.method = std::make_unique<Quest>(call_shape(), quest_options(plan));
    noted.plan = plan;
  }
  if (noted.n_noted < n_tokens_) {
    noted.method->append(k(layer), noted_until(noted.n_noted),
                         static_cast<int>(n_tokens_ - noted.n_noted), stream_);
  }
  noted.n_noted = n_tokens_ + n_tok;  // the caller notes the call's
  return *noted.method;
}

}  // namespace kvscope::gpu
