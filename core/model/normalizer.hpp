// The normalizer of a tokenizer: how text is brought into the form that the model's tokens have.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/model/added_tokens.hpp"
#include "core/model/sentencepiece/character_map.hpp"

namespace kvscope {

/// Unicode normalization form C.
struct NfcStep {};
struct NfkcStep {};
/// Puts `text` in front of what is not empty (SentencePiece: "▁" before the first word).
struct PrependStep {
  std::string text;
};
/// Exchanges every `from`, which is not empty, for `to` (SentencePiece: " " for "▁").
struct ReplaceStep {
  std::string from;
  std::string to;
};

/// What a tokenizer.model file of SentencePiece does: characters by a table, spaces collapsed or
/// not and marked, one in front of the whole text.
struct SentencePieceStep {
  std::shared_ptr<const CharacterMap> characters;
  std::shared_ptr<const AddedTokenSet> verbatim;  // pieces that the table leaves alone
  bool adds_prefix = true;
  bool collapses_spaces = true;
  std::string space;  // what stands for one: the word mark
};

using NormalizerStep = std::variant<NfcStep, NfkcStep, PrependStep, ReplaceStep, SentencePieceStep>;

/// `text` (well-formed UTF-8) after all steps in order; empty if they change nothing. begins_text:
/// nothing stands before it. Throws ConfigError if a step makes it much longer than any model's
/// tokenizer does.
std::optional<std::string> normalize(const std::vector<NormalizerStep>& steps,
                                     std::string_view text, bool begins_text);

/// `text` with every `from` (not empty) exchanged for `to`, from left to right. Throws ConfigError,
/// before it takes the memory, if the result is longer than 16 times the text and 4 KiB.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace kvscope
