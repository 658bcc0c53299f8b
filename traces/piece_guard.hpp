// Compares what is read of a trace with its checksums, each piece once per opened file.
//
// A piece is what one call added to one head of one array (pieces.hpp). Whoever reads a range feeds
// its blocks through a GuardedRead: pieces that lie in the range are hashed on the way, those that
// it cuts at its ends are read whole, once. The tables of checksums and the header are themselves
// held against the content hash, when data are first read.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/model/tokenizer.hpp"
#include "traces/hash.hpp"
#include "traces/layout.hpp"
#include "traces/pieces.hpp"

namespace kvscope {

/// What is known about the pieces of one open file, which has checksums. Safe from several threads.
class PieceGuard {
 public:
  /// `n_calls` calls are whole in the file; `is_sealed` if it has all of its calls and
  /// a content hash.
  PieceGuard(const TraceLayout& layout, Index n_calls, bool is_sealed);

  /// What opening believes: the tokens, and what is recorded about the model. Throws FormatError.
  void check_opening(const TraceLayout& layout, std::span<const TokenId> tokens) const;
  /// The text of all tokens: offsets [n_tokens + 1] into `text`. Throws FormatError.
  void check_text(const TraceLayout& layout, std::span<const std::int64_t> offsets,
                  std::span<const char> text) const;

 private:
  friend class GuardedRead;
  struct ArrayState {
    std::vector<std::uint64_t> table;  // [n_calls, heads]
    /// Of each entry of the table; null until it is read.
    std::unique_ptr<std::atomic<bool>[]> is_good;
  };
  ArrayState& state_of(const TraceLayout& layout, std::size_t array,
                       std::span<const TokenId> tokens);
  void check_content_hash(const TraceLayout& layout, std::span<const TokenId> tokens) const;

  Index n_calls_ = 0;
  bool is_sealed_ = false;
  std::mutex mutex_;
  bool is_header_checked_ = false;
  std::unique_ptr<ArrayState[]> arrays_;
};

/// One reading of positions [range) of one head. Feed every block in order, then call finish.
class GuardedRead {
 public:
  /// Without a guard nothing is compared.
  GuardedRead(PieceGuard* guard, const TraceLayout& layout, std::span<const TokenId> tokens,
              std::size_t array, Index head, TokenRange range);
  void add(Index first, Index n, std::span<const std::byte> rows);
  /// Throws FormatError for a damaged piece, with its array, call and head. Pieces of more than 64
  /// MiB (dense attention of long chunks) of which only a part was read are not looked at.
  void finish();

 private:
  TokenRange positions(Index call) const;
  bool is_good(Index call) const;
  void settle(Index call, const std::string& problem);
  std::uint64_t recorded(Index call) const;

  PieceGuard::ArrayState* state_ = nullptr;
  const TraceLayout& layout_;
  std::size_t array_;
  Index head_;
  TokenRange range_;
  Index n_calls_ = 0;
  Index first_call_ = 0;
  Index call_ = 0;          // the one that the next row belongs to
  Index hashed_call_ = -1;  // the one that check_ is about
  std::optional<PieceCheck> check_;
};

}  // namespace kvscope
