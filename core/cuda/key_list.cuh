// The keys of one list, counted from 0: listed ones (or those of listed pages), then the call's
// own.
#pragma once

#include "core/cuda/call_shape.hpp"

namespace kvscope::gpu {

/// Where a kernel finds its lists. items == nullptr: every key before the call.
struct ListSource {
  DeviceLists lists;
  const std::int32_t* n_past;  // [n_batch]
  int n_tok;
  int log2_page;  // of page_size; pages of the kernels have a power of two
  bool adds_own;  // the call's own keys follow the listed ones, causally
};

struct KeyList {
  const std::int32_t* items;
  int n_listed;  // keys before the call's own ones
  int n_keys;    // all
  int log2_page;
  int own_begin;  // position of the first own key
  int n_context;  // end of all positions

  /// finds_end false: the keys that the last page does not have are counted too (one look into the
  /// list less), and the caller leaves out positions from n_context on.
  __device__ __forceinline__ KeyList(const ListSource& source, int batch, int owner,
                                     bool finds_end = true)
      : log2_page(source.log2_page), own_begin(source.n_past[batch]) {
    n_context = own_begin + source.n_tok;
    if (source.lists.items == nullptr) {
      items = nullptr;
      n_listed = source.adds_own ? own_begin : n_context;
    } else {
      const int list = batch * source.lists.n_owners + owner;
      const int count = source.lists.counts[list];
      items = source.lists.items + static_cast<std::int64_t>(list) * source.lists.stride;
      n_listed = count << log2_page;
      // only the last page of a list, the last one of the cache, may have fewer keys
      if (finds_end && count > 0 && log2_page > 0) {
        const int end = (items[count - 1] + 1) << log2_page;
        if (end > n_context) n_listed -= end - n_context;
      }
    }
    n_keys = n_listed + (source.adds_own ? source.n_tok : 0);
  }

  /// Position of key `index`, which must be below n_keys.
  __device__ __forceinline__ int position(int index) const {
    if (index >= n_listed) return own_begin + index - n_listed;
    if (items == nullptr) return index;
    const int page = __ldg(items + (index >> log2_page));
    return (page << log2_page) + (index & ((1 << log2_page) - 1));
  }

  /// True if the call's query `row` sees key `index`.
  __device__ __forceinline__ bool sees(int row, int index) const {
    return index < n_listed || (index < n_keys && index - n_listed <= row);
  }
};

}  // namespace kvscope::gpu
