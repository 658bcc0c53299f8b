// The keys and values of all tokens so far in device memory: the CUDA backend's store.
#pragma once

#include <memory>
#include <vector>

#include "core/attention/list_plan.hpp"
#include "core/cuda/call_shape.hpp"
#include "core/cuda/quest.hpp"
#include "core/cuda/quoka.hpp"
#include "core/cuda/transfer.hpp"
#include "core/model/backend.hpp"
#include "core/model/config.hpp"
#include "core/model/kv_store.hpp"

namespace kvscope::gpu {

/// Fixed-capacity rows, [n_kv, capacity, d_head] per layer for keys and for values. Host rows are
/// copies that are made, position by position, when they are asked for.
///
/// Work on a store is in one stream at a time: the running call's, and between calls its own, which
/// is empty when a call begins. So each call may be in another stream, and others may read a store
/// that no call fills.
class KvRows final : public KvStore {
 public:
  /// `backend` outlives its stores. Throws ConfigError if capacity exceeds the model's
  /// max_positions, DeviceMemoryError if the memory does not suffice.
  KvRows(const ModelConfig& config, Index capacity, DType dtype, int device,
         const Backend* backend);
  /// What a store takes, without what methods note of its keys.
  static std::size_t device_bytes(const ModelConfig& config, Index capacity, DType dtype);

  void copy_from(const KvStore& other) override;
  TensorView<const float> host_k(Index layer, Index begin, Index end) const override {
    return host(k_, host_k_[static_cast<std::size_t>(layer)], layer, begin, end);
  }
  TensorView<const float> host_v(Index layer, Index begin, Index end) const override {
    return host(v_, host_v_[static_cast<std::size_t>(layer)], layer, begin, end);
  }

  /// That made it: another one of the same device has other layers, or other weights.
  const Backend* backend() const { return backend_; }
  std::byte* k(Index layer) const { return k_.data() + static_cast<std::size_t>(layer) * bytes_; }
  std::byte* v(Index layer) const { return v_.data() + static_cast<std::size_t>(layer) * bytes_; }
  /// A call begins at n_tokens(): host copies of later rows, and what methods noted of them, are
  /// stale. Also puts the position where kernels look. Work is in `stream` until end_call().
  void begin_call(StreamHandle stream);
  /// When all of the call's work is done.
  void end_call() { stream_ = own_stream_; }
  /// n_tokens() of the running call, for kernels.
  const std::int32_t* n_past() const {
    return reinterpret_cast<const std::int32_t*>(positions_.data());
  }
  /// The shape of a layer's attention for the kernels of attend.hpp, quoka.hpp and quest.hpp.
  CallShape call_shape() const;

  /// The methods' state of one layer, ready to choose for a call of n_tok tokens from n_tokens()
  /// on, with everything noted about the keys before it. The call's own keys are the caller's to
  /// note: QuoKA's choose() does, and Quest's step(), or append().
  Quoka& quoka(Index layer, const ListPlan& plan, Index n_tok);
  Quest& quest(Index layer, ListPlan plan, Index n_tok);

 private:
  struct HostRows {
    Tensor<float> rows;  // [n_kv, capacity, d_head], made when first asked for
    Index n_copied = 0;  // positions that it holds
  };
  /// A method's state in one layer; made for one plan.
  template <class Method>
  struct Noted {
    std::unique_ptr<Method> method;
    ListPlan plan;
    Index most_tok = 0;
    Index n_noted = 0;  // positions that the state knows
  };
  TensorView<const float> host(const DeviceBuffer& from, HostRows& to, Index layer, Index begin,
                               Index end) const;
  void copy_from_host(const KvStore& other);
  void forget_from(Index n_tokens);
  /// Writes a position where append() of a method reads it.
  const std::int32_t* noted_until(Index position);

  Index n_kv_, n_q_, d_head_;
  float score_scale_;
  int device_;
  const Backend* backend_;
  Stream own_stream_;
  StreamHandle stream_;    // the running call's, or the own one
  std::size_t bytes_ = 0;  // of a layer's keys
  DeviceBuffer k_, v_;     // [n_layers, n_kv, capacity, d_head]
  DeviceBuffer positions_;
  mutable std::vector<HostRows> host_k_, host_v_;
  mutable PinnedBuffer staging_;
  std::vector<Noted<Quoka>> quoka_;
  std::vector<Noted<Quest>> quest_;
};

}  // namespace kvscope::gpu
