#include "traces/verify_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/attention/key_kernels.hpp"
#include "core/attention/row_kernels.hpp"
#include "core/attention/visible.hpp"
#include "traces/attention_rows.hpp"

namespace kvscope {

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return std::ldexp(1.0, -11);
    case DType::bf16:
      return std::ldexp(1.0, -8);
    case DType::f32:
      break;
  }
  return std::ldexp(1.0, -24);
}

namespace {

/// One row in double precision.
struct ExactRow {
  TokenRange seen;           // the keys of
  std::vector<double> prob;  // [seen.size()]
  double lse = 0;
  double sum_of_prob = 0;  // 1, or less where a sink takes a share
  double output_norm = 0;
  double score_slack = 0;  // how far storage rounding can have moved any of its scores
};

ExactRow recompute(std::span<const float> q, const CheckedHead& head, TokenRange seen,
                   std::optional<double> sink_logit, const ScoreRule& rule, double roundoff) {
  const auto seen_of = [&](const Tensor<float>& rows) {
    return rows.view().range(0, seen.begin, seen.end);
  };
  ExactRow row;
  row.seen = seen;
  row.prob.resize(static_cast<std::size_t>(seen.size()));
  const std::vector<double> wide(q.begin(), q.end());
  key_dots(wide, 1, seen_of(head.keys), row.prob.data(), seen.size());
  for (double& score : row.prob) score = rule.of(score);
  double largest = max_of(row.prob);
  if (sink_logit) largest = std::max(largest, *sink_logit);
  double sum = exp_row(row.prob, largest, row.prob).sum;
  if (sink_logit) sum += std::exp(*sink_logit - largest);
  for (double& p : row.prob) p /= sum;
  std::vector<double> output(q.size(), 0.0);
  row.sum_of_prob = add_weighted_rows(row.prob, seen_of(head.values), output);
  row.lse = largest + std::log(sum);
  row.output_norm = std::sqrt(dot_of(output, output));
  const auto norms =
      std::span(head.key_norms).subspan(static_cast<std::size_t>(seen.begin), row.prob.size());
  row.score_slack =
      2 * roundoff * std::fabs(rule.scale) * std::sqrt(dot_of(wide, wide) * max_of(norms));
  return row;
}

}  // namespace

RowTolerance base_tolerance(DType dtype) {
  // On top of these come the slack of each row and, for dense attention, the rounding of the stored
  // probability.
  return {1e-4, 1e-4 + unit_roundoff(dtype)};
}

CheckedHead::CheckedHead(Tensor<float> k, Tensor<float> v, DType dtype)
    : keys(std::move(k)), values(std::move(v)), key_norms(static_cast<std::size_t>(keys.dim(0))) {
  squared_norms(keys.view(), key_norms);
  if (dtype != DType::f32) key_roundings = rounding_variances(keys.view(), dtype);
}

RowCheck check_rows(const TraceFile& trace, Index layer, Index q_head,
                    const std::vector<Index>& positions, const CheckedHead& head) {
  const TraceInfo& info = trace.info();
  const RowTolerance base = base_tolerance(info.dtype);
  const double roundoff = unit_roundoff(info.dtype);
  std::optional<Index> window;
  if (!info.window.empty()) window = info.window[static_cast<std::size_t>(layer)];
  RowCheck check;
  const auto complain = [&](Index pos, const std::string& what) {
    check.problems.push_back(
        fmt::format("/layers/{}: query head {}, row {}: {}", layer, q_head, pos, what));
  };
  for (const Index pos : positions) {
    const TokenRange one = {pos, pos + 1};
    const Tensor<float> q = trace.read_q(layer, q_head, one);
    const TokenRange seen = {first_visible(pos, window), pos + 1};
    const ExactRow exact = recompute(q.view().row(0), head, seen, info.sink_logit(layer, q_head),
                                     info.score_rule(), roundoff);
    ++check.n_rows;
    check.output_norm = std::max(check.output_norm, exact.output_norm);
    if (!std::isfinite(exact.lse) || !std::isfinite(exact.output_norm)) {
      complain(pos, "softmax(QK^T)V is not finite");
      continue;
    }
    if (info.capture.lse) {
      const double recorded = trace.read_lse(layer, q_head, one)(0);
      const double error = std::fabs(recorded - exact.lse);
      check.lse_error = std::max(check.lse_error, error);
      const double allowed = base.lse + exact.score_slack + 1e-6 * std::fabs(exact.lse);
      const double rounding =
          head.key_roundings.view().empty()
              ? 0.0  // of no interest beside the sums' own rounding
              : rounding_of_lse(q.view().row(0), head.keys.view().range(0, seen.begin, seen.end),
                                head.key_roundings.view().range(0, seen.begin, seen.end),
                                exact.prob, info.score_scale, info.dtype);
      check.lse_rows.push_back(
          {layer, q_head, pos, recorded, exact.lse, rounding, /*is_reported=*/error > allowed});
      if (error > allowed) {
        complain(
            pos,
            fmt::format("lse is {:.6g}, recomputed from q and k {:.6g} (allowed difference {:.2g})",
                        recorded, exact.lse, allowed));
      }
    }
    // A score that moves by s changes a probability p by at most p (exp(2 s) - 1).
    const auto allowed_prob = [&](double p) {
      return base.attn + p * std::expm1(2 * exact.score_slack);
    };
    const auto exact_prob = [&](Index key) {
      return key < exact.seen.begin || key > pos
                 ? 0.0
                 : exact.prob[static_cast<std::size_t>(key - exact.seen.begin)];
    };
    if (info.capture.attn_dense) {
      const Tensor<float> attn = trace.read_attn(layer, q_head, one);
      double sum = 0;
      for (Index key = 0; key < info.n_tokens; ++key) {
        const double p = exact_prob(key);
        const double error = std::fabs(attn(0, key) - p);
        sum += attn(0, key);
        check.attn_error = std::max(check.attn_error, error);
        const bool visible = key >= exact.seen.begin && key <= pos;
        if (error > allowed_prob(p) || (!visible && attn(0, key) != 0.0f)) {
          complain(pos, fmt::format("attention to key {} is {:.6g}, recomputed {:.6g}", key,
                                    attn(0, key), p));
          break;
        }
      }
      check.row_sum_error = std::max(check.row_sum_error, std::fabs(sum - exact.sum_of_prob));
      if (std::fabs(sum - exact.sum_of_prob) >
          1e-3 + 2 * roundoff + std::expm1(2 * exact.score_slack)) {
        complain(pos,
                 fmt::format("attention sums to {:.6g}, expected {:.6g}", sum, exact.sum_of_prob));
      }
    }
    if (info.capture.attn_topk > 0) {
      const TopkRows top = trace.read_topk(layer, q_head, one);
      const Index n =
          std::min<Index>(info.capture.attn_topk, static_cast<Index>(exact.prob.size()));
      std::vector<double> sorted = exact.prob;
      std::partial_sort(sorted.begin(), sorted.begin() + n, sorted.end(), std::greater<>());
      for (Index rank = 0; rank < info.capture.attn_topk; ++rank) {
        const Index key = top.pos(0, rank);
        const double recorded = top.prob(0, rank);
        if (rank >= n ? key != -1 : key < exact.seen.begin || key > pos) {
          complain(pos, fmt::format("top-k rank {} names key {}, which is not a visible one", rank,
                                    key));
          break;
        }
        if (rank >= n) continue;
        const double p = exact_prob(key);
        const double best = sorted[static_cast<std::size_t>(rank)];
        check.attn_error = std::max(check.attn_error, std::fabs(recorded - p));
        if (std::fabs(recorded - p) > allowed_prob(p) || best - p > 2 * allowed_prob(best)) {
          complain(pos, fmt::format("top-k rank {} is key {} with {:.6g}; recomputed it has {:.6g} "
                                    "and rank {} has {:.6g}",
                                    rank, key, recorded, p, rank, best));
          break;
        }
      }
    }
  }
  return check;
}

}  // namespace kvscope
