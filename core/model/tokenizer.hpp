// Tokenizers of Hugging Face (tokenizer.json), SentencePiece (tokenizer.model), Mistral
// (tekken.json) and GGUF files: text to token ids and back, exactly.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/index.hpp"

namespace kvscope {

/// The file of a model's tokenizer: a GGUF file or the one that a folder holds
/// (core/model/gguf/gguf_checkpoint.hpp); else the folder's tokenizer.json, tekken.json,
/// tokenizer.model or spiece.model, the first that is there. Any other file is taken for one
/// itself. Empty for a folder without.
std::optional<std::filesystem::path> tokenizer_file(const std::filesystem::path& model);

/// A BPE tokenizer, byte-level (GPT-2 and after) or of characters with a fallback to bytes
/// (SentencePiece, as Llama 2 has it), or a unigram one. Immutable after loading; safe to use from
/// several threads at once.
class Tokenizer {
 public:
  /// Reads the file of `model`'s tokenizer (see tokenizer_file). Throws IoError, FormatError
  /// (broken JSON, merges that name unknown tokens, ids out of range or twice) or ConfigError (a
  /// model or pre-tokenizer kind that is not implemented; the message names it and what is).
  /// Beside a tokenizer.json, tokenizer_config.json, special_tokens_map.json and added_tokens.json
  /// add the tokens that they name (tokenizer_json_parts.hpp, add_companions).
  static Tokenizer load(const std::filesystem::path& model);
  /// Same from text; `where` names it in messages.
  static Tokenizer parse(std::string_view json_text, const std::string& where);
  static Tokenizer parse_tekken(std::string_view json_text, const std::string& where);
  /// Bytes of a tokenizer.model, and the text of a tokenizer_config.json beside it, if any.
  static Tokenizer parse_pieces(std::string_view bytes, const std::string& where,
                                std::string_view settings_text = {},
                                const std::string& settings_where = {});

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Ids of `text` (UTF-8; throws FormatError with the byte offset if it is not). Added tokens in
  /// the text are recognised. add_special: apply the post-processor's template (for example a
  /// leading BOS), if any.
  std::vector<TokenId> encode(std::string_view text, bool add_special = false) const;

  /// The bytes that the ids stand for; special tokens are left out if asked. Throws ConfigError for
  /// an id that does not exist. The bytes need not be whole UTF-8 characters at the ends.
  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

  /// The exact bytes of one token.
  std::string_view bytes_of(TokenId id) const;

  /// Id of a token given by its content (as written for added tokens, by its bytes otherwise).
  std::optional<TokenId> id_of(std::string_view content) const;

  /// One more than the largest id.
  TokenId n_ids() const;

  /// Settings beside tokenizer.json that change ids elsewhere and are not followed here
  /// (split_special_tokens), for a remark.
  const std::vector<std::string>& not_followed() const;

  /// The template in Jinja that makes text of a conversation, if a GGUF file has one; else empty.
  const std::string& chat_template() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace kvscope
