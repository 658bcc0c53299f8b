// A reader of protocol buffers' wire format: the fields of one message, one after the other.
//
// A field is a key (its number and how its value is stored) and the value: a number in seven-bit
// groups, four or eight bytes, or a length and so many bytes (strings, messages).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace kvscope {

/// Walks through the fields of a message.
class ProtobufMessage {
 public:
  /// `where` names the file in messages; `bytes` must outlive this object.
  ProtobufMessage(std::string_view bytes, std::string where)
      : bytes_(bytes), where_(std::move(where)) {}

  /// Goes to the next field; false at the end. Throws FormatError for what is no such format.
  bool next();

  std::uint32_t field() const { return field_; }

  /// The field's value. Throws FormatError if it is stored otherwise.
  std::string_view bytes() const;
  std::int64_t integer() const;
  bool boolean() const { return integer() != 0; }
  float number() const;  // of four bytes
  ProtobufMessage message() const { return ProtobufMessage(bytes(), where_); }

 private:
  enum class Kind { varint = 0, eight_bytes = 1, bytes = 2, four_bytes = 5 };

  std::uint64_t read_varint();
  std::uint64_t read_fixed(std::size_t n);
  std::string_view take(std::uint64_t n);
  void require(Kind kind, std::string_view expected) const;
  [[noreturn]] void fail(const std::string& what) const;

  std::string_view bytes_;
  std::string where_;
  std::size_t at_ = 0;
  std::uint32_t field_ = 0;
  Kind kind_ = Kind::varint;
  std::uint64_t value_ = 0;
  std::string_view text_;
};

}  // namespace kvscope
