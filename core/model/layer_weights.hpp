// One transformer layer's weights, ready for the kernels.
#pragma once

#include <array>
#include <vector>

#include "core/model/config.hpp"
#include "core/model/matrix.hpp"
#include "core/model/weights.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// The MLP of one expert: gate and up apart (Qwen3-MoE), or interleaved in gate_up (gpt-oss: row
/// 2 f is the gate of feature f, row 2 f + 1 its up).
struct ExpertWeights {
  Matrix gate, up;  // [d_ff, d_model], or empty
  Matrix gate_up;   // [2 * d_ff, d_model], or empty
  Matrix down;      // [d_model, d_ff]
};

/// A mixture-of-experts sublayer; `experts` is empty in dense layers.
struct MoeWeights {
  Matrix router;              // [n_experts, d_model]
  Tensor<float> router_bias;  // [n_experts] or empty
  std::vector<ExpertWeights> experts;
  Matrix gate_up_bias;  // [n_experts, 2 * d_ff] or empty
  Matrix down_bias;     // [n_experts, d_model] or empty
};

/// Names follow the Hugging Face checkpoints; absent parts (biases, norms of q and k) are empty.
struct LayerWeights {
  std::array<Tensor<float>, 4> norms;  // [d_model] by NormAt; those that the plan lacks are empty
  std::array<Tensor<float>, 4> norm_biases;  // [d_model] or empty, likewise
  Matrix qkv;              // [n_q * 3 * d_head, d_model] head after head, instead of q, k, v
  Tensor<float> qkv_bias;  // [n_q * 3 * d_head] or empty
  // [n_q * d_head, d_model], [n_kv * d_head, d_model] twice; no k and v where another layer's are
  // attended to, no v where it is k.
  Matrix q, k, v;
  Tensor<float> q_bias, k_bias, v_bias;
  Tensor<float> q_norm, k_norm;  // [d_head], or [n_q * d_head] and [n_kv * d_head]
  Matrix o;                      // [d_model, n_q * d_head]
  Tensor<float> o_bias;          // [d_model]
  Matrix gate, up;               // [d_ff, d_model]; no gate where the plan has none
  Tensor<float> gate_bias, up_bias;
  Matrix down;  // [d_model, d_ff]
  Tensor<float> down_bias;
  MoeWeights moe;  // instead of gate, up and down
  // Of the token's embedding e for this layer (Gemma 4): x += norm(project(gelu(gate(x)) * e))
  Matrix input_gate;          // [d_layer_input, d_model] or empty
  Matrix input_projection;    // [d_model, d_layer_input] or empty
  Tensor<float> input_norm;   // [d_model] or empty
  float output_scale = 1.0f;  // of x at the layer's end
  Tensor<float> sink_logits;  // [n_q] or empty

  const Tensor<float>& norm(NormAt at) const { return norms[static_cast<std::size_t>(at)]; }
  const Tensor<float>& norm_bias(NormAt at) const {
    return norm_biases[static_cast<std::size_t>(at)];
  }
};

/// All weights of a model.
struct ModelWeights {
  Matrix embedding;  // [n_vocab, d_model]
  std::vector<LayerWeights> layers;
  Tensor<float> final_norm;       // [d_model]
  Tensor<float> final_norm_bias;  // [d_model] or empty
  Matrix lm_head;                 // [n_vocab, d_model]; empty if it is the embedding
  // Embeddings of tokens for every layer (Gemma 4), or empty: their own, and what follows from x.
  Matrix layer_inputs;             // [n_layer_vocab, n_layers * d_layer_input]
  Matrix layer_input_projection;   // [n_layers * d_layer_input, d_model]
  Tensor<float> layer_input_norm;  // [d_layer_input]
};

/// Throws ConfigError, naming the method, if the weights are quantised in a way that the runtime
/// does not compute.
void refuse_quantization(const ModelConfig& config);

/// Collects and checks every tensor that `config` needs. copies: what is kept of weights that must
/// be widened (as_f32, or as_bf16 for products in bf16), if the copies of all of them take at most
/// 1 GiB. Throws FormatError naming what is
/// missing or mis-shaped, ConfigError for what the runtime does not compute.
ModelWeights collect_weights(const ModelConfig& config, const WeightFiles& files,
                             Kept copies = Kept::as_f32);

}  // namespace kvscope
