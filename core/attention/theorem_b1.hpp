// Lower bounds on cos(k*, q) from the softmax weight of k*: QuoKA's theorem B.1 as printed, and
// forms that hold.
//
// The theorem is about keys: in a layer with attention sinks, w is the weight among the keys.
// A row: a query q sees n + 1 keys with scores s_i = scale * q.k_i; k* is one of them, w its
// softmax weight; a model's soft cap of scores stays out of it. The theorem is about a unit query
// and bare dot products, so the keys are read as (|q| * scale) * k: their largest norm is N_eff =
// |q| * scale * max|k|, and the printed constant is M_eff = N_eff^2. The cosine does not change
// with scale.
//
//   x   = log(w / (1 - w)) = s* - LSE(others), the log-odds of w
//   rho = log(n / (n + 1)) - log(1 - w),  tau = log(n * w / (1 - w)) = log n + x
//
//   printed    cos >= rho / (2 M_eff) - 1      false in general: the tests hold counterexamples
//   repaired   cos >= rho / N_eff - 1          holds if all norms are equal, or cos >= 0
//   Jensen     cos >= (tau + mean_i s_i) / |k*|_eff                     always holds
//   worst      cos >= (tau - N_eff) / N_eff if tau >= N_eff, else
//              cos >= (tau - N_eff) / |k*|_eff                          always holds
#pragma once

#include <span>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// One row, every quantity side by side; bounds below -1 say nothing and are given as -1.
struct TheoremB1Row {
  Index n = 0;  // visible keys besides k*; with n = 0 there is no statement and all else is NaN
  double cos = 0.0;       // cos(k*, q); 0 if either is a zero vector
  double weight = 0.0;    // w, rounds to 1 for strong rows
  double log_odds = 0.0;  // x, exact where w is not
  double norm_eff = 0.0;  // N_eff
  double printed = -1.0;
  double repaired = -1.0;
  double jensen = -1.0;
  double worst = -1.0;
  /// Rounding error that jensen and worst may carry: bound - cos beyond it is a violation.
  double slack = 0.0;
};

/// scores: [n + 1] scaled scores of all visible keys; star: index of k* among them; q_norm: |q|;
/// star_norm, max_norm: |k*| and the largest norm among the visible keys, unscaled; scale: the
/// factor in front of q.k.
TheoremB1Row theorem_b1_row(std::span<const double> scores, Index star, double q_norm,
                            double star_norm, double max_norm, double scale);

/// QuoKA's main-text theorem: upper bounds on cos(M_Q, q) from alpha = cos(M_Q, k) and beta =
/// cos(k, q).
struct MainTextBound {
  double relaxed = 0.0;  // 1 - (alpha - beta)^2 / 2, as printed
  double exact = 0.0;    // alpha beta + sqrt((1 - alpha^2)(1 - beta^2)): the spherical triangle
  double slack = 0.0;    // rounding error of either: the root is steep where |alpha| or |beta| is 1
};
MainTextBound main_text_bound(double alpha, double beta);

}  // namespace kvscope
