#include "core/model/quantized_rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/mapped_file.hpp"
#include "core/model/safetensors.hpp"

namespace kvscope {

namespace {

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
  Fp8Rows(const WeightEntry& stored, ScaleGrid scales, Index first_row, Index n_cols)
      : stored_(stored), scales_(std::move(scales)), first_row_(first_row), n_cols_(n_cols) {}

  void widen(Index begin, Index end, float* out, Index stride) const override {
    static const auto kValues = make_e4m3();
    for (Index r = begin; r < end; ++r) {
      const std::byte* from = stored_.bytes.data() + (first_row_ + r) * n_cols_;
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
    forget_pages({stored_.bytes.data() + (first_row_ + begin) * n_cols_,
                  static_cast<std::size_t>((end - begin) * n_cols_)});
  }

 private:
  const WeightEntry& stored_;  // of files that live as long as the model
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
  const WeightEntry* const stored = files.find(tensor);
  if (stored == nullptr) {
    throw FormatError(
        "tensor {}: expected the scales of a weight in FP8 in {} or weight_scale, found neither",
        quote(name + ".weight"), quote(inverse));
  }
  const std::vector<Index>& shape = stored->shape;
  ScaleGrid grid = grid_of(quantization, tensor, shape, n_rows, n_cols);
  Shape expected{(n_rows + grid.block_rows - 1) / grid.block_rows, grid.n_across};
  if (shape.size() < 2) expected = shape.empty() ? Shape{} : Shape{shape.front()};
  const Tensor<float> scales = files.get_float(tensor, expected);
  grid.values.assign(scales.data(), scales.data() + scales.count());
  return grid;
}

}  // namespace

MatrixRowsPtr linear_rows(const WeightFiles& files, const QuantizationConfig& quantization,
                          const std::string& name, StoredRows part, Index n_cols) {
  const std::string weight = name + ".weight";
  const bool is_fp8 = quantization.kind == QuantizationConfig::Kind::fp8;
  const WeightEntry* const stored = files.find(weight);
  if (is_fp8 && stored != nullptr && stored->type_name == "F8_E4M3") {
    return std::make_unique<Fp8Rows>(files.get_packed(weight, "F8_E4M3", {part.n_stored, n_cols}),
                                     read_scales(files, quantization, name, part.n_stored, n_cols),
                                     part.begin, n_cols);
  }
  return stored_rows(files, weight, part, n_cols);
}

}  // namespace kvscope
