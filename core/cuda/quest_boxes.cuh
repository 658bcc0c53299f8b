// Quest's boxes on the device.
#pragma once

#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

/// A warp finds the largest and smallest number per channel of rows [begin, end); a lane has kEach
/// consecutive channels.
template <class T, int kEach>
__device__ __forceinline__ void find_box(const T* rows, int begin, int end, float (&high)[kEach],
                                         float (&low)[kEach]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int c = 0; c < kEach; ++c) high[c] = -INFINITY, low[c] = INFINITY;
#pragma unroll 16
  for (int pos = begin; pos < end; ++pos) {
    float x[kEach];
    load_row_part(rows + (static_cast<std::int64_t>(pos) * 32 + lane) * kEach, x);
#pragma unroll
    for (int c = 0; c < kEach; ++c) high[c] = fmaxf(high[c], x[c]), low[c] = fminf(low[c], x[c]);
  }
}

/// boxes [n_batch, n_kv, max_pages, 2, d_head] of dtype: the largest and smallest key per
/// channel, of the pages that hold positions n_past to n_past + n_tok.
void append_boxes(const CallShape& shape, const void* k, const std::int32_t* n_past, int n_tok,
                  int page_size, int max_pages, void* boxes, StreamHandle stream);

}  // namespace kvscope::gpu
