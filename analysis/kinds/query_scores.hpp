// QuoKA's query score S_q = -cos(q, M) of every recorded query, M the mean query of the whole
// prompt (the paper's figure 2) or of the query's own prefill chunk (what the selection goes by),
// and how it goes with the largest attention weight: plain, by ranks, and with what the position
// explains taken out of both.
#pragma once

#include <array>
#include <span>
#include <string_view>
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

/// The coefficients, each in [-1, 1] or NaN (see statistics.hpp for when). S_q and the weight both
/// change with the position (a later query sees more keys, so its largest weight is smaller): only
/// the partial coefficients say what is left of the relation at equal position.
struct QueryCorrelation {
  static constexpr std::array<std::string_view, 5> kNames = {"pearson", "pearson_log", "spearman",
                                                             "partial_pearson", "partial_spearman"};
  static constexpr std::array<std::string_view, 5> kTexts = {
      "Pearson of S_q and the largest weight", "Pearson of S_q and the log of the largest weight",
      "Spearman of S_q and the largest weight",
      "partial Pearson of S_q and the log of the largest weight, given the position",
      "partial Spearman of S_q and the largest weight, given the position"};
  std::array<double, 5> value{};  // in the order of kNames
};

/// All coefficients of s_q [n] and log_weight [n] (natural log, never exp'd where the log is
/// wanted); `position` [n]: what the partial ones hold fixed. Entries with NaN are left out.
QueryCorrelation correlate_queries(std::span<const double> s_q, std::span<const double> log_weight,
                                   std::span<const double> position);

}  // namespace kvscope
