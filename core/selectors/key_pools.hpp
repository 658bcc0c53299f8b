// Means of windows of one KV head's keys (or values), which grow with the cache: compressed keys
// (NSA, InfLLM-V2), block means (MoBA) and landmarks (ShadowKV).
#pragma once

#include <vector>

#include "core/selectors/candidates.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

class KeyPools;

/// The windows of one KV head as a call sees them.
struct PoolMeans {
  const KeyPools& pools;
  TensorView<const float> means;  // [n_windows, d_head]; zeros for a window without keys
  std::vector<Index> n_alive;     // [n_windows], or empty: all keys of all windows
  Tensor<float> own;              // what means looks at where some keys are dead

  bool has_keys(Index window) const {
    return n_alive.empty() || n_alive[static_cast<std::size_t>(window)] > 0;
  }
};

/// Window i holds the positions [i * stride, i * stride + length). Only whole windows have a mean,
/// so what is appended or forgotten later changes none.
class KeyPools {
 public:
  /// length, stride >= 1.
  KeyPools(Index d_head, Index length, Index stride)
      : d_head_(d_head), length_(length), stride_(stride) {}

  /// Takes keys k [n_ctx, d_head] from position 0; those seen before must be what they were.
  void append_up_to(TensorView<const float> k);
  /// Forgets the windows that reach positions >= n_keys.
  void truncate(Index n_keys);

  /// Windows that end at or before position n_keys.
  Index count_whole(Index n_keys) const {
    return n_keys < length_ ? 0 : (n_keys - length_) / stride_ + 1;
  }
  TokenRange keys_of(Index window) const { return {window * stride_, window * stride_ + length_}; }
  Index stride() const { return stride_; }
  /// [n_windows, d_head]
  TensorView<const float> means() const { return {means_.data(), {n_windows_, d_head_}}; }

  /// What a call sees of them: means again from what is alive alone if the KV head has lost some of
  /// `rows` [n_kv, n_ctx, d_head] (its keys, or its values). Lives as long as these do not grow.
  PoolMeans means_in(const SelectCall& call, Index kv_head, TensorView<const float> rows) const;

 private:
  Index d_head_;
  Index length_;
  Index stride_;
  Index n_windows_ = 0;
  std::vector<float> means_;
};

}  // namespace kvscope
