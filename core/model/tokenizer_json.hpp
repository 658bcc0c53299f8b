// tokenizer.json, and the other files that hold a tokenizer, taken apart and checked: everything
// that encoding and decoding need, nothing run yet.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/model/added_tokens.hpp"
#include "core/model/bpe.hpp"
#include "core/model/normalizer.hpp"
#include "core/model/pre_tokenizer.hpp"
#include "core/model/unigram.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

class JsonObject;

/// One token of the vocabulary or one added token.
struct TokenInfo {
  std::string bytes;
  bool special = false;
};

/// What decoding does beside putting the tokens' bytes one behind the other.
struct Decoding {
  Index n_stripped = 0;  // so many spaces at most are taken from the beginning of the text
  bool first_token_has_no_space = false;  // all spaces of the first token are left out (Metaspace)
};

/// The parts of a tokenizer.
struct TokenizerParts {
  std::vector<NormalizerStep> normalizer;
  std::vector<AddedToken> added_tokens;
  bool added_are_normal = false;  // those that are looked for in normalized text are such already
  std::vector<PreTokenizerStep> pre_tokenizer;
  BpeTables bpe;
  std::optional<UnigramTables>
      unigram;                  // cuts pieces in place of bpe, which still knows the tokens
  std::vector<TokenId> prefix;  // what the post-processor puts before and behind the ids
  std::vector<TokenId> suffix;
  Decoding decoding;
  std::unordered_map<TokenId, TokenInfo> tokens;
  TokenId n_ids = 0;                      // largest id + 1
  std::vector<std::string> not_followed;  // keys beside tokenizer.json that would change ids
  std::string chat_template;              // Jinja, as a GGUF file has it; may be empty
};

/// Texts of the files that transformers reads beside a tokenizer.json; empty: there is none.
struct TokenizerCompanions {
  std::string config;       // tokenizer_config.json
  std::string special_map;  // special_tokens_map.json, read if config has no added_tokens_decoder
  std::string added;        // added_tokens.json, the same

  /// Of a model's folder.
  static TokenizerCompanions read(const std::filesystem::path& folder);
  /// The tokens that have a name (bos_token, image_token, ...), by these names.
  std::vector<std::pair<std::string, std::string>> named_tokens() const;
};

/// Reads tokenizer.json text. `where` names the file in messages. Truncation and padding settings
/// are left aside: they belong to batching, and Hugging Face's own model tokenizers switch them
/// off. Throws FormatError or ConfigError (see Tokenizer::load).
TokenizerParts parse_tokenizer_json(std::string_view json_text, const std::string& where,
                                    const TokenizerCompanions& beside = {});

/// tekken.json, of Mistral's own files: special tokens first, then tokens of bytes by rank, of
/// which the pair of the lowest rank is joined first. Throws FormatError or ConfigError; `where`
/// names the file in messages.
TokenizerParts tekken_tokenizer(std::string_view json_text, const std::string& where);

/// A tokenizer.model file of SentencePiece: unigram, or BPE in the order of scores. Control symbols
/// and what the files beside it add are recognised in texts, as transformers does; everything else
/// gives SentencePiece's ids. The begin of sequence goes in front unless the settings say
/// otherwise. Throws FormatError or ConfigError; `where` and `settings_where` name the files.
TokenizerParts sentencepiece_tokenizer(std::string_view bytes, const std::string& where,
                                       const TokenizerCompanions& beside,
                                       const std::string& settings_where);

/// tokenizer.ggml.* of a GGUF file: model "gpt2" (byte-level BPE, cut into pieces as
/// tokenizer.ggml.pre names it) or "llama" (SentencePiece; merges that the file does not list
/// follow from its vocabulary). Control and user-defined tokens become added tokens; BOS and EOS go
/// around a text as the file's flags say. Throws FormatError, or ConfigError for kinds that are not
/// implemented.
TokenizerParts gguf_tokenizer(const JsonObject& metadata);

}  // namespace kvscope
