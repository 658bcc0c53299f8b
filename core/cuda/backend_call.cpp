#include "core/cuda/backend_call.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/error.hpp"

namespace kvscope::gpu {

namespace {

constexpr const char* kUse = "the activations of a call";
constexpr Index kLogitRows = 64;  // that are on the device at a time

/// Floats of activations per token: the diagram's seven blocks, and what a call takes for itself.
Index floats_per_token(const ModelConfig& config, bool has_bf16_products) {
  const Index d_q = config.n_q * config.d_head;
  const Index d_kv = config.n_kv * config.d_head;
  const Index blocks = 3 * config.d_model + 2 * d_q + 2 * d_kv;
  return (has_bf16_products ? blocks + blocks / 2 : blocks) + d_q + 2 * d_kv + 2 * d_q +
         config.n_q + 2 * config.rotary_dim;
}

}  // namespace

std::size_t call_bytes(const ModelConfig& config, Index n_tok, Index n_context,
                       bool has_bf16_products) {
  constexpr Index kMostScores = Index{1} << 25;  // at a time, of methods
  constexpr Index kScoreArrays = 3;
  const Index d_ff = std::max(config.d_ff, config.moe.d_ff);
  const Index scores = std::min(kMostScores, config.n_q * n_tok * n_context);
  // buffers grow by a quarter more than was asked for
  const Index grown = 3 * n_tok * d_ff + std::min(n_tok, kLogitRows) * config.n_vocab +
                      n_tok * config.d_model + kScoreArrays * scores;
  const Index floats = n_tok * floats_per_token(config, has_bf16_products) + grown + grown / 4;
  return static_cast<std::size_t>(floats) * sizeof(float) +
         (has_bf16_products ? BlasLt::kWorkspaceBytes : 0);
}

CudaCall::CudaCall(const CudaModel& model, Index n_tok, KvRows& store, Workspaces::Lease lease)
    : model_(model),
      config_(model.config),
      store_(store),
      lease_(std::move(lease)),
      work_(*lease_),
      opened_{store, work_},
      pos_begin_(store.n_tokens()),
      n_tok_(static_cast<int>(n_tok)) {
  Workspace& work = work_;
  use_device(work.device);
  work.clock.forget();  // spans of a call that ended by an error, and what it noted
  const Index d_q = config_.n_q * config_.d_head;
  const Index n_qkv = d_q + 2 * config_.n_kv * config_.d_head;
  // each array begins at 256 bytes
  const Index floats = floats_per_token(config_, work.has_bf16_products());
  work.arena.reset(static_cast<std::size_t>(n_tok * floats) * sizeof(float) + 30 * 256);
  copy_to_device(work.bad.data(), &kNowhere, sizeof(kNowhere), work.stream);
  store.begin_call(work.stream);
  const std::size_t q_bytes =
      static_cast<std::size_t>(n_tok * d_q) * kvscope::size_of(store.dtype());
  qkv_ = work.arena.take_many<float>(n_tok * n_qkv);
  q_rows_ = work.arena.take(q_bytes);
  answer_ = work.arena.take(q_bytes);
  lse_ = work.arena.take_many<float>(n_tok * config_.n_q);
  const int half = static_cast<int>(config_.rotary_dim / 2);
  const auto angles = [&](const float* frequencies, const RopeConfig& rope, float*& cos,
                          float*& sin) {
    if (half == 0) return;
    cos = work.arena.take_many<float>(n_tok * half);
    sin = work.arena.take_many<float>(n_tok * half);
    make_rope_rows(frequencies, half, static_cast<float>(rope.amplitude), pos_begin_, n_tok_, cos,
                   sin, work.stream);
  };
  angles(model.frequencies, config_.rope, cos_, sin_);
  if (config_.local_rope)
    angles(model.local_frequencies, *config_.local_rope, local_cos_, local_sin_);
}

CudaCall::Opened::~Opened() {
  if (!is_finished) {
    abandon(work.stream);
    abandon(work.outbox.stream);
    work.outbox.is_copying = false;
  }
  store.end_call();
}

std::unique_ptr<Block> CudaCall::make_block(Index n_features) {
  auto block = std::make_unique<RowBlock>();
  block->values = work_.arena.take_many<float>(n_tok_ * n_features);
  block->stride = n_features;
  block->head_stride = config_.d_head;
  if (work_.has_bf16_products())
    block->halves = work_.arena.take_many<std::uint16_t>(n_tok_ * n_features);
  return block;
}

void CudaCall::embed(std::span<const TokenId> tokens, Block& x) {
  const std::vector<std::int32_t> ids(tokens.begin(), tokens.end());
  const std::int32_t* on_device = work_.tokens.upload(ids.data(), ids.size(), kUse, work_.stream);
  embed_rows(model_.weights.embedding(), on_device, n_tok_,
             static_cast<float>(config_.plan.embedding_scale), of(x).values, work_.stream);
  of(x).has_halves = false;
}

void CudaCall::norm(Index layer, NormAt at, const Block& x, Block& y) {
  const DeviceLayer& w = model_.weights.layer(layer);
  const auto i = static_cast<std::size_t>(at);
  const float* const added = sum_.x == of(x).values ? sum_.y : nullptr;
  if (added == nullptr) add_now();
  sum_ = {};
  norm_rows({of(x).values, of(x).stride, of(y).values, of(y).stride, of(y).halves, w.norms[i],
             w.norm_biases[i], static_cast<int>(config_.d_model),
             static_cast<float>(config_.rms_eps), config_.plan.layer_norm, added},
            n_tok_, work_.stream);
  of(y).has_halves = of(y).halves != nullptr;
}

void CudaCall::product(const DeviceMatrix& matrix, const float* bias, const RowBlock& x, float* y,
                       std::int64_t y_stride) {
  if (x.has_halves) {
    work_.multiply_rows(matrix, x.halves, y, y_stride, n_tok_);
  } else {
    work_.multiply(matrix, x.values, x.stride, y, y_stride, n_tok_);
  }
  if (bias != nullptr)
    add_bias(y, y_stride, bias, static_cast<int>(matrix.n_rows), n_tok_, work_.stream);
}

void CudaCall::project_qkv(Index layer, const Block& x, Block& q, Block& k, Block& v) {
  add_now();
  const DeviceLayer& w = model_.weights.layer(layer);
  const Index d = config_.d_head;
  product(w.qkv, w.qkv_bias, of(x), qkv_, w.qkv.n_rows);
  const bool by_head = config_.plan.fused_by_head;
  float* part = qkv_;
  const auto give = [&](Block& block, Index n_heads) {
    of(block).values = part;
    of(block).stride = w.qkv.n_rows;
    of(block).head_stride = by_head ? 3 * d : d;
    part += by_head ? d : n_heads * d;
  };
  give(q, config_.n_q);
  give(k, config_.n_kv);
  give(v, config_.n_kv);
}

HeadsCall CudaCall::placed(Index layer, const RowBlock& x, Index n_heads, const float* head_norm,
                           bool turns, HeadsCall call) {
  const auto at = static_cast<std::size_t>(layer);
  const int d = static_cast<int>(config_.d_head);
  call.x = x.values;
  call.stride = x.stride;
  call.head_stride = x.head_stride;
  call.eps = static_cast<float>(config_.rms_eps);
  call.dtype = store_.dtype();
  call.n_heads = static_cast<int>(n_heads);
  call.d_head = d;
  if (head_norm != nullptr && config_.plan.norms_all_heads) {
    norm_rows({x.values, x.stride, x.values, x.stride, nullptr, head_norm, nullptr,
               static_cast<int>(n_heads) * d, call.eps, /*takes_mean=*/false},
              n_tok_, work_.stream);
  } else {
    call.norm = head_norm;
  }
  if (turns && config_.has_rope[at]) {
    const bool is_local = config_.local_rope && config_.window[at];
    call.cos = is_local ? local_cos_ : cos_;
    call.sin = is_local ? local_sin_ : sin_;
    call.rotary_dim = static_cast<int>(config_.rotary_dim);
  }
  return call;
}

void CudaCall::position_and_append(Index layer, Block& q, Block& k, const Block& v) {
  const DeviceLayer& w = model_.weights.layer(layer);
  auto* const bad = reinterpret_cast<BadPlace*>(work_.bad.data());
  if (work_.outbox.is_copying) work_.outbox.copied.hold_back(work_.stream);
  work_.outbox.is_copying = false;
  HeadsCall call;
  call.out = q_rows_;
  call.out_capacity = n_tok_;
  const HeadsCall of_q = placed(layer, of(q), config_.n_q, w.q_norm, /*turns=*/true, call);
  call.out_capacity = store_.capacity();
  call.out_begin = pos_begin_;
  call.bad = bad;
  call.out = store_.k(layer);
  call.first_code = bad_place(layer, BadValue::key, pos_begin_);
  const HeadsCall of_k = placed(layer, of(k), config_.n_kv, w.k_norm, /*turns=*/true, call);
  call.out = store_.v(layer);
  call.first_code = bad_place(layer, BadValue::value, pos_begin_);
  const HeadsCall of_v = placed(layer, of(v), config_.n_kv, nullptr, /*turns=*/false, call);
  place_heads(std::array{of_q, of_k, of_v}, n_tok_, work_.stream);
}

void CudaCall::project_out(Index layer, const Block& x, Block& y) {
  add_now();
  const DeviceLayer& w = model_.weights.layer(layer);
  product(w.o, w.o_bias, of(x), of(y).values, of(y).stride);
  of(y).has_halves = false;
}

void CudaCall::gated_mlp(Index layer, const Block& x, Block& y) {
  add_now();
  const DeviceLayer& w = model_.weights.layer(layer);
  const Index d_ff = config_.d_ff;
  const Index width = w.gate_up.n_rows;
  const bool is_gated = config_.plan.is_gated;
  auto* const gate_up = work_.gate_up.room<float>(n_tok_ * width, kUse);
  auto* const hidden = work_.hidden.room<float>(n_tok_ * d_ff, kUse);
  product(w.gate_up, w.gate_up_bias, of(x), gate_up, width);
  using Activation = LayerPlan::Activation;
  // As the lane backend has them: SwiGLU and GeGLU by tanh; without a gate GELU by erf.
  const Gate form = !is_gated                                     ? Gate::gelu_alone
                    : config_.plan.activation == Activation::silu ? Gate::silu
                                                                  : Gate::gelu_tanh;
  activate_rows(form, gate_up, is_gated ? gate_up + d_ff : gate_up, width, static_cast<int>(d_ff),
                n_tok_, hidden, work_.input_dtype(), work_.stream);
  of(y).has_halves = false;
  work_.multiply_rows(w.down, hidden, of(y).values, of(y).stride, n_tok_);
  if (w.down_bias != nullptr)
    add_bias(of(y).values, of(y).stride, w.down_bias, static_cast<int>(config_.d_model), n_tok_,
             work_.stream);
}

void CudaCall::add(Block& x, const Block& y) {
  add_now();
  of(x).has_halves = false;
  sum_ = {of(x).values, of(y).values};
}

void CudaCall::add_now() {
  if (sum_.x != nullptr)
    add_rows(sum_.x, sum_.y, static_cast<std::int64_t>(n_tok_) * config_.d_model, work_.stream);
  sum_ = {};
}

Tensor<float> CudaCall::logits(const Block& x, Index n_rows) {
  add_now();
  const DeviceWeights& w = model_.weights;
  const Index first = n_tok_ - n_rows;
  auto out = Tensor<float>::uninitialized({n_rows, config_.n_vocab});
  const Index most = std::min(n_rows, kLogitRows);
  auto* const normed = work_.hidden.room<float>(most * config_.d_model, kUse);
  auto* const rows = work_.logits.room<float>(most * config_.n_vocab, "logits");
  for (Index begin = 0; begin < n_rows; begin += most) {
    const Index n = std::min(most, n_rows - begin);
    norm_rows({of(x).values + (first + begin) * of(x).stride, of(x).stride, normed, config_.d_model,
               nullptr, w.final_norm(), w.final_norm_bias(), static_cast<int>(config_.d_model),
               static_cast<float>(config_.rms_eps), config_.plan.layer_norm},
              static_cast<int>(n), work_.stream);
    work_.multiply(w.lm_head(), normed, config_.d_model, rows, config_.n_vocab,
                   static_cast<int>(n));
    copy_to_host(&out(begin, Index{0}), rows,
                 static_cast<std::size_t>(n * config_.n_vocab) * sizeof(float), work_.stream);
  }
  work_.wait_and_check();
  const auto cap = static_cast<float>(config_.plan.logit_softcap);
  for (Index t = 0; t < n_rows; ++t) {
    const auto row = out.view().row(t);
    if (!std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); }))
      throw_not_finite("the logits", config_.n_layers, pos_begin_ + first + t);
    if (cap > 0.0f) {
      for (float& value : row) value = cap * std::tanh(value / cap);
    }
  }
  return out;
}

TensorView<const float> CudaCall::to_host_rows(const Block&) {
  const Index count = config_.n_q * n_tok_ * config_.d_head;
  const auto* rows = reinterpret_cast<const float*>(q_rows_);
  if (store_.dtype() == DType::bf16) {
    auto* const wide = work_.hidden.room<float>(count, kUse);
    widen_rows(q_rows_, count, wide, work_.stream);
    rows = wide;
  }
  return {work_.fetch(work_.host_q, rows, static_cast<std::size_t>(count)),
          Shape{config_.n_q, n_tok_, config_.d_head}};
}

TensorView<const float> CudaCall::host_lse() {
  return {work_.fetch(work_.host_lse, lse_, static_cast<std::size_t>(config_.n_q * n_tok_)),
          Shape{config_.n_q, Index{n_tok_}}};
}

void CudaCall::finish() {
  work_.wait_and_check();
  deliver();
  work_.clock.collect();
  opened_.is_finished = true;
}

}  // namespace kvscope::gpu
