#include "traces/verify_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/attention/key_kernels.hpp"
#include "core/attention/row_kernels.hpp"
#include "core/attention/visible.hpp"

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

/// The checks of one head's rows, one after the other.
class RowChecker {
 public:
  RowChecker(const TraceFile& trace, Index layer, Index q_head, const CheckedHead& head)
      : trace_(trace),
        info_(trace.info()),
        layer_(layer),
        q_head_(q_head),
        head_(head),
        base_(base_tolerance(info_.dtype)),
        roundoff_(unit_roundoff(info_.dtype)) {
    window_ = info_.window_of(layer);
  }

  void check(Index pos) {
    pos_ = pos;
    q_ = trace_.read_q(layer_, q_head_, {pos, pos + 1});
    seen_ = visible_keys(pos, window_);
    exact_ = recompute(q_.view().row(0), head_, seen_, info_.sink_logit(layer_, q_head_),
                       info_.shape(layer_).score_rule(), roundoff_);
    ++result_.n_rows;
    result_.output_norm = std::max(result_.output_norm, exact_.output_norm);
    if (!std::isfinite(exact_.lse) || !std::isfinite(exact_.output_norm))
      return complain("softmax(QK^T)V is not finite");
    if (info_.capture.lse) check_lse();
    if (info_.capture.attn_dense) check_dense();
    if (info_.capture.attn_topk > 0) check_topk();
  }

  RowCheck take() { return std::move(result_); }

 private:
  void complain(const std::string& what) {
    result_.problems.push_back(
        fmt::format("/layers/{}: query head {}, row {}: {}", layer_, q_head_, pos_, what));
  }

  void check_lse() {
    const double recorded = trace_.read_lse(layer_, q_head_, {pos_, pos_ + 1})(0);
    const double error = std::fabs(recorded - exact_.lse);
    result_.lse_error = std::max(result_.lse_error, error);
    const double allowed = base_.lse + exact_.score_slack + 1e-6 * std::fabs(exact_.lse);
    const double rounding =
        head_.key_roundings.view().empty()
            ? 0.0  // of no interest beside the sums' own rounding
            : rounding_of_lse(q_.view().row(0), head_.keys.view().range(0, seen_.begin, seen_.end),
                              head_.key_roundings.view().range(0, seen_.begin, seen_.end),
                              exact_.prob, info_.shape(layer_).score_scale, info_.dtype);
    const bool is_reported = error > allowed;
    result_.lse_rows.push_back(
        {layer_, q_head_, pos_, recorded, exact_.lse, rounding, is_reported});
    if (is_reported)
      complain(
          fmt::format("lse is {:.6g}, recomputed from q and k {:.6g} (allowed difference {:.2g})",
                      recorded, exact_.lse, allowed));
  }

  bool is_visible(Index key) const { return key >= exact_.seen.begin && key <= pos_; }
  double exact_prob(Index key) const {
    return is_visible(key) ? exact_.prob[static_cast<std::size_t>(key - exact_.seen.begin)] : 0.0;
  }
  /// A score that moves by s changes a probability p by at most p (exp(2 s) - 1).
  double allowed_prob(double p) const {
    return base_.attn + p * std::expm1(2 * exact_.score_slack);
  }

  void check_dense() {
    const Tensor<float> attn = trace_.read_attn(layer_, q_head_, {pos_, pos_ + 1});
    double sum = 0;
    for (Index key = 0; key < info_.n_tokens; ++key) {
      const double p = exact_prob(key);
      const double error = std::fabs(attn(0, key) - p);
      sum += attn(0, key);
      result_.attn_error = std::max(result_.attn_error, error);
      if (error > allowed_prob(p) || (!is_visible(key) && attn(0, key) != 0.0f)) {
        complain(
            fmt::format("attention to key {} is {:.6g}, recomputed {:.6g}", key, attn(0, key), p));
        break;
      }
    }
    const double error = std::fabs(sum - exact_.sum_of_prob);
    result_.row_sum_error = std::max(result_.row_sum_error, error);
    if (error > 1e-3 + 2 * roundoff_ + std::expm1(2 * exact_.score_slack))
      complain(fmt::format("attention sums to {:.6g}, expected {:.6g}", sum, exact_.sum_of_prob));
  }

  void check_topk() {
    const TopkRows top = trace_.read_topk(layer_, q_head_, {pos_, pos_ + 1});
    const Index n =
        std::min<Index>(info_.capture.attn_topk, static_cast<Index>(exact_.prob.size()));
    std::vector<double> sorted = exact_.prob;
    std::partial_sort(sorted.begin(), sorted.begin() + n, sorted.end(), std::greater<>());
    for (Index rank = 0; rank < info_.capture.attn_topk; ++rank) {
      const Index key = top.pos(0, rank);
      if (rank >= n ? key != -1 : !is_visible(key))
        return complain(
            fmt::format("top-k rank {} names key {}, which is not a visible one", rank, key));
      if (rank >= n) continue;
      const double recorded = top.prob(0, rank);
      const double p = exact_prob(key);
      const double best = sorted[static_cast<std::size_t>(rank)];
      result_.attn_error = std::max(result_.attn_error, std::fabs(recorded - p));
      if (std::fabs(recorded - p) > allowed_prob(p) || best - p > 2 * allowed_prob(best))
        return complain(fmt::format(
            "top-k rank {} is key {} with {:.6g}; recomputed it has {:.6g} and rank {} has {:.6g}",
            rank, key, recorded, p, rank, best));
    }
  }

  const TraceFile& trace_;
  const TraceInfo& info_;
  Index layer_;
  Index q_head_;
  const CheckedHead& head_;
  RowTolerance base_;
  double roundoff_;
  std::optional<Index> window_;
  RowCheck result_;
  // of the row that is checked
  Index pos_ = 0;
  Tensor<float> q_;
  TokenRange seen_;
  ExactRow exact_;
};

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
  RowChecker checker(trace, layer, q_head, head);
  for (const Index pos : positions) checker.check(pos);
  return checker.take();
}

}  // namespace kvscope
