// Where the rows of a weight matrix come from: what lies in a checkpoint, in whatever form, as
// floats.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/model/weights.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Rows of a matrix on mapped file bytes, which must outlive it.
class MatrixRows {
 public:
  virtual ~MatrixRows() = default;

  /// Rows [begin, end) as floats, `stride` floats apart.
  virtual void widen(Index begin, Index end, float* out, Index stride) const = 0;

  /// Row `begin` where it lies in the file as f32 (bf16), its followers n_cols apart; null if the
  /// file has it otherwise.
  virtual const float* in_f32(Index begin) const {
    (void)begin;
    return nullptr;
  }
  virtual const std::uint16_t* in_bf16(Index begin) const {
    (void)begin;
    return nullptr;
  }

  /// Name of the file, for messages.
  virtual std::string file() const = 0;

  /// Says that the file's bytes of these rows will not be read soon: see forget_pages.
  virtual void forget(Index begin, Index end) const { (void)begin, (void)end; }
};

using MatrixRowsPtr = std::unique_ptr<const MatrixRows>;

/// Rows of a tensor that stores several matrices one below the other.
struct StoredRows {
  Index begin = 0;
  Index n_stored = 0;  // rows of the whole tensor
};

/// One slice of a tensor that stacks the matrices of all experts along its first axis.
struct ExpertSlice {
  Index expert = 0;
  Index n_experts = 0;
};

/// Rows [part.begin, ...) of `name` [part.n_stored, n_cols], in any type that WeightFiles reads.
MatrixRowsPtr stored_rows(const WeightFiles& files, const std::string& name, StoredRows part,
                          Index n_cols);

/// Rows 0, 2, ... from one tensor [n_rows / 2, n_cols], rows 1, 3, ... from another.
MatrixRowsPtr alternating_rows(const WeightFiles& files, const std::string& even_name,
                               const std::string& odd_name, Index n_rows, Index n_cols);

/// The expert's part of `name` [n_experts, n_cols, n_rows]: stored column by column.
MatrixRowsPtr columns_as_rows(const WeightFiles& files, const std::string& name, ExpertSlice slice,
                              Index n_rows, Index n_cols);

/// The expert's part of `name`_blocks [n_experts, n_rows, n_cols / 32, 16] and `name`_scales
/// [n_experts, n_rows, n_cols / 32], see matrix_rows.cpp. Throws ConfigError if n_cols is no
/// multiple of 32.
MatrixRowsPtr mxfp4_rows(const WeightFiles& files, const std::string& name, ExpertSlice slice,
                         Index n_rows, Index n_cols);

}  // namespace kvscope
