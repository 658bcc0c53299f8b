// The byte-level alphabet of GPT-2: each byte is written as one printable character, so that a
// vocabulary file can hold any bytes as text (a space is "Ġ", a line feed "Ċ").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvscope {

/// The character (UTF-8, one or two bytes) that stands for `byte`.
std::string byte_level_char(std::uint8_t byte);

/// The bytes that `token` stands for; empty if a character of it is not in the alphabet. `token` is
/// well-formed UTF-8.
std::optional<std::string> bytes_from_byte_level(std::string_view token);

}  // namespace kvscope
