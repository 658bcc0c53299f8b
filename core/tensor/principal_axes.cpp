#include "core/tensor/principal_axes.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

constexpr Index kRowsPerBlock = 256;  // rows widened at once: bounds the memory, feeds the update
constexpr double kSignTie = 1e-6;  // magnitudes this close count as equal: rounding picks no sign

Index check_sets(std::span<const TensorView<const float>> sets) {
  Index n = 0;
  for (const auto& rows : sets) {
    if (rows.rank() != 2 || rows.dim(1) < 1 || rows.dim(1) != sets[0].dim(1)) {
      throw ShapeError("principal axes: expected rows [n, d] of one width, found {}",
                       to_string(rows.shape()));
    }
    n += rows.dim(0);
  }
  if (n < 1) throw ShapeError("principal axes: expected at least one row, found none");
  return n;
}

/// Sum over the rows of (x - center)(x - center)^T; only the lower half is meant.
Eigen::MatrixXd scatter_of(std::span<const TensorView<const float>> sets,
                           const Eigen::VectorXd& center) {
  const Index d = center.size();
  Eigen::MatrixXd scatter = Eigen::MatrixXd::Zero(d, d);
  Eigen::MatrixXd block(d, kRowsPerBlock);
  for (const auto& rows : sets) {
    for (Index first = 0; first < rows.dim(0); first += kRowsPerBlock) {
      const Index n = std::min(kRowsPerBlock, rows.dim(0) - first);
      for (Index i = 0; i < n; ++i) {
        const auto row = rows.row(first + i);
        for (Index c = 0; c < d; ++c) {
          block(c, i) = static_cast<double>(row[static_cast<std::size_t>(c)]) - center[c];
        }
      }
      scatter.selfadjointView<Eigen::Lower>().rankUpdate(block.leftCols(n));
    }
  }
  return scatter;
}

/// 1 or -1, so that the first element of (nearly) largest magnitude becomes positive.
double sign_of(const Eigen::VectorXd& direction) {
  const double large = (1.0 - kSignTie) * direction.cwiseAbs().maxCoeff();
  Index first = 0;
  while (std::abs(direction[first]) < large) ++first;
  return direction[first] < 0.0 ? -1.0 : 1.0;
}

}  // namespace

std::vector<double> PrincipalAxes::explained() const {
  const double total = std::accumulate(variance.begin(), variance.end(), 0.0);
  std::vector<double> shares(variance.size(), std::numeric_limits<double>::quiet_NaN());
  if (total > 0.0) {
    std::transform(variance.begin(), variance.end(), shares.begin(),
                   [total](double x) { return x / total; });
  }
  return shares;
}

void PrincipalAxes::project(std::span<const float> x, std::span<float> out) const {
  for (std::size_t r = 0; r < out.size(); ++r) {
    const auto direction = directions.view().row(static_cast<Index>(r));
    double sum = 0.0;
    for (std::size_t c = 0; c < x.size(); ++c) {
      sum += (static_cast<double>(x[c]) - center[c]) * direction[c];
    }
    out[r] = static_cast<float>(sum);
  }
}

PrincipalAxes principal_axes(std::span<const TensorView<const float>> sets) {
  const auto n = static_cast<double>(check_sets(sets));
  const Index d = sets[0].dim(1);
  Eigen::VectorXd center = Eigen::VectorXd::Zero(d);
  for (const auto& rows : sets) {
    for (Index i = 0; i < rows.dim(0); ++i) {
      const auto row = rows.row(i);
      for (Index c = 0; c < d; ++c) {
        center[c] += static_cast<double>(row[static_cast<std::size_t>(c)]);
      }
    }
  }
  center /= n;
  const Eigen::MatrixXd covariance = scatter_of(sets, center) / n;
  // Rising eigenvalues, reads the lower half.
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(covariance);

  PrincipalAxes axes;
  axes.center.assign(center.data(), center.data() + d);
  axes.directions = Tensor<double>({d, d});
  for (Index r = 0; r < d; ++r) {
    const Eigen::VectorXd direction = solver.eigenvectors().col(d - 1 - r);
    const double sign = sign_of(direction);
    for (Index c = 0; c < d; ++c) axes.directions(r, c) = sign * direction[c];
    axes.variance.push_back(std::max(solver.eigenvalues()[d - 1 - r], 0.0));
  }
  return axes;
}

std::vector<double> main_direction(TensorView<const float> rows) {
  check_sets({&rows, 1});
  const Index d = rows.dim(1);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(
      scatter_of({&rows, 1}, Eigen::VectorXd::Zero(d)));
  Eigen::VectorXd direction = solver.eigenvectors().col(d - 1);
  direction *= sign_of(direction);
  Index n_along = 0;
  for (Index i = 0; i < rows.dim(0); ++i) {
    double product = 0.0;
    for (Index c = 0; c < d; ++c) product += direction[c] * static_cast<double>(rows(i, c));
    n_along += product > 0.0 ? 1 : product < 0.0 ? -1 : 0;
  }
  if (n_along < 0) direction = -direction;
  return {direction.data(), direction.data() + d};
}

}  // namespace kvscope
