// QuoKA's query score S_q = -cos(q, M) of every recorded query, M the mean query of the whole
// prompt (the paper's figure 2) or of the query's own prefill chunk (what the selection goes by).
#pragma once

#include <vector>

#include "core/attention/quoka_scores.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// Whose mean a query is compared with.
enum class QuerySpan { prompt, chunk };

struct QueryScoring {
  Index chunk = 128;  // B_CP
  QuokaMean mean = QuokaMean::raw;
  double eps = 1e-12;  // vectors are divided by max(norm, eps)
};

/// Prefill chunks of the prompt, [begin, end) each; the last one may be shorter. Decoded positions
/// belong to none.
std::vector<TokenRange> prompt_chunks(const TraceInfo& info, Index chunk);

/// Mean of the prompt's rows of q (or k) [n_tokens, d_head]; without a prompt, the first row.
std::vector<double> prompt_mean(const TraceInfo& info, TensorView<const float> rows,
                                const QueryScoring& scoring);

/// S_q of each row of q [n_tokens, d_head]. Against the prompt's mean, decoded queries are scored
/// too. Against the chunk's mean, a query alone in its chunk (every decoded one) is its own mean
/// and gets NaN.
std::vector<double> query_scores(const TraceInfo& info, TensorView<const float> q, QuerySpan span,
                                 const QueryScoring& scoring);

}  // namespace kvscope
