// A weight matrix as its checkpoint stores it: rows come out as floats, whatever lies in the file.
#pragma once

#include <cstdint>
#include <string>

#include "core/model/weights.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// One slice of a tensor that stacks the matrices of all experts along its first axis.
struct ExpertSlice {
  Index expert = 0;
  Index n_experts = 0;
};

/// Rows of a tensor that stores several matrices one below the other.
struct StoredRows {
  Index begin = 0;
  Index n_stored = 0;  // rows of the whole tensor
};

/// A weight matrix [n_rows, n_cols] on mapped file bytes. f32 files are used in place; others are
/// either widened once at load (small models) or row block by row block while multiplying (large
/// ones, and all experts: what is not multiplied is not read).
class Matrix {
 public:
  Matrix() = default;
  /// The tensor `name` [n_rows, n_cols]. widen: keep a f32 copy; then NaN or Inf in the file throws
  /// FormatError here, with its place.
  Matrix(const WeightFiles& files, const std::string& name, Index n_rows, Index n_cols, bool widen);

  /// Rows [part.begin, part.begin + n_rows) of `name` [part.n_stored, n_cols]; widen as above.
  Matrix(const WeightFiles& files, const std::string& name, StoredRows part, Index n_rows,
         Index n_cols, bool widen);

  /// Values that were put together otherwise: [n_rows, n_cols].
  explicit Matrix(Tensor<float> values);

  /// Rows 0, 2, ... from one tensor [n_rows / 2, n_cols], rows 1, 3, ... from another.
  static Matrix alternating(const WeightFiles& files, const std::string& even_name,
                            const std::string& odd_name, Index n_rows, Index n_cols);
  /// The expert's part of `name` [n_experts, n_cols, n_rows]: stored column by column.
  static Matrix stored_by_columns(const WeightFiles& files, const std::string& name,
                                  ExpertSlice slice, Index n_rows, Index n_cols);
  /// The expert's part of `name`_blocks [n_experts, n_rows, n_cols / 32, 16] and `name`_scales
  /// [n_experts, n_rows, n_cols / 32], see core/model/mxfp4.hpp. Throws ConfigError if n_cols is no
  /// multiple of 32.
  static Matrix stored_as_mxfp4(const WeightFiles& files, const std::string& name,
                                ExpertSlice slice, Index n_rows, Index n_cols);

  Index n_rows() const { return n_rows_; }
  Index n_cols() const { return n_cols_; }

  /// Rows [begin, end) as floats with row stride `stride`; `scratch` [end - begin, n_cols + 16] is
  /// used if they need widening.
  const float* rows(Index begin, Index end, float* scratch, Index& stride) const;

  /// Row `begin` of a matrix that is stored as bf16 rows, n_cols apart; null for any other.
  const std::uint16_t* stored_bf16(Index begin) const;
  /// Rows [begin, end) rounded to bf16 where they are not stored so, n_cols apart. floats as in
  /// rows(); scratch [end - begin, n_cols].
  const std::uint16_t* rows_bf16(Index begin, Index end, float* floats,
                                 std::uint16_t* scratch) const;

 private:
  enum class Storage { rows, columns, alternating, mxfp4 };
  const std::byte* row(Index r) const;  // rows, alternating
  void widen_columns(Index begin, Index end, float* scratch, Index stride) const;
  void widen_packed(Index begin, Index end, float* scratch, Index stride) const;

  Storage storage_ = Storage::rows;
  StoredTensor stored_;  // rows, columns, even rows; the slice of an expert starts at its data
  StoredTensor odd_;     // alternating: the odd rows
  Index first_row_ = 0;  // of a part of a stored matrix
  Tensor<float> widened_;
  const float* f32_ = nullptr;            // rows in f32: widened_, or the mapped file
  const std::uint8_t* blocks_ = nullptr;  // mxfp4
  const std::uint8_t* scales_ = nullptr;
  Index n_rows_ = 0;
  Index n_cols_ = 0;
};

}  // namespace kvscope
