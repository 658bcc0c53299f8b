// Writes safetensors files for tests: sound ones from values, broken ones from a header of one's
// own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/dtype.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope::testing {

/// The bytes of a file with this JSON header (its true length in front) and this data.
std::string safetensors_bytes(std::string_view header, std::string_view data);

/// 8 bytes, little endian.
std::string little_endian_u64(std::uint64_t value);

/// Collects tensors and lays them out one behind the other.
class SafetensorsBuilder {
 public:
  /// Adds `values` (as many as `shape` says), rounded to `dtype`.
  SafetensorsBuilder& add(std::string_view name, DType dtype, const std::vector<Index>& shape,
                          std::span<const float> values);
  /// Adds a tensor of any type name with raw bytes.
  SafetensorsBuilder& add_raw(std::string_view name, std::string_view dtype_name,
                              const std::vector<Index>& shape, std::string_view bytes);
  /// Adds a "__metadata__" entry.
  SafetensorsBuilder& metadata(std::string_view json);

  std::string bytes() const;

 private:
  std::string header_;
  std::string data_;
};

}  // namespace kvscope::testing
