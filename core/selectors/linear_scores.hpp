// Products of a few vectors per KV head with that head's keys, on all threads of the call's engine:
// a key is read once for all vectors of its head.
#pragma once

#include <span>

#include "core/selectors/selector.hpp"

namespace kvscope {

/// out[i][t] = vectors[i] . key(keys.begin + t) of KV head i / (out.size() / n_kv). vectors
/// [out.size(), d_head]; out: as many rows for each KV head, in order, [keys.size()]. In f64 each
/// product is that of KeyDots for one row.
void linear_scores(const SelectCall& call, std::span<const double> vectors, TokenRange keys,
                   std::span<const std::span<double>> out);

}  // namespace kvscope
