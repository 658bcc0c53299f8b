// The keys and values of all tokens so far, per layer: what a chunk or a decode step attends to.
#pragma once

#include <vector>

#include "core/model/config.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Fixed-capacity cache. Keys are stored as they enter the dot product: after QK-norm and RoPE.
class KvCache {
 public:
  /// Room for `capacity` tokens. Throws ConfigError if that exceeds the model's max_positions.
  KvCache(const ModelConfig& config, Index capacity);

  Index capacity() const { return capacity_; }
  Index n_tokens() const { return n_tokens_; }
  Index n_layers() const { return static_cast<Index>(k_.size()); }

  /// Rows of all stored tokens. [n_kv, capacity, d_head]; rows from n_tokens() on are undefined
  /// (inside a layer call: those of the running chunk are filled already).
  TensorView<float> k(Index layer) { return k_[static_cast<std::size_t>(layer)].view(); }
  TensorView<float> v(Index layer) { return v_[static_cast<std::size_t>(layer)].view(); }
  TensorView<const float> k(Index layer) const { return k_[static_cast<std::size_t>(layer)].view(); }
  TensorView<const float> v(Index layer) const { return v_[static_cast<std::size_t>(layer)].view(); }

  /// Counts `n` more tokens as stored (the transformer calls it after the last layer).
  void advance(Index n);
  /// Forgets all tokens from position n_tokens on (speculative decoding rejects drafts).
  void truncate(Index n_tokens);
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
