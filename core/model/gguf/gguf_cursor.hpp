// Reads the parts of a GGUF header one behind the other; used by gguf_file.cpp only.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/model/gguf/gguf_file.hpp"

namespace kvscope {

/// A place in the bytes of a file that never leaves them. Every function throws FormatError where
/// the bytes end too early.
class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> bytes, std::string file)
      : bytes_(bytes), file_(std::move(file)) {}

  std::uint64_t position() const { return at_; }
  std::uint64_t n_left() const { return bytes_.size() - at_; }
  void skip(std::uint64_t n) {
    require(n);
    at_ += n;
  }

  /// A number in little endian, as it lies there.
  template <class T>
  T number() {
    require(sizeof(T));
    T value{};
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  /// A string of at most `most` bytes.
  std::string_view string(std::uint64_t most);

  /// A number of things of at least `least_bytes` each, which the rest of the file can hold.
  std::uint64_t count(std::string_view what, std::uint64_t least_bytes);

  /// The type of a metadata value and the value.
  GgufValue value();

  [[noreturn]] void fail(const std::string& what) const;

 private:
  void require(std::uint64_t n) const;
  GgufValue scalar(std::uint32_t type);
  GgufArray array();

  std::span<const std::byte> bytes_;
  std::string file_;
  std::uint64_t at_ = 0;
};

}  // namespace kvscope
