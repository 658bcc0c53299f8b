#include "core/model/matrix.hpp"

#include <algorithm>
#include <utility>

#include "core/tensor/dtype.hpp"

namespace kvscope {

namespace {

// Rows that are widened at a time: what lies in the file leaves memory behind them.
constexpr Index kPieceFloats = Index{1} << 20;

Index piece_rows(Index n_cols) {
  return std::clamp<Index>(kPieceFloats / std::max<Index>(n_cols, 1), 1, 1024);
}

}  // namespace

Matrix::Matrix(MatrixRowsPtr source, const std::string& name, Index n_rows, Index n_cols, Kept kept)
    : source_(std::move(source)), f32_(source_->in_f32(0)), n_rows_(n_rows), n_cols_(n_cols) {
  // Large models are checked through what they compute: reading all of them here would take
  // minutes.
  if (kept == Kept::as_stored) return;
  if (f32_ != nullptr) {
    require_finite({f32_, static_cast<std::size_t>(n_rows * n_cols)}, name, source_->file());
  } else if (kept == Kept::as_f32) {
    keep_floats(name);
  } else if (source_->in_bf16(0) == nullptr) {
    keep_halves(name);
  }
}

Matrix::Matrix(const WeightFiles& files, const std::string& name, Index n_rows, Index n_cols,
               Kept kept)
    : Matrix(stored_rows(files, name, {0, n_rows}, n_cols), name, n_rows, n_cols, kept) {}

Matrix::Matrix(Tensor<float> values)
    : floats_(std::move(values)),
      f32_(floats_.data()),
      n_rows_(floats_.shape()[0]),
      n_cols_(floats_.shape()[1]) {}

void Matrix::keep_floats(const std::string& name) {
  floats_ = Tensor<float>::uninitialized({n_rows_, n_cols_});
  const Index n = piece_rows(n_cols_);
  for (Index begin = 0; begin < n_rows_; begin += n) {
    const Index end = std::min(begin + n, n_rows_);
    source_->widen(begin, end, floats_.data() + begin * n_cols_, n_cols_);
    source_->forget(begin, end);
  }
  require_finite(floats_.flat(), name, source_->file());
  source_->forget(0, n_rows_);
  f32_ = floats_.data();
}

void Matrix::keep_halves(const std::string& name) {
  halves_ = Tensor<std::uint16_t>::uninitialized({n_rows_, n_cols_});
  const Index n = piece_rows(n_cols_);
  std::vector<float> piece(static_cast<std::size_t>(std::min(n, n_rows_) * n_cols_));
  for (Index begin = 0; begin < n_rows_; begin += n) {
    const Index end = std::min(begin + n, n_rows_);
    const auto count = static_cast<std::size_t>((end - begin) * n_cols_);
    source_->widen(begin, end, piece.data(), n_cols_);
    require_finite({piece.data(), count}, name, source_->file(), begin * n_cols_);
    from_float(piece.data(), DType::bf16, halves_.data() + begin * n_cols_, count);
    source_->forget(begin, end);
  }
  source_->forget(0, n_rows_);
}

const float* Matrix::rows(Index begin, Index end, float* scratch, Index& stride) const {
  if (f32_ != nullptr) {
    stride = n_cols_;
    return f32_ + begin * n_cols_;
  }
  // The odd stride keeps rows of power-of-two length from sharing cache sets.
  stride = n_cols_ + 16;
  source_->widen(begin, end, scratch, stride);
  return scratch;
}

const std::uint16_t* Matrix::stored_bf16(Index begin) const {
  return source_ == nullptr ? nullptr : source_->in_bf16(begin);
}

const std::uint16_t* Matrix::ready_bf16(Index begin) const {
  return halves_.count() > 0 ? halves_.data() + begin * n_cols_ : stored_bf16(begin);
}

const std::uint16_t* Matrix::rows_bf16(Index begin, Index end, float* floats,
                                       std::uint16_t* scratch) const {
  if (const std::uint16_t* ready = ready_bf16(begin)) return ready;
  Index stride = 0;
  const float* wide = rows(begin, end, floats, stride);
  for (Index r = 0; r < end - begin; ++r) {
    from_float(wide + r * stride, DType::bf16, scratch + r * n_cols_,
               static_cast<std::size_t>(n_cols_));
  }
  return scratch;
}

}  // namespace kvscope
