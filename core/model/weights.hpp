// Weights of a checkpoint folder: safetensors files (one or sharded), memory-mapped,
// never copied whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/dtype.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// One stored tensor: a window on mapped file bytes, valid as long as its WeightFiles lives.
struct StoredTensor {
  DType dtype = DType::f32;
  Shape shape;
  const std::byte* data = nullptr;  // may be unaligned
  std::string file;                 // name of the shard, for messages

  Index count() const { return shape.count(); }
};

/// A tensor as a list of a checkpoint's contents names it: of any dtype, also one that cannot be
/// computed with. Valid as long as its WeightFiles lives.
struct ListedTensor {
  std::string_view name;
  std::string_view dtype_name;  // as the file spells it
  std::vector<Index> shape;
  std::span<const std::byte> bytes;  // as stored
};

/// Throws FormatError naming tensor, element and file if a value is NaN or infinite.
void require_finite(std::span<const float> values, std::string_view name, const std::string& file);

/// The tensors of one checkpoint folder by name.
class WeightFiles {
 public:
  /// Maps `model_dir`/model.safetensors, or the shards that model.safetensors.index.json lists.
  /// Checks before anything is allocated: header length against the file, JSON, dtype (F32,
  /// F16, BF16; others are kept as "unsupported" and refused when asked for), shape times size
  /// equal to the offsets, offsets inside the file, ascending without overlap or gap. Throws
  /// IoError or FormatError.
  static WeightFiles open(const std::filesystem::path& model_dir);

  WeightFiles(WeightFiles&&) noexcept;
  WeightFiles& operator=(WeightFiles&&) noexcept;
  ~WeightFiles();

  bool contains(std::string_view name) const;

  /// The tensor `name`, whose shape must be `expected`. Throws FormatError if it is missing, has
  /// another shape (message: name, expected, found, file) or an unsupported dtype.
  StoredTensor get(std::string_view name, const Shape& expected) const;

  /// The bytes of the tensor `name`, which must have dtype U8 and shape `expected`: packed weights.
  /// Throws FormatError as get() does.
  const std::byte* get_bytes(std::string_view name, const Shape& expected) const;

  /// As get(), widened to float. For small tensors (norms, biases). Throws FormatError also when a
  /// value is NaN or Inf (message: name, index, file).
  Tensor<float> get_float(std::string_view name, const Shape& expected) const;

  std::vector<std::string> names() const;
  /// All tensors in the order of their names.
  std::vector<ListedTensor> list() const;
  std::int64_t n_parameters() const;  // elements in all tensors
  std::int64_t n_bytes() const;       // bytes of all tensor data

 private:
  struct Impl;
  explicit WeightFiles(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvscope
