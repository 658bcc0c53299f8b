// Listed keys by themselves on the device: how long each is (Knorm's score), and its cosine with
// the mean of all (KeyDiff's).
#pragma once

#include <cstdint>

#include "core/cuda/attend.hpp"
#include "core/cuda/growing_buffer.hpp"

namespace kvscope::gpu {

/// The keys of a list per KV head (items null: all before the call), then the call's own.
struct CosineCall {
  DeviceRows rows;  // q and v are not looked at
  DeviceLists lists;
  int most_keys = 0;       // of any list, the call's own included
  bool takes_unit = true;  // the mean of unit keys, or of the keys as they are
  double eps = 1e-12;      // vectors are divided by at least this norm
};

/// Scratch memory and the cosines of the last call. One sequence; calls put kernels into the stream
/// and return.
class KeyCosines {
 public:
  /// In f64. Keys are counted along the list. [n_kv, stride()]
  const double* compute(const CallShape& shape, const CosineCall& call, StreamHandle stream);
  /// 1 / max(|k|, eps) of the keys alone. [n_kv, stride()]
  const double* inverse_norms(const CallShape& shape, const CosineCall& call, StreamHandle stream);
  /// most_keys of the last call.
  std::int64_t stride() const { return stride_; }

 private:
  void run(const CallShape& shape, const CosineCall& call, bool needs_cosines, StreamHandle stream);

  GrowingBuffer inverse_norms_, parts_, means_, cosines_;
  std::int64_t stride_ = 0;
};

}  // namespace kvscope::gpu
