// Weights of a checkpoint by the hub's names: safetensors files (one or sharded) of a folder, or a
// GGUF file (one or split), memory-mapped, never copied whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/row_order.hpp"
#include "core/model/stored_type.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// One stored tensor: a window on mapped file bytes, valid as long as its WeightFiles lives.
struct StoredTensor {
  StoredType type = StoredType::f32;
  Shape shape;
  const std::byte* data = nullptr;  // may be unaligned
  std::string file;                 // name of the shard, for messages
  RowOrder order;                   // where the rows of the first axis lie
  float added = 0.0f;               // what the file's values have more than the hub's

  Index count() const { return shape.count(); }
};

/// Throws FormatError naming tensor, element (the first one is `first`) and file if a value is NaN
/// or infinite.
void require_finite(std::span<const float> values, std::string_view name, const std::string& file,
                    Index first = 0);

/// One tensor of a checkpoint, as its file has it and calls it.
struct WeightEntry : TensorInFile {
  std::string file;     // its name, without the folder
  RowOrder order = {};  // as in StoredTensor
  float added = 0.0f;
};

/// By the hub's names.
using WeightEntries = std::map<std::string, WeightEntry, std::less<>>;

/// The tensors of one checkpoint by name.
class WeightFiles {
 public:
  /// Maps `model`/model.safetensors, or the shards that model.safetensors.index.json lists, or the
  /// GGUF file that `model` is or holds (core/model/gguf/gguf_checkpoint.hpp).
  /// Checks before anything is allocated: header length against the file, JSON, types (others than
  /// StoredType's are kept as "unsupported" and refused when asked for), shape times size
  /// equal to the offsets, offsets inside the file, ascending without overlap or gap. Throws
  /// IoError or FormatError.
  static WeightFiles open(const std::filesystem::path& model);

  WeightFiles(WeightFiles&&) noexcept;
  WeightFiles& operator=(WeightFiles&&) noexcept;
  ~WeightFiles();

  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// The tensor `name`, of whatever type, or null. Lives as long as this object.
  const WeightEntry* find(std::string_view name) const;
  const WeightEntries& entries() const;

  /// The tensor `name`, whose shape must be `expected`. Throws FormatError if it is missing, has
  /// another shape (message: name, expected, found, file) or an unsupported dtype.
  StoredTensor get(std::string_view name, const Shape& expected) const;

  /// The tensor `name`, which must have this dtype (as the file spells it) and shape:
  /// packed weights. Throws FormatError as get() does.
  const WeightEntry& get_packed(std::string_view name, std::string_view dtype,
                                const Shape& expected) const;

  /// As get(), widened to float, in the hub's order. For small tensors (norms, biases). Throws
  /// FormatError also when a value is NaN or Inf (message: name, index, file).
  Tensor<float> get_float(std::string_view name, const Shape& expected) const;

  /// Takes a tensor, if it is there, as one that has no meaning.
  void pass_over(std::string_view name) const;
  /// Those that get(), get_packed() and get_float() were never asked for, others than passed over.
  std::vector<std::string> unread() const;
  /// Bytes of the tensors by the name of their type: {"Q4_K", 1234}, ...
  std::map<std::string, std::int64_t> bytes_by_type() const;
  std::int64_t n_parameters() const;  // elements in all tensors
  std::int64_t n_bytes() const;       // bytes of all tensor data

 private:
  struct Impl;
  explicit WeightFiles(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvscope
