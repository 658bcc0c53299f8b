// tokenizer.json taken apart and checked: everything that encoding and decoding need, nothing run
// yet.
#pragma once

#include <unordered_map>

#include "core/base/vocabulary.hpp"
#include "core/model/added_tokens.hpp"
#include "core/model/bpe.hpp"
#include "core/model/normalizer.hpp"
#include "core/model/pre_tokenizer.hpp"
#include "core/model/unigram.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

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
  TokenId n_ids = 0;          // largest id + 1
  std::string chat_template;  // Jinja, as a GGUF file has it; may be empty
};

/// Reads tokenizer.json text. `where` names the file in messages. Truncation and padding settings
/// are left aside: they belong to batching, and Hugging Face's own model tokenizers switch them
/// off. Throws FormatError or ConfigError (see Tokenizer::load).
TokenizerParts parse_tokenizer_json(std::string_view json_text, const std::string& where);

}  // namespace kvscope
