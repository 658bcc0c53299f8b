// Rows in one of the storage types, as they lie in somebody else's memory.
#pragma once

#include <array>
#include <cstddef>

#include "core/tensor/dtype.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// A window on rows of any storage type, the last axis of a tensor of rank 2 to 4. Floats are rows
/// in f32. Passed by value.
class TypedRows {
 public:
  TypedRows() = default;
  TypedRows(DType dtype, const void* data, Shape shape)
      : dtype_(dtype), bytes_(static_cast<const std::byte*>(data), in_bytes(shape, dtype)) {}
  /// Of a window whose last axis counts bytes.
  TypedRows(DType dtype, TensorView<const std::byte> bytes) : dtype_(dtype), bytes_(bytes) {}
  TypedRows(TensorView<const float> floats)  // NOLINT: they are what they are
      : bytes_(reinterpret_cast<const std::byte*>(floats.data()),
               in_bytes(floats.shape(), DType::f32), in_bytes(floats)) {}
  TypedRows(TensorView<float> floats)  // NOLINT
      : TypedRows(TensorView<const float>(floats)) {}

  DType dtype() const { return dtype_; }
  int rank() const { return bytes_.rank(); }
  bool empty() const { return bytes_.empty(); }
  /// In elements, as of a tensor.
  Index dim(int axis) const {
    return axis == rank() - 1 ? bytes_.dim(axis) / element() : bytes_.dim(axis);
  }
  Shape shape() const {
    Shape shape = bytes_.shape();
    if (rank() > 0) shape.dim[static_cast<std::size_t>(rank() - 1)] /= element();
    return shape;
  }
  bool is_contiguous() const { return bytes_.is_contiguous(); }
  TypedRows sub(Index index) const { return {dtype_, bytes_.sub(index)}; }
  /// Of an axis of whole rows.
  TypedRows range(int axis, Index begin, Index end) const {
    assert(axis < rank() - 1);
    return {dtype_, bytes_.range(axis, begin, end)};
  }
  /// The same memory; the last axis counts bytes.
  TensorView<const std::byte> bytes() const { return bytes_; }
  /// As floats: the rows themselves where they are in f32, else a copy in `storage`.
  TensorView<const float> floats(Tensor<float>& storage) const {
    if (dtype_ == DType::f32) {
      std::array<Index, Shape::kMaxRank> stride = bytes_.strides();
      for (int a = 0; a + 1 < rank(); ++a) stride[static_cast<std::size_t>(a)] /= element();
      return {reinterpret_cast<const float*>(bytes_.data()), shape(), stride};
    }
    storage = Tensor<float>::uninitialized(shape());
    float* to = storage.data();
    for_each_row([&](const std::byte* row) {
      to_float(dtype_, row, to, static_cast<std::size_t>(dim(rank() - 1)));
      to += dim(rank() - 1);
    });
    return storage.view();
  }
  /// Calls visit(first byte) for every row, in order.
  template <class Visit>
  void for_each_row(const Visit& visit) const {
    if (!empty()) kvscope::for_each_row(bytes_, visit);
  }

 private:
  Index element() const { return static_cast<Index>(size_of(dtype_)); }
  static Shape in_bytes(Shape shape, DType dtype) {
    if (shape.rank > 0)
      shape.dim[static_cast<std::size_t>(shape.rank - 1)] *= static_cast<Index>(size_of(dtype));
    return shape;
  }
  static std::array<Index, Shape::kMaxRank> in_bytes(TensorView<const float> floats) {
    std::array<Index, Shape::kMaxRank> stride = floats.strides();
    for (int a = 0; a + 1 < floats.rank(); ++a)
      stride[static_cast<std::size_t>(a)] *= static_cast<Index>(sizeof(float));
    return stride;
  }

  DType dtype_ = DType::f32;
  TensorView<const std::byte> bytes_;
};

}  // namespace kvscope
