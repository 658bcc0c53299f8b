// tokenizer.json taken apart and checked: everything that encoding and decoding need, nothing run
// yet.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/model/added_tokens.hpp"
#include "core/model/bpe.hpp"
#include "core/model/pre_tokenizer.hpp"

namespace kvscope {

/// One token of the vocabulary or one added token.
struct TokenInfo {
  std::string bytes;
  bool special = false;
};

/// How text is brought into a normal form before it is cut.
enum class Normalizer { none, nfc };

/// The parts of a byte-level BPE tokenizer.
struct TokenizerParts {
  Normalizer normalizer = Normalizer::none;
  std::vector<AddedToken> added_tokens;
  std::vector<PreTokenizerStep> pre_tokenizer;
  BpeTables bpe;
  std::vector<TokenId> prefix;  // what the post-processor puts before and behind the ids
  std::vector<TokenId> suffix;
  std::unordered_map<TokenId, TokenInfo> tokens;
  TokenId n_ids = 0;  // largest id + 1
};

/// Reads tokenizer.json text. `where` names the file in messages. Truncation and padding settings
/// are left aside: they belong to batching, and Hugging Face's own model tokenizers switch them
/// off. Throws FormatError or ConfigError (see Tokenizer::load).
TokenizerParts parse_tokenizer_json(std::string_view json_text, const std::string& where);

}  // namespace kvscope
