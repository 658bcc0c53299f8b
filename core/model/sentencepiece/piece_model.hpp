// A tokenizer.model file of SentencePiece taken apart: its pieces and how text is prepared.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/tokenizer.hpp"

namespace kvscope {

/// One piece of the vocabulary; its id is its place.
struct Piece {
  /// As SentencePiece numbers them.
  enum class Kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string_view text;
  float score = 0.0f;
  Kind kind = Kind::normal;
};

/// What the file says; texts refer to its bytes.
struct PieceModel {
  enum class Kind { unigram = 1, bpe = 2 };
  Kind kind = Kind::unigram;
  std::vector<Piece> pieces;
  bool has_byte_fallback = false;
  std::int64_t unknown_id = 0;
  std::int64_t bos_id = 1;  // -1: none; likewise
  std::int64_t eos_id = 2;

  std::string_view characters_map;  // see CharacterMap; may be empty
  bool adds_prefix = true;          // a space in front of the text
  bool collapses_spaces = true;     // none at the ends, one between words
  bool escapes_spaces = true;       // as the word mark
};

/// Throws FormatError for what is no such file, ConfigError for a model of words or characters.
/// `where` names the file in messages.
PieceModel parse_piece_model(std::string_view bytes, const std::string& where);

}  // namespace kvscope
