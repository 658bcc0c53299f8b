// One transformer layer's weights, ready for the kernels.
#pragma once

#include <string>
#include <vector>

#include "core/model/config.hpp"
#include "core/model/weights.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// A weight matrix [n_rows, n_cols] as stored, row-major. f32 files are used in place; 16-bit files are either
/// widened once at load (small models) or row block by row block while multiplying (large ones).
class Matrix {
 public:
  Matrix() = default;
  /// widen: keep a f32 copy; then NaN or Inf in the file throws FormatError here, with its place.
  Matrix(const WeightFiles& files, const std::string& name, Index n_rows, Index n_cols, bool widen);

  Index n_rows() const { return n_rows_; }
  Index n_cols() const { return n_cols_; }

  /// Rows [begin, end) as floats with row stride `stride`; `scratch` [end - begin, n_cols + 16] is used if they
  /// need widening.
  const float* rows(Index begin, Index end, float* scratch, Index& stride) const;

 private:
  StoredTensor stored_;
  Tensor<float> widened_;
  const float* f32_ = nullptr;  // points at widened_ or into the mapped file
  Index n_rows_ = 0;
  Index n_cols_ = 0;
};

/// Names follow the Hugging Face checkpoints; absent parts (biases, norms of q and k) are empty.
struct LayerWeights {
  Tensor<float> attention_norm;  // [d_model]
  Matrix q, k, v;                // [n_q * d_head, d_model], [n_kv * d_head, d_model] twice
  Tensor<float> q_bias, k_bias, v_bias;
  Tensor<float> q_norm, k_norm;  // [d_head]
  Matrix o;                      // [d_model, n_q * d_head]
  Tensor<float> o_bias;          // [d_model]
  Tensor<float> mlp_norm;        // [d_model]
  Matrix gate, up;               // [d_ff, d_model]
  Tensor<float> gate_bias, up_bias;
  Matrix down;                   // [d_model, d_ff]
  Tensor<float> down_bias;
};

/// All weights of a model.
struct ModelWeights {
  Matrix embedding;           // [n_vocab, d_model]
  std::vector<LayerWeights> layers;
  Tensor<float> final_norm;   // [d_model]
  Matrix lm_head;             // [n_vocab, d_model]; empty if tied to the embedding
};

/// Collects and checks every tensor that `config` needs. Throws FormatError naming what is missing or mis-shaped.
ModelWeights collect_weights(const ModelConfig& config, const WeightFiles& files);

}  // namespace kvscope
