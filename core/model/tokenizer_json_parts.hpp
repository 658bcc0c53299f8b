// The parts of reading a tokenizer that have files of their own; used by tokenizer_json*.cpp, and
// by the readers of other formats for what they share.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/json_reader.hpp"
#include "core/model/tokenizer_json.hpp"

namespace kvscope {

inline constexpr TokenId kMaxTokenId = std::numeric_limits<TokenId>::max() - 1;

/// What SentencePiece writes for a space.
inline constexpr std::string_view kWordMark = "\u2581";

/// The tokens of the model as the file spells them.
struct Vocabulary {
  StringMap<TokenId> id_from_content;
};

/// Throws ConfigError: the field names a kind that this program does not know; the message lists
/// those it does.
[[noreturn]] void refuse_kind(const JsonObject& fields, const std::string& field,
                              std::string_view expected);

/// A token id; FormatError if it is none.
TokenId read_token_id(const JsonObject& fields, const std::string& field);

/// A component of a given kind may be one of several that a "Sequence" lists: calls
/// visit(component) for each in order.
template <class Visit>
void for_each_component(const JsonObject& component, const std::string& list_name,
                        const Visit& visit, int depth = 0) {
  if (component.string("type") != "Sequence") {
    visit(component);
    return;
  }
  if (depth > 8) refuse_kind(component, "type", "sequences nested at most 8 deep");
  const nlohmann::json& list = component.list(list_name);
  for (std::size_t i = 0; i < list.size(); ++i) {
    for_each_component(JsonObject(list[i], component.where(), fmt::format("{}[{}].", list_name, i)),
                       list_name, visit, depth + 1);
  }
}

/// Normalizer and pre-tokenizer; the latter decides what BPE's symbols are (parts.bpe.symbols).
void read_normalizer(const JsonObject& root, TokenizerParts& parts);
void read_pre_tokenizer(const JsonObject& root, TokenizerParts& parts);

/// Adds a token of the model as the file `where` spells it. Throws FormatError if its id is taken.
/// Needs parts.bpe.symbols.
void add_model_token(const std::string& where, const std::string& content, TokenId id,
                     Vocabulary& vocabulary, TokenizerParts& parts);

/// Finds the tokens of single bytes: letters of the byte-level alphabet, or, if the model falls
/// back to bytes, "<0x00>" to "<0xFF>".
void find_byte_tokens(const Vocabulary& vocabulary, bool falls_back, BpeTables& bpe);

/// Adds the next merge. `name` says where it stands. Throws FormatError if the vocabulary lacks one
/// of the three tokens.
void add_merge(const std::string& left, const std::string& right, const Vocabulary& vocabulary,
               const std::function<std::string()>& name, BpeTables& bpe);

/// What a file says of the added token `id`; FormatError for contents that cannot be looked for.
AddedToken read_added_token(const JsonObject& fields, TokenId id);

/// Turns the spelling of a byte, as in "<0x0A>", into that byte; leaves other texts alone.
void spell_byte(std::string& text);

/// Adds an added token. Throws FormatError (`name` says where) if its id belongs to another one.
void add_added_token(AddedToken token, const Vocabulary& vocabulary, const std::string& name,
                     TokenizerParts& parts);

/// Adds what the files beside tokenizer.json name, as transformers does: tokens of
/// added_tokens_decoder in the order of its ids (with its flags, also where tokenizer.json has
/// them otherwise), else those of added_tokens.json; then the named and further special tokens that
/// are not there yet. A token that the vocabulary lacks gets the next id, whatever id the file
/// gives it. Throws FormatError for files that are not as described.
void add_companions(const TokenizerCompanions& files, const Vocabulary& vocabulary,
                    TokenizerParts& parts);

/// Vocabulary and merges. Needs parts.bpe.symbols.
Vocabulary read_bpe_model(const JsonObject& root, TokenizerParts& parts);

/// What the tokens stand for: turns parts.tokens from the file's spelling into bytes of text.
void read_decoder(const JsonObject& root, TokenizerParts& parts);

}  // namespace kvscope
