// Writes GGUF files for tests: sound ones from values, broken ones from numbers of one's own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/stored_type.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope::testing {

/// `value` as it lies in a file, little endian.
template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// A GGUF string: its length, then its bytes.
std::string gguf_string(std::string_view text);

/// Collects metadata and tensors and lays them out.
class GgufBuilder {
 public:
  GgufBuilder& u32(std::string_view name, std::uint32_t value);
  GgufBuilder& f32(std::string_view name, float value);
  GgufBuilder& boolean(std::string_view name, bool value);
  GgufBuilder& string(std::string_view name, std::string_view value);
  GgufBuilder& strings(std::string_view name, const std::vector<std::string>& values);
  GgufBuilder& numbers(std::string_view name, std::span<const float> values);
  /// A field of any type number, with the bytes of its value.
  GgufBuilder& field(std::string_view name, std::uint32_t type, std::string_view value);

  /// A tensor in F32; `shape` as the hub has it, rows first.
  GgufBuilder& tensor(std::string_view name, const std::vector<Index>& shape,
                      std::span<const float> values);
  /// A tensor of any type number, with its bytes.
  GgufBuilder& raw_tensor(std::string_view name, std::uint32_t type,
                          const std::vector<Index>& shape, std::string_view bytes);

  std::string bytes(std::uint32_t version = 3) const;

 private:
  std::uint64_t n_fields_ = 0;
  std::uint64_t n_tensors_ = 0;
  std::string fields_;
  std::string tensors_;
  std::string data_;
};

}  // namespace kvscope::testing
