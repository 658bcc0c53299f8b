// Bytes as text (base64): exact, NaN included.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvscope {

/// How three bytes of which some are lacking are written: as if they were zeros, for readers who
/// know how many bytes there are, or with = in their place, for all others.
enum class LastGroup { zeros, padded };

std::string text_from_bytes(std::span<const std::byte> bytes, LastGroup last = LastGroup::zeros);

/// Empty unless the text is that of n bytes.
std::optional<std::vector<std::byte>> bytes_from_text(std::string_view text, std::size_t n);

}  // namespace kvscope
