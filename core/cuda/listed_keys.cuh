// Lists of keys from lists of pages, with keys that are kept by rule behind them.
#pragma once

#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

constexpr int kOfCutPage = -1;  // those of the page that the call's first token cuts

/// keys [n_batch, n_owners, stride], counts [n_batch, n_owners]: the keys of the listed pages, and
/// behind them the n_latest keys before the call.
void list_keys(const DeviceLists& pages, int n_batch, const std::int32_t* n_past, int n_latest,
               std::int32_t* keys, std::int32_t* counts, int stride, StreamHandle stream);

}  // namespace kvscope::gpu
