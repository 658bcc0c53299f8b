#include "core/model/matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/mapped_file.hpp"
#include "core/model/mxfp4.hpp"
#include "core/tensor/dtype.hpp"

namespace kvscope {

Matrix::Matrix(const WeightFiles& files, const std::string& name, Index n_rows, Index n_cols,
               bool widen)
    : Matrix(files, name, StoredRows{0, n_rows}, n_rows, n_cols, widen) {}

Matrix::Matrix(const WeightFiles& files, const std::string& name, StoredRows part, Index n_rows,
               Index n_cols, bool widen)
    : stored_(files.get(name, {part.n_stored, n_cols})),
      first_row_(part.begin),
      n_rows_(n_rows),
      n_cols_(n_cols) {
  const bool in_order = stored_.order.is_same();
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(row(0)) % alignof(float) == 0;
  if (stored_.type == StoredType::f32 && is_aligned && in_order) {
    f32_ = reinterpret_cast<const float*>(row(0));
    // Large models are checked through what they compute: reading all of them here would take
    // minutes.
    if (widen)
      require_finite({f32_, static_cast<std::size_t>(n_rows * n_cols)}, name, stored_.file);
  } else if (widen) {
    widened_ = Tensor<float>::uninitialized({n_rows, n_cols});
    for (Index r = 0; r < n_rows; ++r) {
      kvscope::widen(stored_.type, row(r), widened_.data() + r * n_cols, n_cols);
    }
    require_finite(widened_.flat(), name, stored_.file);
    f32_ = widened_.data();
    // The copy is what stays in memory; the file's bytes need not. Other orders of rows stay among
    // the same bytes.
    forget_pages({stored_.data + stored_bytes(stored_.type, first_row_ * n_cols),
                  stored_bytes(stored_.type, n_rows * n_cols)});
  }
}

Matrix::Matrix(Tensor<float> values)
    : widened_(std::move(values)),
      f32_(widened_.data()),
      n_rows_(widened_.shape()[0]),
      n_cols_(widened_.shape()[1]) {}

Matrix Matrix::alternating(const WeightFiles& files, const std::string& even_name,
                           const std::string& odd_name, Index n_rows, Index n_cols) {
  Matrix matrix;
  matrix.storage_ = Storage::alternating;
  matrix.stored_ = files.get(even_name, {n_rows / 2, n_cols});
  matrix.odd_ = files.get(odd_name, {n_rows / 2, n_cols});
  matrix.n_rows_ = n_rows;
  matrix.n_cols_ = n_cols;
  return matrix;
}

const std::byte* Matrix::row(Index r) const {
  const StoredTensor& part = storage_ == Storage::alternating && r % 2 == 1 ? odd_ : stored_;
  const Index at = storage_ == Storage::alternating ? r / 2 : first_row_ + r;
  return part.data + stored_bytes(part.type, part.order.stored(at) * n_cols_);
}

Matrix Matrix::stored_by_columns(const WeightFiles& files, const std::string& name,
                                 ExpertSlice slice, Index n_rows, Index n_cols) {
  Matrix matrix;
  matrix.storage_ = Storage::columns;
  matrix.stored_ = files.get(name, {slice.n_experts, n_cols, n_rows});
  if (!is_plain(matrix.stored_.type)) {
    throw FormatError(fmt::format("tensor {}: expected F32, F16 or BF16, found {} ({})",
                                  quote(name), name_of(matrix.stored_.type), matrix.stored_.file));
  }
  matrix.stored_.data += stored_bytes(matrix.stored_.type, slice.expert * n_cols * n_rows);
  matrix.n_rows_ = n_rows;
  matrix.n_cols_ = n_cols;
  return matrix;
}

Matrix Matrix::stored_as_mxfp4(const WeightFiles& files, const std::string& name, ExpertSlice slice,
                               Index n_rows, Index n_cols) {
  if (n_cols % kMxfp4Block != 0) {
    throw ConfigError(
        fmt::format("tensor \"{}_blocks\": rows of {} values: expected a multiple of {}", name,
                    n_cols, kMxfp4Block));
  }
  const Index n_blocks = n_cols / kMxfp4Block;
  const std::byte* blocks =
      files.get_bytes(name + "_blocks", {slice.n_experts, n_rows, n_blocks, kMxfp4BlockBytes});
  const std::byte* scales = files.get_bytes(name + "_scales", {slice.n_experts, n_rows, n_blocks});
  const Index first = slice.expert * n_rows * n_blocks;
  Matrix matrix;
  matrix.storage_ = Storage::mxfp4;
  matrix.blocks_ = reinterpret_cast<const std::uint8_t*>(blocks) + first * kMxfp4BlockBytes;
  matrix.scales_ = reinterpret_cast<const std::uint8_t*>(scales) + first;
  matrix.n_rows_ = n_rows;
  matrix.n_cols_ = n_cols;
  return matrix;
}

void Matrix::widen_columns(Index begin, Index end, float* scratch, Index stride) const {
  constexpr Index kPiece = 64;  // a tile's rows lie side by side in every stored column
  std::array<float, kPiece> piece{};
  for (Index r0 = begin; r0 < end; r0 += kPiece) {
    const Index n = std::min(kPiece, end - r0);
    for (Index c = 0; c < n_cols_; ++c) {
      widen(stored_.type, stored_.data + stored_bytes(stored_.type, c * n_rows_ + r0), piece.data(),
            n);
      float* out = scratch + (r0 - begin) * stride + c;
      for (Index r = 0; r < n; ++r) out[r * stride] = piece[static_cast<std::size_t>(r)];
    }
  }
}

void Matrix::widen_packed(Index begin, Index end, float* scratch, Index stride) const {
  const Index n_blocks = n_cols_ / kMxfp4Block;
  for (Index r = begin; r < end; ++r) {
    widen_mxfp4(blocks_ + r * n_blocks * kMxfp4BlockBytes, scales_ + r * n_blocks, n_blocks,
                scratch + (r - begin) * stride);
  }
}

const float* Matrix::rows(Index begin, Index end, float* scratch, Index& stride) const {
  if (f32_ != nullptr) {
    stride = n_cols_;
    return f32_ + begin * n_cols_;
  }
  // The odd stride keeps rows of power-of-two length from sharing cache sets.
  stride = n_cols_ + 16;
  switch (storage_) {
    case Storage::columns:
      widen_columns(begin, end, scratch, stride);
      break;
    case Storage::mxfp4:
      widen_packed(begin, end, scratch, stride);
      break;
    case Storage::rows:
      for (Index r = begin; r < end; ++r) {
        widen(stored_.type, row(r), scratch + (r - begin) * stride, n_cols_);
      }
      break;
    case Storage::alternating:
      for (Index r = begin; r < end; ++r) {
        const StoredType type = r % 2 == 0 ? stored_.type : odd_.type;
        widen(type, row(r), scratch + (r - begin) * stride, n_cols_);
      }
      break;
  }
  return scratch;
}

const std::uint16_t* Matrix::stored_bf16(Index begin) const {
  if (storage_ != Storage::rows || stored_.type != StoredType::bf16 || !stored_.order.is_same()) {
    return nullptr;
  }
  const std::byte* const first = row(begin);
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(first) % alignof(std::uint16_t) == 0;
  return is_aligned ? reinterpret_cast<const std::uint16_t*>(first) : nullptr;
}

const std::uint16_t* Matrix::rows_bf16(Index begin, Index end, float* floats,
                                       std::uint16_t* scratch) const {
  if (const std::uint16_t* stored = stored_bf16(begin)) return stored;
  Index stride = 0;
  const float* wide = rows(begin, end, floats, stride);
  for (Index r = 0; r < end - begin; ++r) {
    from_float(wide + r * stride, DType::bf16, scratch + r * n_cols_,
               static_cast<std::size_t>(n_cols_));
  }
  return scratch;
}

}  // namespace kvscope
