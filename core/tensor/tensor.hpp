// Row-major tensors of rank 1 to 4: Tensor owns, TensorView is a strided window passed by value.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>

#include "core/base/index.hpp"

namespace kvscope {

/// Up to four extents; the last one is contiguous in memory.
struct Shape {
  static constexpr int kMaxRank = 4;
  int rank = 0;
  std::array<Index, kMaxRank> dim{};

  Shape() = default;
  Shape(std::initializer_list<Index> dims) {
    assert(dims.size() <= kMaxRank);
    for (Index d : dims) dim[static_cast<std::size_t>(rank++)] = d;
  }
  Index operator[](int axis) const { return dim[static_cast<std::size_t>(axis)]; }
  Index count() const {
    Index n = 1;
    for (int a = 0; a < rank; ++a) n *= (*this)[a];
    return n;
  }
  bool operator==(const Shape&) const = default;
};

/// "[8, 48, 16]".
inline std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int a = 0; a < shape.rank; ++a) {
    if (a > 0) text += ", ";
    text += std::to_string(shape[a]);
  }
  return text + "]";
}

/// A window on somebody else's memory. Strides are in elements; the last axis has stride 1.
template <class T>
class TensorView {
 public:
  TensorView() = default;
  TensorView(T* data, Shape shape) : data_(data), shape_(shape) {
    Index s = 1;
    for (int a = shape.rank - 1; a >= 0; --a) {
      stride_[static_cast<std::size_t>(a)] = s;
      s *= shape[a];
    }
  }
  TensorView(T* data, Shape shape, std::array<Index, Shape::kMaxRank> stride)
      : data_(data), shape_(shape), stride_(stride) {}
  template <class U>
  requires(std::is_same_v<const U, T> && !std::is_same_v<U, T>)
      TensorView(TensorView<U> other)  // NOLINT: a writable window is a readable one
      : data_(other.data()), shape_(other.shape()), stride_(other.strides()) {}

  T* data() const { return data_; }
  const Shape& shape() const { return shape_; }
  const std::array<Index, Shape::kMaxRank>& strides() const { return stride_; }
  Index dim(int axis) const { return shape_[axis]; }
  Index stride(int axis) const { return stride_[static_cast<std::size_t>(axis)]; }
  int rank() const { return shape_.rank; }
  bool empty() const { return data_ == nullptr || shape_.count() == 0; }

  template <class... I>
  T& operator()(I... index) const {
    static_assert(sizeof...(I) >= 1 && sizeof...(I) <= Shape::kMaxRank);
    assert(static_cast<int>(sizeof...(I)) == rank());
    Index offset = 0;
    int a = 0;
    ((assert(index >= 0 && index < shape_[a]), offset += index * stride(a), ++a), ...);
    return data_[offset];
  }

  /// The slice at `index` of the first axis: rank one less.
  TensorView sub(Index index) const {
    assert(rank() > 1 && index >= 0 && index < shape_[0]);
    TensorView out;
    out.data_ = data_ + index * stride(0);
    out.shape_.rank = rank() - 1;
    for (int a = 1; a < rank(); ++a) {
      out.shape_.dim[static_cast<std::size_t>(a - 1)] = shape_[a];
      out.stride_[static_cast<std::size_t>(a - 1)] = stride(a);
    }
    return out;
  }

  /// Positions [begin, end) of one axis, same rank.
  TensorView range(int axis, Index begin, Index end) const {
    assert(axis < rank() && 0 <= begin && begin <= end && end <= shape_[axis]);
    TensorView out = *this;
    out.data_ += begin * stride(axis);
    out.shape_.dim[static_cast<std::size_t>(axis)] = end - begin;
    return out;
  }

  /// A contiguous row of a rank-2 view.
  std::span<T> row(Index i) const {
    assert(rank() == 2 && i >= 0 && i < shape_[0]);
    return {data_ + i * stride(0), static_cast<std::size_t>(shape_[1])};
  }

  /// True if all elements lie one after another.
  bool is_contiguous() const {
    Index s = 1;
    for (int a = rank() - 1; a >= 0; --a) {
      if (shape_[a] != 1 && stride(a) != s) return false;
      s *= shape_[a];
    }
    return true;
  }

 private:
  T* data_ = nullptr;
  Shape shape_;
  std::array<Index, Shape::kMaxRank> stride_{};
};

/// Calls visit(first element) for every row of a view that is not empty, in order.
template <class T, class Visit>
void for_each_row(TensorView<T> view, const Visit& visit) {
  if (view.rank() == 1) return visit(view.data());
  for (Index i = 0; i < view.dim(0); ++i) for_each_row(view.sub(i), visit);
}

/// Owns its elements (64-byte aligned, move only); copying is spelled clone().
template <class T>
class Tensor {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Tensor() = default;
  /// Elements start at zero.
  explicit Tensor(Shape shape) : Tensor(shape, Uninitialized{}) {
    std::fill_n(data_.get(), shape.count(), T{});
  }
  /// Elements start undefined: for buffers that are overwritten at once.
  static Tensor uninitialized(Shape shape) { return Tensor(shape, Uninitialized{}); }

  Tensor clone() const {
    if (!data_) {  // without elements, whatever a shape says that was never given
      Tensor out;
      out.shape_ = shape_;
      return out;
    }
    Tensor out = uninitialized(shape_);
    std::copy_n(data_.get(), shape_.count(), out.data_.get());
    return out;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  const Shape& shape() const { return shape_; }
  Index dim(int axis) const { return shape_[axis]; }
  Index count() const { return data_ ? shape_.count() : 0; }
  TensorView<T> view() { return {data_.get(), shape_}; }
  TensorView<const T> view() const { return {data_.get(), shape_}; }
  std::span<T> flat() { return {data_.get(), static_cast<std::size_t>(count())}; }
  std::span<const T> flat() const { return {data_.get(), static_cast<std::size_t>(count())}; }

  template <class... I>
  T& operator()(I... index) {
    return view()(index...);
  }
  template <class... I>
  const T& operator()(I... index) const {
    return view()(index...);
  }
  TensorView<T> sub(Index index) { return view().sub(index); }
  TensorView<const T> sub(Index index) const { return view().sub(index); }

 private:
  struct Uninitialized {};
  struct Free {
    void operator()(T* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  Tensor(Shape shape, Uninitialized)
      : data_(static_cast<T*>(::operator new[](
            static_cast<std::size_t>(shape.count()) * sizeof(T) + 64, std::align_val_t{64}))),
        shape_(shape) {}

  std::unique_ptr<T[], Free> data_;
  Shape shape_;
};

}  // namespace kvscope
