#include "core/selectors/key_basis.hpp"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <cmath>

#include "core/base/error.hpp"

namespace kvscope {

Tensor<double> key_basis(TensorView<const float> keys) {
  if (keys.rank() != 2 || keys.dim(0) < 1 || keys.dim(1) < 1) {
    throw ShapeError(
        fmt::format("principal directions: expected keys [n >= 1, d_head >= 1], found {}",
                    to_string(keys.shape())));
  }
  const Index n_keys = keys.dim(0);
  const Index d = keys.dim(1);
  Eigen::VectorXd mean = Eigen::VectorXd::Zero(d);
  for (Index t = 0; t < n_keys; ++t) {
    for (Index c = 0; c < d; ++c) mean[c] += static_cast<double>(keys(t, c));
  }
  mean /= static_cast<double>(n_keys);
  Eigen::MatrixXd covariance = Eigen::MatrixXd::Zero(d, d);
  Eigen::VectorXd centred(d);
  for (Index t = 0; t < n_keys; ++t) {
    for (Index c = 0; c < d; ++c) centred[c] = static_cast<double>(keys(t, c)) - mean[c];
    covariance.selfadjointView<Eigen::Lower>().rankUpdate(centred);
  }
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(
      covariance);  // rising eigenvalues, reads the lower half
  Tensor<double> basis({d, d});
  for (Index r = 0; r < d; ++r) {
    const auto direction = solver.eigenvectors().col(d - 1 - r);
    Index largest = 0;
    for (Index c = 1; c < d; ++c) {
      if (std::abs(direction[c]) > std::abs(direction[largest])) largest = c;
    }
    const double sign = direction[largest] < 0.0 ? -1.0 : 1.0;
    for (Index c = 0; c < d; ++c) basis(r, c) = sign * direction[c];
  }
  return basis;
}

}  // namespace kvscope
