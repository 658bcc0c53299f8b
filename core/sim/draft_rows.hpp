// What a draft model attended to: the rows that a verification hands to methods such as SpecAttn.
#pragma once

#include <span>
#include <vector>

#include "core/attention/question.hpp"
#include "core/base/parallel.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

/// Attention rows of a running call's queries from `first` on, averaged over the query heads; 0
/// where a query does not see a key. Products in f32, softmax and mean in f64. [n_tok - first,
/// keys of the context]. The same for any thread count.
Tensor<float> mean_attention(const AttentionQuestion& question, Index first, ThreadPool& pool);

/// Attention rows of the queries in each of `calls` (ascending), averaged over the query heads, of
/// every layer recorded in `draft`: [calls][n_layers][call.size(), call.end]; zero where a query
/// does not see a key. Exact softmax in f64, stored as f32. Keys are read once for all calls.
/// Throws ConfigError if the draft trace does not hold these positions.
std::vector<std::vector<Tensor<float>>> draft_attention_rows(const TraceSource& draft,
                                                             std::span<const TokenRange> calls,
                                                             ThreadPool& pool);

/// Throws ConfigError unless both traces were recorded over the same tokens (the draft may be
/// longer).
void require_same_tokens(const TraceSource& trace, const TraceSource& draft);

}  // namespace kvscope
