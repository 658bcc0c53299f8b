// Byte pair encoding: the bytes or characters of a piece are merged, best rank first, until no
// merge applies.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/model/tokenizer.hpp"

namespace kvscope {

/// Hash of strings that also takes views, so that look-ups do not copy.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

template <class T>
using StringMap = std::unordered_map<std::string, T, StringHash, std::equal_to<>>;

/// What a piece consists of before the first merge.
enum class BpeSymbols {
  bytes,       // byte-level vocabularies (GPT-2 and after)
  characters,  // SentencePiece-style vocabularies; a character without a token falls back to bytes
};

/// The tables of a BPE model, as tokenizer.json gives them.
struct BpeTables {
  struct Merge {
    TokenId left;
    TokenId right;
    TokenId merged;
  };
  BpeSymbols symbols = BpeSymbols::bytes;
  StringMap<TokenId> id_from_bytes;
  /// The tokens of single bytes; for characters those of the fallback ("<0x0A>"), if there is one.
  std::array<std::optional<TokenId>, 256> id_from_byte;
  std::vector<Merge> merges;          // best first; the last of equal pairs counts
  std::vector<std::uint32_t> ranks;   // of merges, if some are equally good; empty: their places
  std::optional<TokenId> unknown_id;  // for symbols without a token; empty: they are dropped
  bool fuse_unknown = false;          // a run of such symbols gives one unknown token
  bool ignore_merges = false;         // a piece that is a token needs no merges
};

/// Encodes pieces. Immutable; the scratch memory is the caller's.
class Bpe {
 public:
  struct Symbol {
    TokenId id;
    std::int32_t previous;  // -1 at the beginning
    std::int32_t next;      // -1 at the end
    bool is_alive;
  };
  /// A merge that was possible when it was queued; may be stale when it is taken out.
  struct Candidate {
    std::uint64_t order;  // rank, then position
    TokenId merged;
    bool operator>(const Candidate& other) const { return order > other.order; }
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;
  };

  explicit Bpe(BpeTables tables);

  /// Appends the ids of `piece` (fewer than 2^31 bytes, well-formed UTF-8 if the symbols are
  /// characters) to `out`. O(n log n) in its length.
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

  /// The token of exactly these bytes.
  std::optional<TokenId> find(std::string_view bytes) const;

 private:
  struct Rule {
    std::uint32_t rank;
    TokenId merged;
  };
  struct PairHash {
    std::size_t operator()(std::uint64_t pair) const;
  };

  void start(std::string_view piece, std::vector<Symbol>& symbols) const;
  void start_bytes(std::string_view piece, std::vector<Symbol>& symbols) const;
  void start_characters(std::string_view piece, std::vector<Symbol>& symbols) const;
  void queue_pair(Scratch& scratch, std::int32_t left) const;
  const Rule* rule_for(TokenId left, TokenId right) const;

  BpeTables tables_;  // without the merges
  std::unordered_map<std::uint64_t, Rule, PairHash> rules_;
};

}  // namespace kvscope
