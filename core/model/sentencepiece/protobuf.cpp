#include "core/model/sentencepiece/protobuf.hpp"

#include <fmt/format.h>

#include <bit>

#include "core/base/error.hpp"

namespace kvscope {

bool ProtobufMessage::next() {
  if (at_ == bytes_.size()) return false;
  const std::uint64_t key = read_varint();
  if (key >> 3 == 0 || key >> 3 > 0x1fffffff) {
    fail(fmt::format("expected the number of a field, found {}", key >> 3));
  }
  field_ = static_cast<std::uint32_t>(key >> 3);
  kind_ = static_cast<Kind>(key & 7);
  switch (kind_) {
    case Kind::varint:
      value_ = read_varint();
      return true;
    case Kind::eight_bytes:
      value_ = read_fixed(8);
      return true;
    case Kind::four_bytes:
      value_ = read_fixed(4);
      return true;
    case Kind::bytes:
      text_ = take(read_varint());
      return true;
  }
  fail(fmt::format("expected a field that is stored as a number or as bytes, found kind {}",
                   key & 7));
}

std::string_view ProtobufMessage::bytes() const {
  require(Kind::bytes, "bytes");
  return text_;
}

std::int64_t ProtobufMessage::integer() const {
  require(Kind::varint, "a whole number");
  return static_cast<std::int64_t>(value_);
}

float ProtobufMessage::number() const {
  require(Kind::four_bytes, "a number of four bytes");
  return std::bit_cast<float>(static_cast<std::uint32_t>(value_));
}

std::uint64_t ProtobufMessage::read_varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1).front());
    value |= std::uint64_t{byte & 127U} << shift;
    if (byte < 128) return value;
  }
  fail("expected a number of at most ten bytes, found a longer one");
}

std::uint64_t ProtobufMessage::read_fixed(std::size_t n) {
  std::uint64_t value = 0;
  const std::string_view bytes = take(n);
  for (std::size_t i = 0; i < n; ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

std::string_view ProtobufMessage::take(std::uint64_t n) {
  if (n > bytes_.size() - at_) {
    fail(fmt::format("expected {} more bytes, found {}; the file is truncated or none", n,
                     bytes_.size() - at_));
  }
  const std::string_view part = bytes_.substr(at_, n);
  at_ += n;
  return part;
}

void ProtobufMessage::require(Kind kind, std::string_view expected) const {
  if (kind_ != kind) fail(fmt::format("field {}: expected {}", field_, expected));
}

void ProtobufMessage::fail(const std::string& what) const {
  throw FormatError("{}: no protocol buffer: {}", where_, what);
}

}  // namespace kvscope
