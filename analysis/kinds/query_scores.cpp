#include "analysis/kinds/query_scores.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/base/mapped.hpp"
#include "analysis/base/statistics.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

std::vector<TokenRange> prompt_chunks(const TraceInfo& info, Index chunk) {
  const Index n_prompt = std::clamp<Index>(info.n_prompt, 0, info.n_tokens);
  std::vector<TokenRange> chunks;
  for (Index begin = 0; begin < n_prompt; begin = chunks.back().end)
    chunks.push_back({begin, begin + std::min(chunk, n_prompt - begin)});
  return chunks;
}

std::vector<double> prompt_mean(const TraceInfo& info, TensorView<const float> rows,
                                const QueryScoring& scoring) {
  const Index n_prompt = std::clamp<Index>(info.n_prompt, 1, info.n_tokens);
  return quoka_mean_query(rows.range(0, 0, n_prompt), scoring.mean, scoring.eps);
}

std::vector<double> query_scores(const TraceInfo& info, TensorView<const float> q, QuerySpan span,
                                 const QueryScoring& scoring) {
  std::vector<double> scores;
  if (span == QuerySpan::prompt) {
    scores = quoka_cosines(q, prompt_mean(info, q, scoring), scoring.eps);
  } else {
    scores.assign(static_cast<std::size_t>(q.dim(0)), kNan);
    for (const TokenRange& chunk : prompt_chunks(info, scoring.chunk)) {
      if (chunk.size() < 2) continue;
      const auto rows = q.range(0, chunk.begin, chunk.end);
      const auto mean = quoka_mean_query(rows, scoring.mean, scoring.eps);
      const auto cosines = quoka_cosines(rows, mean, scoring.eps);
      std::copy(cosines.begin(), cosines.end(), scores.begin() + chunk.begin);
    }
  }
  for (double& score : scores) score = -score;
  return scores;
}

QueryCorrelation correlate_queries(std::span<const double> s_q, std::span<const double> log_weight,
                                   std::span<const double> position) {
  const auto weight = mapped<double>(log_weight, [](double log) { return std::exp(log); });
  QueryCorrelation result;
  result.value = {pearson(s_q, weight), pearson(s_q, log_weight), spearman(s_q, log_weight),
                  partial_correlation(s_q, log_weight, position),
                  partial_spearman(s_q, log_weight, position)};
  return result;
}

}  // namespace kvscope
