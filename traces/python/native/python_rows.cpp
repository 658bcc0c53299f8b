#include "traces/python/native/python_rows.hpp"

#include <algorithm>
#include <array>

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
    throw ShapeError("an answer of rows in Python: expected {} numbers, found {}", n,
                     numbers.size());
  }
  return {numbers.data(), n};
}

std::vector<double> row_of(const nb::handle& answer, std::size_t n) {
  const std::span<const double> numbers = numbers_of(answer, n);
  return {numbers.begin(), numbers.end()};
}

/// The answer's items: as many as there are KV heads.
nb::list rows_of(const nb::object& answer, Index n_kv) {
  nb::list rows(answer);
  if (static_cast<Index>(nb::len(rows)) != n_kv) {
    throw ShapeError("an answer of rows in Python: expected {} rows, found {}", n_kv,
                     nb::len(rows));
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

std::vector<std::vector<double>> PythonRows::by_list(
    const nb::object& answer, std::span<const std::span<const KeyPos>> lists) const {
  const nb::list rows = rows_of(answer, shape_.n_kv);
  std::vector<std::vector<double>> out;
  for (Index i = 0; i < shape_.n_kv; ++i) {
    const auto at = static_cast<std::size_t>(i);
    out.push_back(
        row_of(rows[at], lists.empty() ? static_cast<std::size_t>(n_keys_) : lists[at].size()));
  }
  return out;
}

std::vector<std::vector<double>> PythonRows::softmax_votes(
    std::span<const std::span<const KeyPos>> lists, Index first_row, Index end_row) const {
  const nb::gil_scoped_acquire acquired;
  return by_list(object_.attr("softmax_votes")(arrays_of(lists), first_row, end_row), lists);
}

void PythonRows::scores(Index q_head, Index first_row, Index end_row, std::span<double> out) const {
  const nb::gil_scoped_acquire acquired;
  fill(object_.attr("scores")(q_head, first_row, end_row), std::array{out});
}

std::vector<std::vector<double>> PythonRows::mean_cosines(
    std::span<const std::span<const KeyPos>> lists, bool takes_unit, double eps) const {
  const nb::gil_scoped_acquire acquired;
  return by_list(object_.attr("mean_cosines")(arrays_of(lists), takes_unit, eps), lists);
}

std::vector<std::vector<double>> PythonRows::inverse_norms(
    std::span<const std::span<const KeyPos>> lists, double eps) const {
  const nb::gil_scoped_acquire acquired;
  return by_list(object_.attr("inverse_norms")(arrays_of(lists), eps), lists);
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
  std::vector<std::vector<double>> sums;
  for (const nb::handle& row :
       rows_of(object_.attr("value_sums")(keys.begin, keys.end), shape_.n_kv))
    sums.push_back(row_of(row, static_cast<std::size_t>(shape_.d_head)));
  return sums;
}

}  // namespace kvscope::python
