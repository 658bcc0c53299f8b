#include "core/cuda/device_weights.hpp"

#include <algorithm>
#include <initializer_list>

#include "core/cuda/scratch.hpp"
#include "core/cuda/transfer.hpp"
#include "core/tensor/dtype.hpp"

namespace kvscope::gpu {

/// Runs twice over the same calls: without memory it counts bytes, with it uploads.
class DeviceWeights::Uploader {
 public:
  Uploader(bool is_half, std::byte* base) : is_half_(is_half), base_(base), plan_(base) {}
  std::size_t size() const { return plan_.size(); }
  bool rounds() const { return is_half_; }

  const float* vector(std::initializer_list<const Tensor<float>*> parts) {
    Index n = 0;
    for (const Tensor<float>* part : parts) n += part->count();
    if (n == 0) return nullptr;
    float* const to = plan_.add<float>(static_cast<std::size_t>(n));
    if (base_ == nullptr) return nullptr;
    Index at = 0;
    for (const Tensor<float>* part : parts) {
      if (part->count() == 0) continue;
      copy_to_device(to + at, part->data(), static_cast<std::size_t>(part->count()) * sizeof(float),
                     nullptr);
      at += part->count();
    }
    return to;
  }

  /// is_exact: no rounding, whatever the products are in.
  DeviceMatrix matrix(std::initializer_list<const Matrix*> parts, bool is_exact = false) {
    DeviceMatrix out;
    bool stores_half = true;
    for (const Matrix* part : parts) {
      if (part->n_rows() == 0) continue;
      out.n_rows += part->n_rows();
      out.n_cols = part->n_cols();
      stores_half = stores_half && part->stored_bf16(0) != nullptr;
    }
    if (out.n_rows == 0) return {};
    out.dtype = stores_half || (is_half_ && !is_exact) ? DType::bf16 : DType::f32;
    const std::size_t row_bytes = static_cast<std::size_t>(out.n_cols) * size_of(out.dtype);
    std::byte* to = plan_.add<std::byte>(static_cast<std::size_t>(out.n_rows) * row_bytes);
    if (base_ == nullptr) return {};
    out.data = to;
    for (const Matrix* part : parts) {
      upload(*part, out.dtype, to);
      to += static_cast<std::size_t>(part->n_rows()) * row_bytes;
    }
    return out;
  }

  /// Rows as floats, without their matrix.
  const float* rows(const Matrix& matrix) {
    if (matrix.n_rows() == 0) return nullptr;
    float* const to = plan_.add<float>(static_cast<std::size_t>(matrix.n_rows() * matrix.n_cols()));
    if (base_ == nullptr) return nullptr;
    upload(matrix, DType::f32, reinterpret_cast<std::byte*>(to));
    return to;
  }

 private:
  void upload(const Matrix& from, DType dtype, std::byte* to) {
    if (from.n_rows() == 0) return;
    const Index n_cols = from.n_cols();
    const std::size_t row_bytes = static_cast<std::size_t>(n_cols) * size_of(dtype);
    if (dtype == DType::bf16 && from.stored_bf16(0) != nullptr) {
      copy_to_device(to, from.stored_bf16(0), static_cast<std::size_t>(from.n_rows()) * row_bytes,
                     nullptr);
      return;
    }
    constexpr Index kRows = 256;
    floats_.resize(static_cast<std::size_t>(kRows * (n_cols + 16)));
    halves_.resize(static_cast<std::size_t>(kRows * n_cols));
    for (Index begin = 0; begin < from.n_rows(); begin += kRows) {
      const Index end = std::min(begin + kRows, from.n_rows());
      const void* packed = nullptr;
      if (dtype == DType::bf16) {
        packed = from.rows_bf16(begin, end, floats_.data(), halves_.data());
      } else {
        packed = packed_floats(from, begin, end);
      }
      copy_to_device(to + static_cast<std::size_t>(begin) * row_bytes, packed,
                     static_cast<std::size_t>(end - begin) * row_bytes, nullptr);
    }
  }

  const float* packed_floats(const Matrix& from, Index begin, Index end) {
    Index stride = 0;
    const float* wide = from.rows(begin, end, floats_.data(), stride);
    if (stride == from.n_cols()) return wide;
    for (Index r = 1; r < end - begin; ++r)  // rows move down to where they belong, in order
      std::copy_n(wide + r * stride, from.n_cols(), floats_.data() + r * from.n_cols());
    return floats_.data();
  }

  bool is_half_;
  std::byte* base_;
  Scratch plan_;
  std::vector<float> floats_;
  std::vector<std::uint16_t> halves_;
};

DeviceWeights::DeviceWeights(const ModelWeights& weights, bool is_half) {
  Uploader planner(is_half, nullptr);
  collect(weights, planner);
  memory_ = DeviceBuffer(planner.size(), "the model's weights");
  Uploader uploader(is_half, memory_.data());
  collect(weights, uploader);
  wait_for(nullptr);
}

void DeviceWeights::collect(const ModelWeights& weights, Uploader& uploader) {
  layers_.clear();
  for (const LayerWeights& w : weights.layers) {
    DeviceLayer layer;
    for (std::size_t at = 0; at < layer.norms.size(); ++at) {
      layer.norms[at] = uploader.vector({&w.norms[at]});
      layer.norm_biases[at] = uploader.vector({&w.norm_biases[at]});
    }
    layer.qkv = uploader.matrix({&w.qkv, &w.q, &w.k, &w.v});
    layer.qkv_bias = uploader.vector({&w.qkv_bias, &w.q_bias, &w.k_bias, &w.v_bias});
    layer.q_norm = uploader.vector({&w.q_norm});
    layer.k_norm = uploader.vector({&w.k_norm});
    layer.o = uploader.matrix({&w.o});
    layer.o_bias = uploader.vector({&w.o_bias});
    layer.gate_up = uploader.matrix({&w.gate, &w.up});
    layer.gate_up_bias = uploader.vector({&w.gate_bias, &w.up_bias});
    layer.down = uploader.matrix({&w.down});
    layer.down_bias = uploader.vector({&w.down_bias});
    layer.sink_logits = uploader.vector({&w.sink_logits});
    layer.router = uploader.matrix({&w.moe.router});
    layer.router_bias = uploader.vector({&w.moe.router_bias});
    for (const ExpertWeights& expert : w.moe.experts) {
      layer.experts.push_back({uploader.matrix({&expert.gate, &expert.up, &expert.gate_up}),
                               uploader.matrix({&expert.down})});
    }
    layer.expert_gate_up_bias = uploader.rows(w.moe.gate_up_bias);
    layer.expert_down_bias = uploader.rows(w.moe.down_bias);
    layers_.push_back(std::move(layer));
  }
  embedding_ = uploader.matrix({&weights.embedding}, /*is_exact=*/true);
  if (weights.lm_head.n_rows() > 0) {
    lm_head_ = uploader.matrix({&weights.lm_head});
  } else if (weights.embedding.stored_bf16(0) != nullptr || !uploader.rounds()) {
    lm_head_ = embedding_;
  } else {
    lm_head_ = uploader.matrix({&weights.embedding});
  }
  final_norm_ = uploader.vector({&weights.final_norm});
  final_norm_bias_ = uploader.vector({&weights.final_norm_bias});
}

}  // namespace kvscope::gpu
