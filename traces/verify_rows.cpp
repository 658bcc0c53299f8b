#include "traces/verify_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

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

double norm_of(std::span<const float> row) {
  double sum = 0;
  for (const float x : row) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

/// One row in double precision.
struct ExactRow {
  Index first = 0;           // first visible key
  std::vector<double> prob;  // of keys first ... pos
  double lse = 0;
  double sum_of_prob = 0;  // 1, or less where a sink takes a share
  double output_norm = 0;
  double score_slack = 0;  // how far storage rounding can have moved any of its scores
};

ExactRow recompute(std::span<const float> q, TensorView<const float> keys,
                   TensorView<const float> values, Index pos, std::optional<Index> window,
                   std::optional<double> sink_logit, const ScoreRule& rule, double roundoff) {
  ExactRow row;
  row.first = first_visible(pos, window);
  double largest = -INFINITY;
  double largest_key = 0;
  for (Index key = row.first; key <= pos; ++key) {
    const auto k = keys.row(key);
    double score = 0;
    for (std::size_t c = 0; c < q.size(); ++c) score += static_cast<double>(q[c]) * k[c];
    row.prob.push_back(rule.of(score));
    largest = std::max(largest, row.prob.back());
    largest_key = std::max(largest_key, norm_of(k));
  }
  if (sink_logit) largest = std::max(largest, *sink_logit);
  double sum = sink_logit ? std::exp(*sink_logit - largest) : 0.0;
  for (double& p : row.prob) sum += p = std::exp(p - largest);
  std::vector<double> output(q.size(), 0.0);
  for (std::size_t i = 0; i < row.prob.size(); ++i) {
    row.prob[i] /= sum;
    row.sum_of_prob += row.prob[i];
    const auto v = values.row(row.first + static_cast<Index>(i));
    for (std::size_t c = 0; c < output.size(); ++c) output[c] += row.prob[i] * v[c];
  }
  row.lse = largest + std::log(sum);
  double squares = 0;
  for (const double x : output) squares += x * x;
  row.output_norm = std::sqrt(squares);
  row.score_slack = 2 * roundoff * std::fabs(rule.scale) * norm_of(q) * largest_key;
  return row;
}

}  // namespace

RowTolerance base_tolerance(DType dtype) {
  // On top of these come the slack of each row and, for dense attention, the rounding of the stored
  // probability.
  return {1e-4, 1e-4 + unit_roundoff(dtype)};
}

RowCheck check_rows(const TraceFile& trace, Index layer, Index q_head,
                    const std::vector<Index>& positions, TensorView<const float> keys,
                    TensorView<const float> values) {
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
    const ExactRow exact = recompute(q.view().row(0), keys, values, pos, window,
                                     info.sink_logit(layer, q_head), info.score_rule(), roundoff);
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
      const double rounding = rounding_of_lse(q.view().row(0), keys, exact.first, exact.prob,
                                              info.score_scale, info.dtype);
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
      return key < exact.first || key > pos
                 ? 0.0
                 : exact.prob[static_cast<std::size_t>(key - exact.first)];
    };
    if (info.capture.attn_dense) {
      const Tensor<float> attn = trace.read_attn(layer, q_head, one);
      double sum = 0;
      for (Index key = 0; key < info.n_tokens; ++key) {
        const double p = exact_prob(key);
        const double error = std::fabs(attn(0, key) - p);
        sum += attn(0, key);
        check.attn_error = std::max(check.attn_error, error);
        const bool visible = key >= exact.first && key <= pos;
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
        if (rank >= n ? key != -1 : key < exact.first || key > pos) {
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
