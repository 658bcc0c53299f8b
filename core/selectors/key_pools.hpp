// Means of windows of one KV head's keys (or values), which grow with the cache: compressed keys
// (NSA, InfLLM-V2), block means (MoBA) and landmarks (ShadowKV).
#pragma once

#include <vector>

#include "core/selectors/candidates.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

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

  /// Means again from what is alive alone, for a call whose KV head has lost some of `rows`
  /// [n_kv, n_ctx, d_head] (its keys, or its values): [n_windows, d_head], and to n_alive how many
  /// each is made of; a window without any has zeros.
  Tensor<float> alive_means(const SelectCall& call, Index kv_head, TensorView<const float> rows,
                            std::vector<Index>& n_alive) const;

 private:
  Index d_head_;
  Index length_;
  Index stride_;
  Index n_windows_ = 0;
  std::vector<float> means_;
};

}  // namespace kvscope
