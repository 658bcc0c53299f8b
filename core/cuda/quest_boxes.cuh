// Quest's boxes on the device.
#pragma once

#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

/// boxes [n_batch, n_kv, max_pages, 2, d_head] of dtype: the largest and smallest key per
/// channel, of the pages that hold positions n_past to n_past + n_tok.
void append_boxes(const CallShape& shape, const void* k, const std::int32_t* n_past, int n_tok,
                  int page_size, int max_pages, void* boxes, StreamHandle stream);

}  // namespace kvscope::gpu
