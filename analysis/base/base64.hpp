// Bytes as text in journals: exact, NaN included. The last group is filled up with zero bytes,
// since whoever reads knows how many there are.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvscope {

std::string text_from_bytes(std::span<const std::byte> bytes);

/// Empty unless the text is that of n bytes.
std::optional<std::vector<std::byte>> bytes_from_text(std::string_view text, std::size_t n);

}  // namespace kvscope
