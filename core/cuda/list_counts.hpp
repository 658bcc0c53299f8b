// How many keys a choice keeps, counted on the device.
#pragma once

#include <cstdint>

#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

/// The lists of one sequence's call, one per row and owner: [n_tok, n_owners, stride].
struct ListCountCall {
  DeviceLists lists;
  bool adds_own = false;  // each row also sees the call's keys up to its own, which are not listed
  int n_q = 0;
  int n_kv = 0;
  int pos_begin = 0;
  int n_tok = 0;
  /// [n_q] keys that a query head's rows attend to, each row for itself; [n_kv] keys that any row
  /// of a KV head's group attends to.
  std::uint64_t* attended = nullptr;
  std::uint64_t* loaded = nullptr;
};

/// Puts the kernel into the stream. Lists have no key behind their row's own, but for the rest of
/// the last page of a call of one token, which does not count.
void count_lists(const ListCountCall& call, StreamHandle stream);

}  // namespace kvscope::gpu
