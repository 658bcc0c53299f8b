// Rows that a Python object has, on whatever device: what methods ask about them goes to it.
#pragma once

#include <nanobind/nanobind.h>

#include <span>
#include <vector>

#include "core/attention/remote_rows.hpp"

namespace kvscope::python {

/// `object` has methods of the same names (kvscope/torch_rows.py): lists arrive as arrays of
/// positions, one per KV head or none at all; answers are one array of f64 per row. May be asked
/// without the GIL, from any thread. Its exceptions pass through.
class PythonRows final : public RemoteRows {
 public:
  explicit PythonRows(nanobind::object object) : object_(std::move(object)) {}

  std::vector<std::vector<double>> softmax_votes(std::span<const std::span<const KeyPos>> lists,
                                                 Index first_row, Index end_row) const override;
  std::vector<std::vector<double>> mean_cosines(std::span<const std::span<const KeyPos>> lists,
                                                bool takes_unit, double eps) const override;
  std::vector<std::vector<double>> inverse_norms(std::span<const std::span<const KeyPos>> lists,
                                                 double eps) const override;
  void linear_scores(std::span<const double> vectors, TokenRange keys,
                     std::span<const std::span<double>> out) const override;
  void largest_scores(std::span<const double> vectors, TokenRange keys,
                      std::span<const std::span<double>> out) const override;
  std::vector<std::vector<double>> value_sums(TokenRange keys) const override;

 private:
  nanobind::object object_;
};

}  // namespace kvscope::python
