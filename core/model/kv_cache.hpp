// The keys and values of all tokens so far, per layer, in host memory as f32 or bf16: the
// lane backend's store.
#pragma once

#include <cstdint>
#include <vector>

#include "core/attention/sparse_attention.hpp"
#include "core/model/config.hpp"
#include "core/model/kv_store.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Memory for keys or values, in large pages where the system has them; contents undefined.
/// [n_kv, capacity, d_head]
Tensor<float> make_cache_rows(Shape shape);

/// "f32" or "bf16". Throws ConfigError for another name.
DType kv_dtype_from_name(std::string_view name);

/// Fixed-capacity cache. Keys are stored as they enter the dot product: after QK-norm and RoPE.
class KvCache final : public KvStore {
  /// Keys, or values, of one layer.
  struct Rows {
    /// [n_kv, capacity, d_head]; of bf16 ones: a copy, made when first asked for.
    mutable Tensor<float> floats;
    Tensor<std::uint16_t> halves;  // [n_kv, capacity, d_head] or empty
    mutable Index n_widened = 0;   // positions of halves that floats holds
    TensorView<std::uint16_t> halves_from(Index pos_begin);
    TensorView<const float> host(Index begin, Index end) const;
    void copy_from(TensorView<const float> from);
    void copy_from(TensorView<const std::uint16_t> from, Index n_tokens);
  };
  Rows& at(std::vector<Rows>& rows, Index layer) { return rows[place(layer)]; }
  const Rows& at(const std::vector<Rows>& rows, Index layer) const { return rows[place(layer)]; }
  /// The layer itself, or the one whose keys it attends to.
  std::size_t place(Index layer) const { return places_[static_cast<std::size_t>(layer)]; }

 public:
  /// Room for `capacity` tokens. Throws ConfigError if that exceeds the model's max_positions.
  /// dtype: f32 or bf16.
  KvCache(const ModelConfig& config, Index capacity, DType dtype = DType::f32);

  /// Rows of all stored tokens in f32. [n_kv, capacity, d_head]; rows from n_tokens() on are
  /// undefined (inside a layer call: those of the running chunk are filled already). Only of a
  /// cache in f32.
  TensorView<float> k(Index layer) { return at(k_, layer).floats.view(); }
  TensorView<float> v(Index layer) { return at(v_, layer).floats.view(); }
  TensorView<const float> k(Index layer) const { return at(k_, layer).floats.view(); }
  TensorView<const float> v(Index layer) const { return at(v_, layer).floats.view(); }

  /// The same of a cache in bf16, with the bits of bf16.
  TensorView<const std::uint16_t> k_halves(Index layer) const {
    return at(k_, layer).halves.view();
  }
  TensorView<const std::uint16_t> v_halves(Index layer) const {
    return at(v_, layer).halves.view();
  }
  /// Where the rows of positions >= pos_begin go, which are about to be written: host rows of
  /// them are stale.
  TensorView<std::uint16_t> k_halves_from(Index layer, Index pos_begin) {
    return at(k_, layer).halves_from(pos_begin);
  }
  TensorView<std::uint16_t> v_halves_from(Index layer, Index pos_begin) {
    return at(v_, layer).halves_from(pos_begin);
  }

  TensorView<const float> host_k(Index layer, Index begin, Index end) const override {
    return at(k_, layer).host(begin, end);
  }
  TensorView<const float> host_v(Index layer, Index begin, Index end) const override {
    return at(v_, layer).host(begin, end);
  }

  /// What attention over lists of this cache uses again in every call.
  ListMemory& lists() { return lists_; }

  void copy_from(const KvStore& other) override;

 private:
  std::vector<std::size_t> places_;  // by layer
  std::vector<Rows> k_;              // by layer; empty where the keys are another one's
  std::vector<Rows> v_;
  ListMemory lists_;
};

}  // namespace kvscope
