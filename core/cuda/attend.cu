// Which attention kernel a call takes, and its arguments.
#include "core/cuda/attend.hpp"

#include <bit>
#include <string>

#include "core/cuda/attend_kernels.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kMostDecodeRows = 16;

[[noreturn]] void refuse(const std::string& expected, long long found) {
  throw ShapeError("attention on the GPU: expected " + expected + ", found " +
                   std::to_string(found));
}

}  // namespace

void check_shape(const CallShape& shape, bool takes_256) {
  if (shape.d_head != 64 && shape.d_head != 128 && !(takes_256 && shape.d_head == 256))
    refuse(takes_256 ? "d_head 64, 128 or 256" : "d_head 64 or 128", shape.d_head);
  if (shape.n_kv < 1) refuse("at least one KV head", shape.n_kv);
  if (shape.n_q < 1 || shape.n_q % shape.n_kv != 0)
    refuse("a multiple of " + std::to_string(shape.n_kv) + " query heads", shape.n_q);
  if (shape.n_batch < 1 || shape.n_batch > 65535)
    refuse("1 to 65535 sequences in a batch", shape.n_batch);
  if (shape.capacity < 1 || shape.capacity > (std::int64_t{1} << 30))
    refuse("place for 1 to 2^30 keys", shape.capacity);
  if (shape.dtype == DType::f16)
    throw ShapeError("attention on the GPU: expected rows in f32 or bf16, found f16");
  if (!(shape.score_scale > 0.0f))
    refuse("a positive score_scale", static_cast<long long>(shape.score_scale));
}

void attend(const CallShape& shape, const DeviceRows& rows, const DeviceLists& lists, void* out,
            float* lse, const AttendOptions& options, StreamHandle stream) {
  AttendBy by = options.by;
  const bool is_for_tensor_cores =
      shape.dtype == DType::bf16 && shape.d_head != 256 && options.rule.is_plain();
  if (by == AttendBy::automatic && !is_for_tensor_cores) by = AttendBy::rows;
  check_shape(shape, by == AttendBy::rows);
  if (rows.n_tok < 1) refuse("at least one query", rows.n_tok);
  if (lists.items != nullptr && lists.n_owners != shape.n_kv && lists.n_owners != shape.n_q)
    refuse("a list per KV head or per query head", lists.n_owners);
  if (!std::has_single_bit(static_cast<unsigned>(lists.page_size)))
    refuse("pages of a power of two keys", lists.page_size);
  // The last page listed may hold keys of the call itself, which would count twice.
  if (lists.items != nullptr && lists.page_size > 1 && options.own_keys == OwnKeys::causal)
    refuse("the call's own keys in lists of pages (OwnKeys::in_list), or pages of one key",
           lists.page_size);
  if (options.n_splits < 0 || options.n_splits > 16) refuse("1 to 16 splits", options.n_splits);
  const int n_owners = lists.items == nullptr ? shape.n_kv : lists.n_owners;
  const int n_rows = shape.n_q / n_owners * rows.n_tok;
  if (by == AttendBy::automatic)
    by = n_rows <= kMostDecodeRows ? AttendBy::decode : AttendBy::chunk;
  if (by != AttendBy::rows && shape.dtype == DType::f32)
    refuse("bf16 rows for the tensor cores' kernels, bytes per element 2", 4);
  if (by == AttendBy::decode && n_rows > kMostDecodeRows)
    refuse("at most 16 queries per list for the decode kernel", n_rows);
  if (by != AttendBy::rows && !options.rule.is_plain())
    throw ShapeError("attention on the GPU: windows, sinks and caps are computed by rows alone");
  if (options.rule.window > 0 && lists.items != nullptr)
    refuse("no lists beside a window", options.rule.window);
  if (by == AttendBy::rows) {
    if (options.n_splits > 8) refuse("at most 8 splits for the kernel of rows", options.n_splits);
    if (shape.dtype == DType::f32) {
      attend_rows(shape, attend_call<float>(shape, rows, lists, out, lse, options),
                  options.n_splits, stream);
    } else {
      attend_rows(shape, attend_call<Bf16>(shape, rows, lists, out, lse, options), options.n_splits,
                  stream);
    }
    return;
  }
  const auto call = attend_call<Bf16>(shape, rows, lists, out, lse, options);
  if (by == AttendBy::decode) {
    const int n_blocks = n_owners * shape.n_batch;
    attend_decode(shape, call, options.n_splits > 0 ? options.n_splits : splits_for(n_blocks, 8),
                  stream);
  } else {
    if (options.n_splits > 8) refuse("at most 8 splits for the chunk kernel", options.n_splits);
    attend_chunk(shape, call, options.n_splits, stream);
  }
}

}  // namespace kvscope::gpu
