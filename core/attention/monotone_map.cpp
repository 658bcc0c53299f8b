#include "core/attention/monotone_map.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

void check_cost(TensorView<const double> cost) {
  if (cost.rank() != 2 || cost.dim(0) < 1 || cost.dim(1) < 1) {
    throw ShapeError(fmt::format("layer map: expected costs [n_draft, n_ver], found shape {}",
                                 to_string(cost.shape())));
  }
  for (Index i = 0; i < cost.dim(0); ++i) {
    for (Index j = 0; j < cost.dim(1); ++j) {
      if (std::isnan(cost(i, j))) {
        throw ConfigError(
            fmt::format("layer map: the cost of draft layer {} for verifier layer {} "
                        "is not a number",
                        i, j));
      }
    }
  }
}

}  // namespace

LayerAssignment monotone_layer_map(TensorView<const double> cost) {
  check_cost(cost);
  const Index n_draft = cost.dim(0);
  const Index n_ver = cost.dim(1);
  std::vector<double> total(static_cast<std::size_t>(n_draft));
  Tensor<Index> origin({n_ver, n_draft});  // best row of the previous column
  for (Index i = 0; i < n_draft; ++i) total[static_cast<std::size_t>(i)] = cost(i, 0);
  for (Index j = 1; j < n_ver; ++j) {
    double best = total[0];
    Index arg = 0;
    for (Index i = 0; i < n_draft; ++i) {
      double& cell = total[static_cast<std::size_t>(i)];
      if (cell < best) {
        best = cell;
        arg = i;
      }
      cell = best + cost(i, j);
      origin(j, i) = arg;
    }
  }

  LayerAssignment map;
  map.draft_of.resize(static_cast<std::size_t>(n_ver));
  Index row = 0;
  for (Index i = 1; i < n_draft; ++i) {
    if (total[static_cast<std::size_t>(i)] < total[static_cast<std::size_t>(row)]) row = i;
  }
  map.cost = total[static_cast<std::size_t>(row)];
  for (Index j = n_ver - 1; j >= 0; --j) {
    map.draft_of[static_cast<std::size_t>(j)] = row;
    if (j > 0) row = origin(j, row);
  }
  return map;
}

LayerAssignment unconstrained_layer_map(TensorView<const double> cost) {
  check_cost(cost);
  LayerAssignment map;
  for (Index j = 0; j < cost.dim(1); ++j) {
    Index row = 0;
    for (Index i = 1; i < cost.dim(0); ++i) {
      if (cost(i, j) < cost(row, j)) row = i;
    }
    map.draft_of.push_back(row);
    map.cost += cost(row, j);
  }
  return map;
}

}  // namespace kvscope
