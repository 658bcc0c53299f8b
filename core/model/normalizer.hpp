// The normalizer of tokenizer.json: how text is brought into the form that the model's tokens have.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace kvscope {

/// Unicode normalization form C.
struct NfcStep {};
/// Puts `text` in front of what is not empty (SentencePiece: "▁" before the first word).
struct PrependStep {
  std::string text;
};
/// Exchanges every `from`, which is not empty, for `to` (SentencePiece: " " for "▁").
struct ReplaceStep {
  std::string from;
  std::string to;
};

using NormalizerStep = std::variant<NfcStep, PrependStep, ReplaceStep>;

/// `text` (well-formed UTF-8) after all steps in order; empty if they change nothing. Throws
/// ConfigError if a step makes it much longer than any model's tokenizer does.
std::optional<std::string> normalize(const std::vector<NormalizerStep>& steps,
                                     std::string_view text);

/// `text` with every `from` (not empty) exchanged for `to`, from left to right. Throws ConfigError,
/// before it takes the memory, if the result is longer than 16 times the text and 4 KiB.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace kvscope
