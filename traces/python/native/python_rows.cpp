#include "traces/python/native/python_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "traces/python/native/arrays.hpp"

namespace kvscope::python {

namespace nb = nanobind;

namespace {

using Numbers = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;

nb::list arrays_of(std::span<const std::span<const KeyPos>> lists) {
  nb::list out;
  for (const auto list : lists) out.append(owning(std::vector<KeyPos>(list.begin(), list.end())));
  return out;
}

std::span<const double> numbers_of(const nb::handle& answer, std::size_t n) {
  const auto numbers = nb::cast<Numbers>(answer);
  if (numbers.size() != n) {
    throw ShapeError(fmt::format("an answer of rows in Python: expected {} numbers, found {}", n,
                                 numbers.size()));
  }
  return {numbers.data(), n};
}

std::vector<std::vector<double>> rows_of(const nb::object& answer) {
  std::vector<std::vector<double>> rows;
  for (const nb::handle& row : answer) {
    const auto numbers = nb::cast<Numbers>(row);
    rows.emplace_back(numbers.data(), numbers.data() + numbers.size());
  }
  return rows;
}

void fill(const nb::object& answer, std::span<const std::span<double>> out) {
  const std::size_t n_keys = out.front().size();
  const std::span<const double> numbers = numbers_of(answer, out.size() * n_keys);
  for (std::size_t i = 0; i < out.size(); ++i)
    std::ranges::copy(numbers.subspan(i * n_keys, n_keys), out[i].begin());
}

NumpyArray<double> array_of(std::span<const double> vectors, std::size_t n_rows) {
  return owning(std::vector<double>(vectors.begin(), vectors.end()),
                {n_rows, vectors.size() / n_rows});
}

}  // namespace

std::vector<std::vector<double>> PythonRows::softmax_votes(
    std::span<const std::span<const KeyPos>> lists, Index first_row, Index end_row) const {
  const nb::gil_scoped_acquire acquired;
  return rows_of(object_.attr("softmax_votes")(arrays_of(lists), first_row, end_row));
}

std::vector<std::vector<double>> PythonRows::mean_cosines(
    std::span<const std::span<const KeyPos>> lists, bool takes_unit, double eps) const {
  const nb::gil_scoped_acquire acquired;
  return rows_of(object_.attr("mean_cosines")(arrays_of(lists), takes_unit, eps));
}

std::vector<std::vector<double>> PythonRows::inverse_norms(
    std::span<const std::span<const KeyPos>> lists, double eps) const {
  const nb::gil_scoped_acquire acquired;
  return rows_of(object_.attr("inverse_norms")(arrays_of(lists), eps));
}

void PythonRows::linear_scores(std::span<const double> vectors, TokenRange keys,
                               std::span<const std::span<double>> out) const {
  if (out.empty() || keys.size() == 0) return;
  const nb::gil_scoped_acquire acquired;
  fill(object_.attr("linear_scores")(array_of(vectors, out.size()), keys.begin, keys.end), out);
}

void PythonRows::largest_scores(std::span<const double> vectors, TokenRange keys,
                                std::span<const std::span<double>> out) const {
  if (out.empty() || keys.size() == 0) return;
  const nb::gil_scoped_acquire acquired;
  fill(object_.attr("largest_scores")(array_of(vectors, out.size()), keys.begin, keys.end), out);
}

std::vector<std::vector<double>> PythonRows::value_sums(TokenRange keys) const {
  const nb::gil_scoped_acquire acquired;
  return rows_of(object_.attr("value_sums")(keys.begin, keys.end));
}

}  // namespace kvscope::python
