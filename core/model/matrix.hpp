// A weight matrix as a checkpoint stores it: rows come out as floats or bf16, whatever lies in the
// file.
#pragma once

#include <cstdint>
#include <string>

#include "core/model/matrix_rows.hpp"
#include "core/model/weights.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// What of a matrix stays in memory. Values that lie in the file as they are multiplied (f32; for
/// products in bf16 also bf16) are used in place.
enum class Kept {
  as_stored,  // nothing: rows are widened block by block while they are multiplied
  as_f32,     // a copy in f32
  as_bf16,    // a copy rounded to bf16, for products in bf16; rows in f32 still come from the file
};

/// A weight matrix [n_rows, n_cols]. Copies cost memory and spare conversions: what is right for
/// small models is not for large ones, and experts that nobody multiplies are never read.
class Matrix {
 public:
  Matrix() = default;
  /// `name` names the matrix in messages. A copy is checked: NaN or Inf throws FormatError here,
  /// with its place.
  Matrix(MatrixRowsPtr source, const std::string& name, Index n_rows, Index n_cols, Kept kept);

  /// The tensor `name` [n_rows, n_cols].
  Matrix(const WeightFiles& files, const std::string& name, Index n_rows, Index n_cols, Kept kept);

  /// Values that were put together otherwise: [n_rows, n_cols].
  explicit Matrix(Tensor<float> values);

  Index n_rows() const { return n_rows_; }
  Index n_cols() const { return n_cols_; }

  /// Rows [begin, end) as floats with row stride `stride`; `scratch` [end - begin, n_cols + 16] is
  /// used if they need widening.
  const float* rows(Index begin, Index end, float* scratch, Index& stride) const;

  /// Row `begin` of a matrix that the file stores as bf16 rows, n_cols apart; null for any other.
  const std::uint16_t* stored_bf16(Index begin) const;
  /// The same, or row `begin` of the copy in bf16.
  const std::uint16_t* ready_bf16(Index begin) const;
  /// Rows [begin, end) rounded to bf16 where they are not ready, n_cols apart. floats as in
  /// rows(); scratch [end - begin, n_cols].
  const std::uint16_t* rows_bf16(Index begin, Index end, float* floats,
                                 std::uint16_t* scratch) const;

 private:
  void keep_floats(const std::string& name);
  void keep_halves(const std::string& name);

  MatrixRowsPtr source_;
  Tensor<float> floats_;          // the copy in f32, or empty
  Tensor<std::uint16_t> halves_;  // the copy in bf16, or empty
  const float* f32_ = nullptr;    // rows in f32: the copy, or the mapped file
  Index n_rows_ = 0;
  Index n_cols_ = 0;
};

}  // namespace kvscope
