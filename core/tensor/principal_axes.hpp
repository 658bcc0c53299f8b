// The principal axes of sets of rows: directions of falling variance about the common mean.
#pragma once

#include <span>
#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// An orthonormal basis by falling variance, all in f64.
struct PrincipalAxes {
  std::vector<double> center;    // [d] mean of the rows
  std::vector<double> variance;  // [d] along each direction, per row (divided by n); never negative
  Tensor<double> directions;     // [d, d] one unit vector per row

  /// variance divided by its sum; NaN if all rows are equal.
  std::vector<double> explained() const;
  /// Coordinates of x [d] along the first out.size() directions, from the centre.
  void project(std::span<const float> x, std::span<float> out) const;
};

/// Principal axes of all rows of `sets`, each [n_i, d], taken together: the exact eigenvectors of
/// their d x d covariance, no row left out. Signs: the element of largest magnitude of each
/// direction is positive (the first one among equals up to rounding). With fewer rows than d the
/// last directions complete the basis at variance 0. Throws ShapeError without a row, or for sets
/// of different widths.
PrincipalAxes principal_axes(std::span<const TensorView<const float>> sets);

/// The unit direction that rows [n, d] share: the first right singular vector of the rows as they
/// are, not centred, with the sign that most rows project on it with (at a tie the one that
/// principal_axes gives). Throws ShapeError without a row.
std::vector<double> main_direction(TensorView<const float> rows);

}  // namespace kvscope
