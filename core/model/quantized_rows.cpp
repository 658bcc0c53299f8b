#include "core/model/quantized_rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/mapped_file.hpp"
#include "core/model/safetensors.hpp"

namespace kvscope {

namespace {

constexpr Index kPerWord = 8;  // values of 4 bits in 32

// ---- FP8

// Four bits of exponent, three of mantissa, no infinities (OCP FP8, arXiv 2209.05433, table 1).
std::array<float, 256> make_e4m3() {
  std::array<float, 256> values{};
  for (int byte = 0; byte < 256; ++byte) {
    const int exponent = byte >> 3 & 15;
    const int mantissa = byte & 7;
    float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                               : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if (exponent == 15 && mantissa == 7) size = std::numeric_limits<float>::quiet_NaN();
    values[static_cast<std::size_t>(byte)] = byte < 128 ? size : -size;
  }
  return values;
}

// Scales of blocks of rows and columns; the last blocks may be smaller.
struct ScaleGrid {
  std::vector<float> values;  // [n_blocks of rows, n_blocks of columns]
  Index block_rows = 1;
  Index block_cols = 1;
  Index n_across = 1;  // blocks of columns

  const float* of_row(Index row) const { return values.data() + row / block_rows * n_across; }
};

class Fp8Rows final : public MatrixRows {
 public:
  Fp8Rows(StoredBytes stored, ScaleGrid scales, Index first_row, Index n_cols)
      : stored_(std::move(stored)),
        scales_(std::move(scales)),
        first_row_(first_row),
        n_cols_(n_cols) {}

  void widen(Index begin, Index end, float* out, Index stride) const override {
    static const auto kValues = make_e4m3();
    for (Index r = begin; r < end; ++r) {
      const std::byte* from = stored_.data + (first_row_ + r) * n_cols_;
      const float* scale = scales_.of_row(first_row_ + r);
      float* to = out + (r - begin) * stride;
      for (Index c0 = 0; c0 < n_cols_; c0 += scales_.block_cols, ++scale) {
        const Index c1 = std::min(c0 + scales_.block_cols, n_cols_);
        for (Index c = c0; c < c1; ++c) {
          to[c] = kValues[std::to_integer<std::size_t>(from[c])] * *scale;
        }
      }
    }
  }
  std::string file() const override { return stored_.file; }
  void forget(Index begin, Index end) const override {
    forget_pages({stored_.data + (first_row_ + begin) * n_cols_,
                  static_cast<std::size_t>((end - begin) * n_cols_)});
  }

 private:
  StoredBytes stored_;
  ScaleGrid scales_;
  Index first_row_, n_cols_;
};

// The shape of the scales tells one for all ([], [1]) and one per row ([n], [n, 1]) from blocks.
ScaleGrid grid_of(const QuantizationConfig& quantization, const std::string& name,
                  const std::vector<Index>& shape, Index n_rows, Index n_cols) {
  Index n_scales = 1;
  for (const Index extent : shape) n_scales *= extent;
  const bool is_flat = shape.size() <= 1 || (shape.size() == 2 && shape.back() == 1);
  if (is_flat && n_scales == 1) return {{}, n_rows, n_cols, 1};
  if (is_flat && n_scales == n_rows) return {{}, 1, n_cols, 1};
  if (quantization.block_rows == 0 || shape.size() != 2) {
    throw FormatError(
        "tensor {}: expected one scale or {} (one per row; there is no weight_block_size in "
        "quantization_config), found shape {}",
        quote(name), n_rows, shape_text(shape));
  }
  const Index n_across = (n_cols + quantization.block_cols - 1) / quantization.block_cols;
  return {{}, quantization.block_rows, quantization.block_cols, n_across};
}

ScaleGrid read_scales(const WeightFiles& files, const QuantizationConfig& quantization,
                      const std::string& name, Index n_rows, Index n_cols) {
  const std::string inverse = name + ".weight_scale_inv";  // a factor too, in spite of its name
  const std::string tensor = files.contains(inverse) ? inverse : name + ".weight_scale";
  const auto shape = files.shape_of(tensor);
  if (!shape) {
    throw FormatError(
        "tensor {}: expected the scales of a weight in FP8 in {} or weight_scale, found neither",
        quote(name + ".weight"), quote(inverse));
  }
  ScaleGrid grid = grid_of(quantization, tensor, *shape, n_rows, n_cols);
  Shape expected{(n_rows + grid.block_rows - 1) / grid.block_rows, grid.n_across};
  if (shape->size() < 2) expected = shape->empty() ? Shape{} : Shape{shape->front()};
  const Tensor<float> scales = files.get_float(tensor, expected);
  grid.values.assign(scales.data(), scales.data() + scales.count());
  return grid;
}

// ---- GPTQ and AWQ

// A table of words, eight values of 4 bits each.
struct PackedTable {
  StoredBytes stored;
  Index n_across = 0;  // words of a row

  std::uint32_t word(Index row, Index at) const {
    std::uint32_t value = 0;
    std::memcpy(&value, stored.data + (row * n_across + at) * 4, sizeof value);
    return value;
  }
};

// The place, in bits, of each of eight values in a word.
using BitPlaces = std::array<unsigned, static_cast<std::size_t>(kPerWord)>;
constexpr BitPlaces kInOrder = {0, 4, 8, 12, 16, 20, 24, 28};
constexpr BitPlaces kAwqOrder = {0, 16, 4, 20, 8, 24, 12, 28};

struct Int4Tables {
  PackedTable weights, zeros;
  StoredTensor scales;          // [n_groups, n_rows]
  std::vector<Index> group_of;  // by input
  Index n_groups = 0;
  Index n_rows = 0;  // stored
  bool packs_inputs =
      false;  // GPTQ: a word holds eight inputs of a row, else eight rows of an input
  const BitPlaces* places = &kInOrder;
  unsigned zero_offset = 0;
};

class Int4Rows final : public MatrixRows {
 public:
  Int4Rows(Int4Tables tables, Index first_row)
      : tables_(std::move(tables)), first_row_(first_row) {}

  void widen(Index begin, Index end, float* out, Index stride) const override {
    // Rows lie side by side in every table: few at a time keep what is written in the cache.
    constexpr Index kPiece = 64;
    std::vector<float> scales, zeros;
    for (Index r0 = begin; r0 < end; r0 += kPiece) {
      const Index n = std::min(kPiece, end - r0);
      const Index first = first_row_ + r0;
      read_groups(first, n, scales, zeros);
      for (Index c = 0; c < n_cols(); ++c) {
        const auto group = static_cast<std::size_t>(tables_.group_of[static_cast<std::size_t>(c)]);
        const float* scale = scales.data() + group * static_cast<std::size_t>(n);
        const float* zero = zeros.data() + group * static_cast<std::size_t>(n);
        float* to = out + (r0 - begin) * stride + c;
        for (Index r = 0; r < n; ++r) {
          to[r * stride] = scale[r] * (static_cast<float>(weight(first + r, c)) - zero[r]);
        }
      }
    }
  }
  std::string file() const override { return tables_.weights.stored.file; }
  // Parts of rows lie among each other: all of them, once all are read.
  void forget(Index begin, Index end) const override {
    if (begin > 0 || end < tables_.n_rows) return;
    for (const StoredBytes* part : {&tables_.weights.stored, &tables_.zeros.stored}) {
      forget_pages({part->data, part->size});
    }
  }

 private:
  Index n_cols() const { return static_cast<Index>(tables_.group_of.size()); }

  unsigned value(const PackedTable& table, Index line, Index packed) const {
    const unsigned place = (*tables_.places)[static_cast<std::size_t>(packed % kPerWord)];
    return table.word(line, packed / kPerWord) >> place & 15U;
  }
  unsigned weight(Index row, Index col) const {
    if (!tables_.packs_inputs) return value(tables_.weights, col, row);
    return tables_.weights.word(col / kPerWord, row) >> (4U * static_cast<unsigned>(col % 8)) & 15U;
  }

  // Scales and zeros [n_groups, n] of rows first, ...
  void read_groups(Index first, Index n, std::vector<float>& scales,
                   std::vector<float>& zeros) const {
    const auto size = static_cast<std::size_t>(tables_.n_groups * n);
    scales.resize(size);
    zeros.resize(size);
    for (Index g = 0; g < tables_.n_groups; ++g) {
      const Index at = g * tables_.n_rows + first;
      kvscope::widen(tables_.scales.type,
                     tables_.scales.data + stored_bytes(tables_.scales.type, at),
                     scales.data() + g * n, n);
      for (Index r = 0; r < n; ++r) {
        const unsigned zero = (value(tables_.zeros, g, first + r) + tables_.zero_offset) & 15U;
        zeros[static_cast<std::size_t>(g * n + r)] = static_cast<float>(zero);
      }
    }
  }

  Int4Tables tables_;
  Index first_row_;
};

void require_multiple(const std::string& name, const char* what, Index n) {
  if (n % kPerWord == 0) return;
  throw FormatError("tensor {}: expected a multiple of {} {} (4 bits each), found {}", quote(name),
                    kPerWord, what, n);
}

std::vector<Index> groups_in_order(Index n_cols, Index n_groups, Index group_size) {
  std::vector<Index> group_of(static_cast<std::size_t>(n_cols));
  for (Index c = 0; c < n_cols; ++c) {
    group_of[static_cast<std::size_t>(c)] = std::min(c / group_size, n_groups - 1);
  }
  return group_of;
}

// Files of desc_act say it input by input.
std::vector<Index> read_groups(const WeightFiles& files, const std::string& name, Index n_cols,
                               Index n_groups) {
  const StoredBytes stored = files.get_bytes(name, "I32", {n_cols});
  std::vector<Index> group_of;
  for (Index c = 0; c < n_cols; ++c) {
    std::int32_t group = 0;
    std::memcpy(&group, stored.data + c * 4, sizeof group);
    if (group < 0 || group >= n_groups) {
      throw FormatError("tensor {}: expected groups from 0 to {}, found {} at element {} ({})",
                        quote(name), n_groups - 1, group, c, stored.file);
    }
    group_of.push_back(group);
  }
  return group_of;
}

MatrixRowsPtr int4_rows(const WeightFiles& files, const QuantizationConfig& quantization,
                        const std::string& name, StoredRows part, Index n_cols) {
  const bool is_gptq = quantization.kind == QuantizationConfig::Kind::gptq;
  require_multiple(name + ".qweight", "rows", part.n_stored);
  const Index group_size = quantization.group_size > 0 ? quantization.group_size : n_cols;
  Int4Tables tables;
  tables.packs_inputs = is_gptq;
  tables.places = is_gptq ? &kInOrder : &kAwqOrder;
  tables.zero_offset = quantization.zeros_less_one ? 1 : 0;
  tables.n_rows = part.n_stored;
  tables.n_groups = (n_cols + group_size - 1) / group_size;
  const Index n_packed = part.n_stored / kPerWord;
  if (is_gptq) {
    require_multiple(name + ".qweight", "columns", n_cols);
    tables.weights = {files.get_bytes(name + ".qweight", "I32", {n_cols / kPerWord, part.n_stored}),
                      part.n_stored};
  } else {
    tables.weights = {files.get_bytes(name + ".qweight", "I32", {n_cols, n_packed}), n_packed};
  }
  tables.zeros = {files.get_bytes(name + ".qzeros", "I32", {tables.n_groups, n_packed}), n_packed};
  tables.scales = files.get(name + ".scales", {tables.n_groups, part.n_stored});
  if (!is_plain(tables.scales.type)) {
    throw FormatError("tensor {}: expected F32, F16 or BF16, found {} ({})",
                      quote(name + ".scales"), name_of(tables.scales.type), tables.scales.file);
  }
  const std::string groups = name + ".g_idx";
  tables.group_of = is_gptq && files.contains(groups)
                        ? read_groups(files, groups, n_cols, tables.n_groups)
                        : groups_in_order(n_cols, tables.n_groups, group_size);
  return std::make_unique<Int4Rows>(std::move(tables), part.begin);
}

}  // namespace

MatrixRowsPtr linear_rows(const WeightFiles& files, const QuantizationConfig& quantization,
                          const std::string& name, StoredRows part, Index n_cols) {
  using Kind = QuantizationConfig::Kind;
  const std::string weight = name + ".weight";
  switch (quantization.kind) {
    case Kind::fp8:
      if (files.type_of(weight) == "F8_E4M3") {
        return std::make_unique<Fp8Rows>(
            files.get_bytes(weight, "F8_E4M3", {part.n_stored, n_cols}),
            read_scales(files, quantization, name, part.n_stored, n_cols), part.begin, n_cols);
      }
      break;
    case Kind::gptq:
    case Kind::awq:
      if (files.contains(name + ".qweight")) {
        return int4_rows(files, quantization, name, part, n_cols);
      }
      break;
    case Kind::none:
    case Kind::mxfp4:
    case Kind::other:
      break;
  }
  return stored_rows(files, weight, part, n_cols);
}

}  // namespace kvscope
