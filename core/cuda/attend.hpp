// Attention on the device over one list of keys per KV head or query head, and densely.
#pragma once

#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

/// One call's rows; shapes in CallShape. Kernels read them before the kernel ahead in the stream
/// has ended: only one that lets no other begin early may have written them (not take_turn()).
struct DeviceRows {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const std::int32_t* n_past = nullptr;  // [n_batch]
  int n_tok = 0;
};

/// What a query sees beside its list.
enum class OwnKeys {
  causal,   // the call's own keys up to its own position; lists name keys before the call
  in_list,  // nothing: lists name the call's own keys too (decode: pages up to the last one)
};

/// Which kernel runs; automatic: by the shapes. The others are for tests and measurements.
enum class AttendBy { automatic, chunk, decode, rows };

/// What layers have beside a plain softmax; only the kernel `rows` computes it. Windows are of
/// calls without lists.
struct AttendRule {
  int window = 0;  // positions that a query sees; 0: all
  float score_cap = 0.0f;
  const float* sink_logits = nullptr;  // [n_q]

  bool is_plain() const { return window == 0 && score_cap == 0.0f && sink_logits == nullptr; }
};

struct AttendOptions {
  OwnKeys own_keys = OwnKeys::causal;
  AttendBy by = AttendBy::automatic;
  /// Blocks that share a list's keys: 1 to 8 (decode up to 16); 0: by the shapes.
  int n_splits = 0;
  AttendRule rule = {};
};

/// out = softmax(score_scale q k^T) v over the keys of each query's list (without items: all before
/// the call) and its own ones, lse the logarithm of the sum of exponents over the same keys. Sums
/// in f32; bf16 probabilities with bf16 rows. The merge of splits happens in shared memory: no
/// scratch memory, one kernel.
///   chunk   tensor cores, tiles of 64 to 192 queries of one KV head by 64 listed keys; bf16
///   decode  tensor cores, at most 16 queries per list, keys go to registers; bf16
///   rows    plain f32 arithmetic; both dtypes, d_head 256 too, rules that are not plain; without a
///           list a query's bits depend neither on the call's other queries nor on n_splits
/// Throws ShapeError if a kernel that is asked for does not take the shapes.
void attend(const CallShape& shape, const DeviceRows& rows, const DeviceLists& lists, void* out,
            float* lse, const AttendOptions& options, StreamHandle stream);

}  // namespace kvscope::gpu
