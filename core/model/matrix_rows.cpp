#include "core/model/matrix_rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/mapped_file.hpp"

namespace kvscope {

namespace {

template <class T>
const T* aligned(const std::byte* data) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(data) % alignof(T) == 0;
  return is_aligned ? reinterpret_cast<const T*>(data) : nullptr;
}

class TensorRows final : public MatrixRows {
 public:
  TensorRows(StoredTensor stored, Index first_row, Index n_cols)
      : stored_(std::move(stored)), first_row_(first_row), n_cols_(n_cols) {}

  void widen(Index begin, Index end, float* out, Index stride) const override {
    for (Index r = begin; r < end; ++r) {
      kvscope::widen(stored_.type, row(r), out + (r - begin) * stride, n_cols_);
    }
  }
  const float* in_f32(Index begin) const override {
    return lies_as(StoredType::f32) ? aligned<float>(row(begin)) : nullptr;
  }
  const std::uint16_t* in_bf16(Index begin) const override {
    return lies_as(StoredType::bf16) ? aligned<std::uint16_t>(row(begin)) : nullptr;
  }
  std::string file() const override { return stored_.file; }
  // Other orders of rows stay among the same bytes, once all rows are read.
  void forget(Index begin, Index end) const override {
    forget_pages({stored_.data + stored_bytes(stored_.type, (first_row_ + begin) * n_cols_),
                  stored_bytes(stored_.type, (end - begin) * n_cols_)});
  }

 private:
  bool lies_as(StoredType type) const { return stored_.type == type && stored_.order.is_same(); }
  const std::byte* row(Index r) const {
    const Index at = stored_.order.stored(first_row_ + r);
    return stored_.data + stored_bytes(stored_.type, at * n_cols_);
  }

  StoredTensor stored_;
  Index first_row_;
  Index n_cols_;
};

class AlternatingRows final : public MatrixRows {
 public:
  AlternatingRows(MatrixRowsPtr even, MatrixRowsPtr odd)
      : even_(std::move(even)), odd_(std::move(odd)) {}

  void widen(Index begin, Index end, float* out, Index stride) const override {
    for (Index r = begin; r < end; ++r) {
      const MatrixRows& part = r % 2 == 0 ? *even_ : *odd_;
      part.widen(r / 2, r / 2 + 1, out + (r - begin) * stride, stride);
    }
  }
  std::string file() const override { return even_->file(); }

 private:
  MatrixRowsPtr even_, odd_;
};

class ColumnRows final : public MatrixRows {
 public:
  ColumnRows(StoredTensor stored, Index n_rows, Index n_cols)
      : stored_(std::move(stored)), n_rows_(n_rows), n_cols_(n_cols) {}

  void widen(Index begin, Index end, float* out, Index stride) const override {
    constexpr Index kPiece = 64;  // a tile's rows lie side by side in every stored column
    std::array<float, static_cast<std::size_t>(kPiece)> piece{};
    for (Index c = 0; c < n_cols_; ++c) {
      for (Index r0 = begin; r0 < end; r0 += kPiece) {
        const Index n = std::min(kPiece, end - r0);
        kvscope::widen(stored_.type, stored_.data + stored_bytes(stored_.type, c * n_rows_ + r0),
                       piece.data(), n);
        float* to = out + (r0 - begin) * stride + c;
        for (Index r = 0; r < n; ++r) to[r * stride] = piece[static_cast<std::size_t>(r)];
      }
    }
  }
  std::string file() const override { return stored_.file; }

 private:
  StoredTensor stored_;
  Index n_rows_, n_cols_;
};

// MXFP4 weights as published gpt-oss checkpoints pack them: blocks of 32 four-bit floats that share
// one power of two.
//
// A row of n values is n / 32 blocks of 16 bytes; the value 2 i of a block is the low half of byte
// i, 2 i + 1 the high half. Each half is a float of one sign, two exponent and one mantissa bit
// (0, 0.5, 1, 1.5, 2, 3, 4, 6); the block's scale byte s multiplies it by 2^(s - 127), and s = 255
// means NaN (Open Compute Project, Microscaling Formats v1.0).
constexpr Index kMxfp4Block = 32;       // values that share a scale
constexpr Index kMxfp4BlockBytes = 16;  // their packed size
constexpr std::array<float, 16> kHalfByte = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                             4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                             -2.0f, -3.0f, -4.0f, -6.0f};

// Both values of every byte: one look-up for two.
std::array<std::array<float, 2>, 256> make_pairs() {
  std::array<std::array<float, 2>, 256> pairs{};
  for (std::size_t byte = 0; byte < pairs.size(); ++byte) {
    pairs[byte] = {kHalfByte[byte & 15U], kHalfByte[byte >> 4U]};
  }
  return pairs;
}

std::array<float, 256> make_scales() {
  std::array<float, 256> scales{};
  for (int s = 0; s < 255; ++s) scales[static_cast<std::size_t>(s)] = std::ldexp(1.0f, s - 127);
  scales[255] = std::numeric_limits<float>::quiet_NaN();
  return scales;
}

/// Widens n_blocks consecutive blocks, exactly. blocks [n_blocks, 16], scales [n_blocks], out
/// [n_blocks * 32].
void widen_mxfp4(const std::uint8_t* blocks, const std::uint8_t* scales, Index n_blocks,
                 float* out) {
  static const auto kPairs = make_pairs();
  static const auto kScales = make_scales();
  for (Index block = 0; block < n_blocks; ++block) {
    const float scale = kScales[scales[block]];
    const std::uint8_t* bytes = blocks + block * kMxfp4BlockBytes;
    float* values = out + block * kMxfp4Block;
    for (Index i = 0; i < kMxfp4BlockBytes; ++i) {
      const auto& pair = kPairs[bytes[i]];
      values[2 * i] = scale * pair[0];
      values[2 * i + 1] = scale * pair[1];
    }
  }
}

class Mxfp4Rows final : public MatrixRows {
 public:
  Mxfp4Rows(const WeightEntry& blocks, const WeightEntry& scales, Index first_block, Index n_blocks)
      : blocks_(reinterpret_cast<const std::uint8_t*>(blocks.bytes.data()) +
                first_block * kMxfp4BlockBytes),
        scales_(reinterpret_cast<const std::uint8_t*>(scales.bytes.data()) + first_block),
        n_blocks_(n_blocks),
        file_(blocks.file) {}

  void widen(Index begin, Index end, float* out, Index stride) const override {
    for (Index r = begin; r < end; ++r) {
      widen_mxfp4(blocks_ + r * n_blocks_ * kMxfp4BlockBytes, scales_ + r * n_blocks_, n_blocks_,
                  out + (r - begin) * stride);
    }
  }
  std::string file() const override { return file_; }

 private:
  const std::uint8_t* blocks_;
  const std::uint8_t* scales_;
  Index n_blocks_;  // per row
  std::string file_;
};

}  // namespace

MatrixRowsPtr stored_rows(const WeightFiles& files, const std::string& name, StoredRows part,
                          Index n_cols) {
  return std::make_unique<TensorRows>(files.get(name, {part.n_stored, n_cols}), part.begin, n_cols);
}

MatrixRowsPtr alternating_rows(const WeightFiles& files, const std::string& even_name,
                               const std::string& odd_name, Index n_rows, Index n_cols) {
  const StoredRows whole{0, n_rows / 2};
  return std::make_unique<AlternatingRows>(stored_rows(files, even_name, whole, n_cols),
                                           stored_rows(files, odd_name, whole, n_cols));
}

MatrixRowsPtr columns_as_rows(const WeightFiles& files, const std::string& name, ExpertSlice slice,
                              Index n_rows, Index n_cols) {
  StoredTensor stored = files.get(name, {slice.n_experts, n_cols, n_rows});
  if (!is_plain(stored.type)) {
    throw FormatError("tensor {}: expected F32, F16 or BF16, found {} ({})", quote(name),
                      name_of(stored.type), stored.file);
  }
  stored.data += stored_bytes(stored.type, slice.expert * n_cols * n_rows);
  return std::make_unique<ColumnRows>(std::move(stored), n_rows, n_cols);
}

MatrixRowsPtr mxfp4_rows(const WeightFiles& files, const std::string& name, ExpertSlice slice,
                         Index n_rows, Index n_cols) {
  if (n_cols % kMxfp4Block != 0) {
    throw ConfigError("tensor \"{}_blocks\": rows of {} values: expected a multiple of {}", name,
                      n_cols, kMxfp4Block);
  }
  const Index n_blocks = n_cols / kMxfp4Block;
  return std::make_unique<Mxfp4Rows>(
      files.get_packed(name + "_blocks", "U8",
                       {slice.n_experts, n_rows, n_blocks, kMxfp4BlockBytes}),
      files.get_packed(name + "_scales", "U8", {slice.n_experts, n_rows, n_blocks}),
      slice.expert * n_rows * n_blocks, n_blocks);
}

}  // namespace kvscope
