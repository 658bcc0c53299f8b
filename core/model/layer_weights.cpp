#include "core/model/layer_weights.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <span>

#include "core/base/error.hpp"
#include "core/tensor/dtype.hpp"

namespace kvscope {

namespace {
// Models whose f32 weights fit here are widened once; beyond, memory matters more than the repeated conversion.
constexpr std::int64_t kWidenLimitBytes = std::int64_t{1} << 30;
}  // namespace

Matrix::Matrix(const WeightFiles& files, const std::string& name, Index n_rows, Index n_cols,
               bool widen)
    : stored_(files.get(name, {n_rows, n_cols})), n_rows_(n_rows), n_cols_(n_cols) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(stored_.data) % alignof(float) == 0;
  if (stored_.dtype == DType::f32 && is_aligned) {
    f32_ = reinterpret_cast<const float*>(stored_.data);
    // Large models are checked through what they compute: reading all of them here would take minutes.
    if (widen) require_finite({f32_, static_cast<std::size_t>(stored_.count())}, name, stored_.file);
  } else if (widen) {
    widened_ = files.get_float(name, {n_rows, n_cols});
    f32_ = widened_.data();
  }
}

const float* Matrix::rows(Index begin, Index end, float* scratch, Index& stride) const {
  if (f32_ != nullptr) {
    stride = n_cols_;
    return f32_ + begin * n_cols_;
  }
  // The odd stride keeps rows of power-of-two length from sharing cache sets.
  stride = n_cols_ + 16;
  const std::byte* src = stored_.data + static_cast<std::size_t>(begin * n_cols_) * size_of(stored_.dtype);
  for (Index r = 0; r < end - begin; ++r) {
    to_float(stored_.dtype, src + static_cast<std::size_t>(r * n_cols_) * size_of(stored_.dtype),
             scratch + r * stride, static_cast<std::size_t>(n_cols_));
  }
  return scratch;
}

ModelWeights collect_weights(const ModelConfig& config, const WeightFiles& files) {
  const bool widen = config.n_parameters() * 4 <= kWidenLimitBytes;
  const Index d = config.d_model;
  const Index d_q = config.n_q * config.d_head;
  const Index d_kv = config.n_kv * config.d_head;
  const auto matrix = [&](const std::string& name, Index rows, Index cols) {
    return Matrix(files, name + ".weight", rows, cols, widen);
  };
  const auto vector = [&](const std::string& name, Index n) { return files.get_float(name, {n}); };

  ModelWeights weights;
  weights.embedding = matrix("model.embed_tokens", config.n_vocab, d);
  for (Index i = 0; i < config.n_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    const std::string attention = layer + "self_attn.";
    const std::string mlp = layer + "mlp.";
    LayerWeights w;
    w.attention_norm = vector(layer + "input_layernorm.weight", d);
    w.q = matrix(attention + "q_proj", d_q, d);
    w.k = matrix(attention + "k_proj", d_kv, d);
    w.v = matrix(attention + "v_proj", d_kv, d);
    w.o = matrix(attention + "o_proj", d, d_q);
    if (config.qkv_bias) {
      w.q_bias = vector(attention + "q_proj.bias", d_q);
      w.k_bias = vector(attention + "k_proj.bias", d_kv);
      w.v_bias = vector(attention + "v_proj.bias", d_kv);
    }
    if (config.o_bias) w.o_bias = vector(attention + "o_proj.bias", d);
    if (config.qk_norm) {
      w.q_norm = vector(attention + "q_norm.weight", config.d_head);
      w.k_norm = vector(attention + "k_norm.weight", config.d_head);
    }
    w.mlp_norm = vector(layer + "post_attention_layernorm.weight", d);
    w.gate = matrix(mlp + "gate_proj", config.d_ff, d);
    w.up = matrix(mlp + "up_proj", config.d_ff, d);
    w.down = matrix(mlp + "down_proj", d, config.d_ff);
    if (config.mlp_bias) {
      w.gate_bias = vector(mlp + "gate_proj.bias", config.d_ff);
      w.up_bias = vector(mlp + "up_proj.bias", config.d_ff);
      w.down_bias = vector(mlp + "down_proj.bias", d);
    }
    weights.layers.push_back(std::move(w));
  }
  weights.final_norm = vector("model.norm.weight", d);
  if (!config.tied_embeddings) {
    weights.lm_head = matrix("lm_head", config.n_vocab, d);
  }
  return weights;
}

}  // namespace kvscope
