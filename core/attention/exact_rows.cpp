#include "core/attention/exact_rows.hpp"

#include <algorithm>
#include <cmath>

#include "core/attention/visible.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {
constexpr std::size_t kExactRowsAtOnce = 16;
}

std::vector<double> widened_rows(std::span<const std::span<const float>> rows, double factor) {
  std::vector<double> out;
  if (!rows.empty()) out.reserve(rows.size() * rows.front().size());
  for (const auto& row : rows) {
    for (const float x : row) out.push_back(factor * static_cast<double>(x));
  }
  return out;
}

void visit_score_rows(const RowSource& source, std::span<const Index> positions, ScoreRows& scratch,
                      const RowVisitor& visit) {
  std::vector<std::span<const float>> queries;
  for (std::size_t first = 0; first < positions.size(); first += kExactRowsAtOnce) {
    const auto batch =
        positions.subspan(first, std::min(kExactRowsAtOnce, positions.size() - first));
    queries.clear();
    TokenRange seen{source.keys.n_keys(), 0};
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Index pos = batch[i];
      queries.push_back(
          source.q.row(source.is_picked ? static_cast<Index>(first + i) : pos - source.q_begin));
      const TokenRange visible = visible_keys(pos, source.window);
      seen = {std::min(seen.begin, visible.begin), std::max(seen.end, visible.end)};
    }
    scratch.compute(widened_rows(queries, source.score.scale), static_cast<Index>(batch.size()),
                    source.keys, seen);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const TokenRange visible = visible_keys(batch[i], source.window);
      const std::span<double> row = scratch.row(static_cast<Index>(i), visible);
      soft_cap(row, source.score.cap);
      visit(static_cast<Index>(first + i), row, visible);
    }
  }
}

double lse_with_sink_logit(double keys_lse, std::optional<double> sink_logit) {
  if (!sink_logit) return keys_lse;
  return std::max(keys_lse, *sink_logit) + std::log1p(std::exp(-std::abs(keys_lse - *sink_logit)));
}

RowSums row_sums(std::span<const double> scores, std::optional<double> sink_logit) {
  const double shift = max_of(scores);
  const ExpSums sums = exp_sums(scores, shift);
  const double log_sum = std::log(sums.sum);
  RowSums out;
  out.keys_lse = shift + log_sum;
  out.lse = lse_with_sink_logit(out.keys_lse, sink_logit);
  out.breadth = std::exp(log_sum - sums.weighted / sums.sum);
  return out;
}

LargestWeight largest_weight(std::span<const double> scores, TokenRange visible, TokenRange counted,
                             double lse) {
  LargestWeight out;
  if (counted.size() < 1) return out;
  const auto part = scores.subspan(static_cast<std::size_t>(counted.begin - visible.begin),
                                   static_cast<std::size_t>(counted.size()));
  const double best = max_of(part);
  out.key = counted.begin + (std::find(part.begin(), part.end(), best) - part.begin());
  out.log_weight = best - lse;
  return out;
}

}  // namespace kvscope
