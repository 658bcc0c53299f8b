// What a draft model attended to: the rows that a verification hands to methods such as SpecAttn.
#pragma once

#include <vector>

#include "core/base/parallel.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

/// Attention rows of the queries in `rows`, averaged over the query heads, of every layer recorded
/// in `draft`: [n_layers][rows.size(), rows.end]; zero where a query does not see a key. Exact
/// softmax in f64, stored as f32. Throws ConfigError if the draft trace does not hold these
/// positions.
std::vector<Tensor<float>> draft_attention_rows(const TraceSource& draft, TokenRange rows,
                                                ThreadPool& pool);

/// Throws ConfigError unless both traces were recorded over the same tokens (the draft may be
/// longer).
void require_same_tokens(const TraceSource& trace, const TraceSource& draft);

}  // namespace kvscope
