// Reads the piece that one unit added to one head of an array, and compares it with its checksum.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "traces/layout.hpp"

namespace kvscope {

/// Gets blocks of stored bytes: `n` rows from `first_position` on. Rows of an array with keys_last
/// come at full width.
using BlockFn = std::function<void(Index first_position, Index n, std::span<const std::byte> rows)>;

/// Reads positions [range) of one head in blocks of a few MiB.
void for_each_block(const schema::ArraySpec& array, const h5::Dataset& data, Index head,
                    TokenRange range, const BlockFn& visit);

/// Empty if the piece has the recorded checksum; else a sentence. `visit` (may be empty) sees the
/// blocks.
std::string check_piece(const TraceLayout& layout, std::size_t array, Index unit, Index head,
                        const BlockFn& visit);

/// Checksum of the text of one unit's tokens, computed from the file. Throws FormatError for
/// offsets that go backwards or leave the text.
std::uint64_t text_checksum(const TraceLayout& layout, Index unit);

/// The recorded checksum of one piece.
std::uint64_t recorded_checksum(const TraceLayout& layout, std::size_t array, Index unit,
                                Index head);

}  // namespace kvscope
