// The inner loops of exact attention rows in f64: dot products with many keys, maxima,
// exponentials, sums.
//
// Vector code is chosen at run time. Each result depends on its inputs and the machine's vector
// width only, never on the thread that computes it; keys with equal elements get bit-equal scores.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Keys that share one panel of the transposed layout.
inline constexpr Index kPanelKeys = 16;

/// out[r * out_stride + p * kPanelKeys + t] = sum_c q[r * d + c] * panels[(p * d + c) * kPanelKeys
/// + t]. q [n_rows, d]; panels [n_panels, d, kPanelKeys]; out [n_rows, n_panels * kPanelKeys] with
/// its stride.
void panel_dots(const double* q, Index n_rows, const double* panels, Index n_panels, Index d,
                double* out, Index out_stride);

/// Largest element; -infinity for an empty span.
double max_of(std::span<const double> x);

/// Sum of the elements.
double sum_of(std::span<const double> x);

/// Sum of a[i] * b[i]; equal sizes.
double dot_of(std::span<const double> a, std::span<const double> b);

/// Sum of |a[i] - b[i]|; equal sizes.
double l1_distance(std::span<const double> a, std::span<const double> b);

/// Sums over exp(x[i] - shift).
struct ExpSums {
  double sum = 0.0;  // sum_i e_i with e_i = exp(x_i - shift)
  /// sum_i e_i * (x_i - shift): the row's entropy is log(sum) - weighted / sum.
  double weighted = 0.0;
};

/// Sums without storing the exponentials.
ExpSums exp_sums(std::span<const double> x, double shift);

/// Same, and stores exp(x[i] - shift) to out[i]; out may be x.
ExpSums exp_row(std::span<const double> x, double shift, std::span<double> out);

/// out[i] += factor * x[i]; equal sizes.
void add_scaled(std::span<const double> x, double factor, std::span<double> out);

/// Smallest and largest of the elements above -infinity; low > high if there are none.
struct ScoreRange {
  double low = 0.0;
  double high = 0.0;
};
ScoreRange finite_range(std::span<const double> x);

/// out[i] = 1 + floor((x[i] - low) * per_unit) for low <= x[i], 0 for -infinity. out [x.size()].
void bucket_row(std::span<const double> x, double low, double per_unit, std::int32_t* out);

/// x[i] = log(x[i]) for x >= 0; log 0 = -infinity.
void log_row(std::span<const double> x, std::span<double> out);

}  // namespace kvscope
