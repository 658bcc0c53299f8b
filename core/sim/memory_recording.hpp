// A model's dense pass over a text as a trace in memory: what methods learn from inside a program
// that has no recording.
#pragma once

#include <span>

#include "core/model/transformer.hpp"
#include "core/trace/memory_trace.hpp"

namespace kvscope {

/// q, k and v of all layers over `text`, in calls of `chunk` tokens; no log-sum-exp, no name, no
/// hash. Costs 4 bytes per element of q, k and v. Throws what Transformer::forward throws.
MemoryTrace record_in_memory(const Transformer& model, std::span<const TokenId> text, Index chunk,
                             ThreadPool& pool);

}  // namespace kvscope
