// Reads the piece that one call added to one head of an array, and compares it with its checksum.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "traces/hash.hpp"
#include "traces/layout.hpp"

namespace kvscope {

/// Gets blocks of stored bytes: `n` rows from `first_position` on. Rows of an array with keys_last
/// come at full width.
using BlockFn = std::function<void(Index first_position, Index n, std::span<const std::byte> rows)>;

/// Reads positions [range) of one head in blocks of a few MiB.
void for_each_block(const schema::ArraySpec& array, const h5::Dataset& data, Index head,
                    TokenRange range, const BlockFn& visit);

/// Compares pieces of one head of an array, whose rows come in order, with their checksums.
class PieceCheck {
 public:
  /// `layout` has to live as long.
  PieceCheck(const TraceLayout& layout, std::size_t array, Index head);
  void begin(Index call);
  void add(Index first, Index n, std::span<const std::byte> rows);
  /// Empty if the rows since `begin` have this checksum; else a sentence.
  std::string problem(std::uint64_t recorded) const;

 private:
  const TraceLayout* layout_;
  std::size_t array_;
  Index head_;
  Index call_ = 0;
  std::size_t row_bytes_ = 0;
  std::size_t filled_bytes_ = 0;  // of a row, before the keys that the call cannot see
  Checksum checksum_;
  Index bad_row_ = -1;
};

/// Empty if the piece has the recorded checksum (read from the file if it is not given); else a
/// sentence. `visit` (may be empty) sees the blocks.
std::string check_piece(const TraceLayout& layout, std::size_t array, Index call, Index head,
                        const BlockFn& visit, std::optional<std::uint64_t> recorded = std::nullopt);

/// Empty if the text of one call's tokens has the recorded checksum; else a sentence. Throws as
/// text_checksum.
std::string check_text(const TraceLayout& layout, Index call);
/// Empty if all pieces of one call and its text have theirs; else a sentence.
std::string check_call(const TraceLayout& layout, Index call);

/// Checksum of the text of one call's tokens, computed from the file. Throws FormatError for
/// offsets that go backwards or leave the text.
std::uint64_t text_checksum(const TraceLayout& layout, Index call);

/// The recorded checksum of one piece.
std::uint64_t recorded_checksum(const TraceLayout& layout, std::size_t array, Index call,
                                Index head);

}  // namespace kvscope
