// Tensors of the libraries as NumPy arrays, without copies.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <utility>
#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope::python {

/// Reads what an array says about itself at compile time: C order, on the CPU.
template <class T>
using InputArray = nanobind::ndarray<const T, nanobind::c_contig, nanobind::device::cpu>;
template <class T>
using NumpyArray = nanobind::ndarray<nanobind::numpy, T>;

/// A read-only window; `owner` must keep the memory.
template <class T>
NumpyArray<const T> window(TensorView<const T> view, nanobind::handle owner) {
  std::array<std::size_t, Shape::kMaxRank> shape{};
  std::array<std::int64_t, Shape::kMaxRank> stride{};
  for (int a = 0; a < view.rank(); ++a) {
    shape[static_cast<std::size_t>(a)] = static_cast<std::size_t>(view.dim(a));
    stride[static_cast<std::size_t>(a)] = view.stride(a);
  }
  return NumpyArray<const T>(view.data(), static_cast<std::size_t>(view.rank()), shape.data(),
                             owner, stride.data());
}

/// What `compute` gives, while Python goes on.
template <class Compute>
auto released(const Compute& compute) {
  const nanobind::gil_scoped_release free;
  return compute();
}

/// The array owns the tensor.
template <class T>
NumpyArray<T> owning(Tensor<T> tensor) {
  auto* const kept = new Tensor<T>(std::move(tensor));
  nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<Tensor<T>*>(p); });
  std::array<std::size_t, Shape::kMaxRank> shape{};
  for (int a = 0; a < kept->shape().rank; ++a) {
    shape[static_cast<std::size_t>(a)] = static_cast<std::size_t>(kept->dim(a));
  }
  return NumpyArray<T>(kept->data(), static_cast<std::size_t>(kept->shape().rank), shape.data(),
                       owner);
}

/// The array owns the values, [values.size()] or the shape given.
template <class T>
NumpyArray<T> owning(std::vector<T> values, const std::vector<std::size_t>& shape = {}) {
  auto* const kept = new std::vector<T>(std::move(values));
  nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  const std::size_t n = kept->size();
  return NumpyArray<T>(kept->data(), shape.empty() ? 1 : shape.size(),
                       shape.empty() ? &n : shape.data(), owner);
}

/// A tensor that somebody else's array holds. Rank at most 4.
template <class T>
TensorView<const T> view_of(const InputArray<T>& array) {
  Shape shape;
  for (std::size_t a = 0; a < array.ndim() && a < Shape::kMaxRank; ++a) {
    shape.dim[static_cast<std::size_t>(shape.rank++)] = static_cast<Index>(array.shape(a));
  }
  return {array.data(), shape};
}

}  // namespace kvscope::python
