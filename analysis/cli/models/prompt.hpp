// The tokens a model is run on: from a text file, ids, words on the command line, a trace, or the
// embedded book.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "analysis/options/options.hpp"
#include "core/model/tokenizer.hpp"

namespace kvscope::cli {

/// Tokens that the embedded text is cut to unless --max-tokens says otherwise.
inline constexpr Index kEmbeddedTextTokens = 4096;

/// Of a text file that is read: more than any context that fits in memory.
inline constexpr std::size_t kMaxTextBytes = std::size_t{256} << 20;

/// Tokens to run, and where they came from.
struct Prompt {
  std::vector<TokenId> ids;
  std::string source;     // file name or other words
  Index n_available = 0;  // tokens before the cut
  bool embedded = false;  // nothing was given: the book that comes with kvscope
};

/// --text, --tokens, --prompt, --max-tokens, --no-special-tokens, --chat.
struct PromptOptions {
  std::optional<std::filesystem::path> text;
  std::optional<std::filesystem::path> tokens;
  std::optional<std::string> prompt;
  std::optional<Index> max_tokens;
  bool no_special = false;
  bool chat = false;  // the text is what a user says, in the model's chat template

  void declare(OptionSet& options);

  /// Reads, tokenizes and cuts. `tokenizer` may be null if only ids are given. `model`: where the
  /// chat template is, if it is asked for. Throws UsageError for contradicting options or an empty
  /// prompt, IoError or FormatError for what cannot be read.
  Prompt load(const Tokenizer* tokenizer, const std::filesystem::path& model = {}) const;

  /// True if ids are given, so that no tokenizer is needed.
  bool has_ids() const { return tokens.has_value(); }
};

/// Token ids as a JSON array, as an object with "ids", or as numbers separated by blanks, commas
/// and line breaks. `where` names the source in messages. Throws FormatError at the first thing
/// that is not an id.
std::vector<TokenId> parse_token_ids(std::string_view text, const std::string& where);

/// True if somebody put a pipe or a file in place of the terminal. A host's standard input is its
/// own.
bool has_standard_input();

}  // namespace kvscope::cli
