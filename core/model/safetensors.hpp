// The header of one safetensors file: which tensors it holds and where their bytes lie.
//
// Layout: 8 bytes N (little endian), N bytes of JSON {"name": {"dtype", "shape", "data_offsets"},
// ...}, then the data without gaps; offsets count from the end of the header.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/model/stored_type.hpp"

namespace kvscope {

/// Longest JSON header that is accepted, in bytes; the format's own limit.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Checks the header against the file and returns its tensors in the order of their bytes. `file`
/// names it in messages; the result refers to `bytes`. Throws FormatError.
std::vector<TensorInFile> parse_safetensors(std::span<const std::byte> bytes,
                                            const std::string& file);

/// "[8, 48]", for messages.
std::string shape_text(const std::vector<Index>& shape);

}  // namespace kvscope
