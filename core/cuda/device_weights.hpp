// A model's weights in device memory, uploaded once from the mapped files.
#pragma once

#include <array>
#include <vector>

#include "core/cuda/layer_kernels.hpp"
#include "core/model/config.hpp"
#include "core/model/layer_weights.hpp"

namespace kvscope::gpu {

/// One expert's matrices: gate above up in one (interleaved where the model has it so), and down.
struct DeviceExpert {
  DeviceMatrix gate_up;  // [2 * d_ff, d_model]
  DeviceMatrix down;     // [d_model, d_ff]
};

/// One layer; absent parts are null. Matrices with the same input lie one below the other.
struct DeviceLayer {
  std::array<const float*, 4> norms{};
  std::array<const float*, 4> norm_biases{};
  DeviceMatrix qkv;  // rows of q, then k, then v; of GPT-NeoX head after head
  const float* qkv_bias = nullptr;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  DeviceMatrix o;
  const float* o_bias = nullptr;
  DeviceMatrix gate_up;  // rows of gate, where there is one, then up
  const float* gate_up_bias = nullptr;
  DeviceMatrix down;
  const float* down_bias = nullptr;
  const float* sink_logits = nullptr;
  DeviceMatrix router;
  const float* router_bias = nullptr;
  std::vector<DeviceExpert> experts;
  const float* expert_gate_up_bias = nullptr;  // [n_experts, 2 * d_ff]
  const float* expert_down_bias = nullptr;     // [n_experts, d_model]
};

class DeviceWeights {
 public:
  /// is_half: matrices of linear layers in bf16, rounded where the files hold more; otherwise
  /// exactly what the files hold, as bf16 or f32. Throws DeviceMemoryError, before anything is
  /// uploaded, if the memory does not suffice.
  DeviceWeights(const ModelWeights& weights, bool is_half);

  const DeviceLayer& layer(std::int64_t i) const { return layers_[static_cast<std::size_t>(i)]; }
  const DeviceMatrix& embedding() const { return embedding_; }  // exact
  const DeviceMatrix& lm_head() const { return lm_head_; }
  const float* final_norm() const { return final_norm_; }
  const float* final_norm_bias() const { return final_norm_bias_; }

 private:
  class Uploader;
  void collect(const ModelWeights& weights, Uploader& uploader);

  DeviceBuffer memory_;
  std::vector<DeviceLayer> layers_;
  DeviceMatrix embedding_, lm_head_;
  const float* final_norm_ = nullptr;
  const float* final_norm_bias_ = nullptr;
};

}  // namespace kvscope::gpu
