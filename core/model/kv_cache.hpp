// The keys and values of all tokens so far, per layer, in host floats: the lane backend's store.
#pragma once

#include <vector>

#include "core/model/config.hpp"
#include "core/model/kv_store.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Memory for keys or values, in large pages where the system has them; contents undefined. [n_kv, capacity, d_head]
Tensor<float> make_cache_rows(Shape shape);

/// Fixed-capacity cache. Keys are stored as they enter the dot product: after QK-norm and RoPE.
class KvCache final : public KvStore {
 public:
  /// Room for `capacity` tokens. Throws ConfigError if that exceeds the model's max_positions.
  KvCache(const ModelConfig& config, Index capacity);

  Index capacity() const override { return capacity_; }
  Index n_tokens() const override { return n_tokens_; }
  Index n_layers() const override { return static_cast<Index>(k_.size()); }
  DType dtype() const override { return DType::f32; }

  /// Rows of all stored tokens. [n_kv, capacity, d_head]; rows from n_tokens() on are undefined
  /// (inside a layer call: those of the running chunk are filled already).
  TensorView<float> k(Index layer) { return k_[static_cast<std::size_t>(layer)].view(); }
  TensorView<float> v(Index layer) { return v_[static_cast<std::size_t>(layer)].view(); }
  TensorView<const float> k(Index layer) const { return k_[static_cast<std::size_t>(layer)].view(); }
  TensorView<const float> v(Index layer) const { return v_[static_cast<std::size_t>(layer)].view(); }

  TensorView<const float> host_k(Index layer, Index begin, Index end) const override {
    return k(layer).range(1, begin, end);
  }
  TensorView<const float> host_v(Index layer, Index begin, Index end) const override {
    return v(layer).range(1, begin, end);
  }

  void advance(Index n) override;
  void truncate(Index n_tokens) override;
  /// Takes over all tokens of another cache of the same model, in place of its own. Throws ConfigError
  /// if there is no room.
  void copy_from(const KvCache& other);

 private:
  Index capacity_ = 0;
  Index n_tokens_ = 0;
  std::vector<Tensor<float>> k_;
  std::vector<Tensor<float>> v_;
};

}  // namespace kvscope
