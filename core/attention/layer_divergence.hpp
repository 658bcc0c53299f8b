// How far the attention rows of a draft's layers are from those of a verifier's, for one query:
// what SpecAttn's layer map is made from, on recorded traces and on running models alike.
#pragma once

#include <span>
#include <vector>

#include "core/base/fields.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// When a' = (a + eps) / (1 + L eps) replaces a row of L probabilities.
enum class Smoothing {
  when_zero,  // rows that hold a zero: underflow, or keys outside a sliding window
  always,
  never,  // a zero in the draft under a verifier's weight makes the divergence infinite
};

inline constexpr double kSmoothingEps = 1e-10;  // unless a user says otherwise

/// Divides by the sum; a row without mass stays as it is.
void normalise_row(std::span<double> row);

/// KL(p || q) in nats, never below 0. Keys with p = 0 contribute nothing; q = 0 under p > 0 makes
/// it infinite. has_zeros: false promises that there are none, which is faster.
double row_divergence(std::span<const double> p, std::span<const double> log_p,
                      std::span<const double> log_q, bool has_zeros);

/// One query's row in every layer of a model, as probabilities and logarithms, smoothed as asked.
struct RowLogs {
  /// rows: [layer], each a distribution over the same keys.
  RowLogs(std::span<const std::span<const double>> rows, Smoothing smoothing, double eps);
  std::vector<std::vector<double>> prob;      // [layer][key]
  std::vector<std::vector<double>> log_prob;  // [layer][key]
  Smoothing smoothing;
  Index n_smoothed = 0;
};

/// out [draft layer, verifier layer] = KL(verifier || draft) of the query's rows, smoothed alike.
void layer_divergences(const RowLogs& verifier, const RowLogs& draft, TensorView<double> out);

}  // namespace kvscope
