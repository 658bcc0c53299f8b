// SentencePiece's unigram model (arXiv 1804.10959): of all ways to cut a text into pieces of the
// vocabulary, the one whose scores have the largest sum.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model/tokenizer.hpp"

namespace kvscope {

/// One piece that may be chosen.
struct UnigramPiece {
  std::string text;
  float score = 0.0f;
  TokenId id = 0;
  bool is_user_defined = false;  // chosen wherever it stands
};

struct UnigramTables {
  std::vector<UnigramPiece> pieces;
  TokenId unknown_id = 0;
  /// Bytes of unknown characters, if there are 256; a run of unknown ones is one id otherwise.
  std::vector<TokenId> byte_ids;
};

/// Cuts texts into pieces. Immutable; safe to use from several threads at once.
class Unigram {
 public:
  explicit Unigram(UnigramTables tables);

  /// Appends the ids of `text` (well-formed UTF-8). Takes time that grows with its length times
  /// that of the longest piece.
  void encode(std::string_view text, std::vector<TokenId>& out) const;

 private:
  struct Range;
  Range narrow(Range range, std::size_t depth, char byte) const;

  UnigramTables tables_;  // pieces by text
  float unknown_score_;
};

}  // namespace kvscope
