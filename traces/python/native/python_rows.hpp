// Rows that a Python object has, on whatever device: what methods ask about them goes to it.
#pragma once

#include <nanobind/nanobind.h>

#include <span>
#include <vector>

#include "core/attention/remote_rows.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope::python {

/// `object` has methods of the same names (kvscope/torch_rows.py): lists arrive as arrays of
/// positions, one per KV head or none at all; answers are one array of f64 per row. May be asked
/// without the GIL, from any thread. Its exceptions pass through; answers of another size than was
/// asked for are ShapeErrors.
class PythonRows final : public RemoteRows {
 public:
  /// n_keys: of the context.
  PythonRows(nanobind::object object, const AttentionShape& shape, Index n_keys)
      : object_(std::move(object)), shape_(shape), n_keys_(n_keys) {}

  std::vector<std::vector<double>> softmax_votes(std::span<const std::span<const KeyPos>> lists,
                                                 Index first_row, Index end_row) const override;
  void scores(Index q_head, Index first_row, Index end_row, std::span<double> out) const override;
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
  std::vector<std::vector<double>> by_list(const nanobind::object& selection,
                                           std::span<const std::span<const KeyPos>> lists) const;

  nanobind::object object_;
  const AttentionShape& shape_;
  Index n_keys_;
};

}  // namespace kvscope::python
