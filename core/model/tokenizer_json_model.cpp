// The BPE model of tokenizer.json: vocabulary, merges and what becomes of unknown symbols.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/model/byte_level.hpp"
#include "core/model/tokenizer_json_parts.hpp"

namespace kvscope {

namespace {

using Json = nlohmann::json;

Vocabulary read_vocabulary(const JsonObject& model, TokenizerParts& parts) {
  Vocabulary vocabulary;
  const JsonObject vocab = model.object("vocab");
  vocabulary.id_from_content.reserve(vocab.value().size());
  for (const auto& [content, value] : vocab.value().items()) {
    add_model_token(vocab.where(), content, read_token_id(vocab, content), vocabulary, parts);
  }
  return vocabulary;
}

std::string byte_token(int byte) {
  return fmt::format("<0x{:02X}>", byte);
}

// A byte-level model that falls back to bytes: without tokens such as "<0x0A>" there is nothing to
// fall back to, with a token for every letter nothing to fall back from.
void check_byte_fallback(const JsonObject& model, const Vocabulary& vocabulary,
                         const BpeTables& bpe) {
  if (bpe.symbols != BpeSymbols::bytes || !model.boolean_or("byte_fallback", false)) return;
  const auto& bytes = bpe.id_from_byte;
  if (std::all_of(bytes.begin(), bytes.end(), [](const auto& id) { return id.has_value(); })) {
    return;
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (!vocabulary.id_from_content.contains(byte_token(byte))) continue;
    refuse_kind(model, "byte_fallback",
                "false, a vocabulary with all 256 bytes or one without <0x00> to <0xFF>");
  }
}

// "a b" or ["a", "b"].
std::pair<std::string, std::string> read_pair(const Json& merge, const std::string& name) {
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  throw FormatError("{}: expected two tokens (\"a b\" or [\"a\", \"b\"]), found {}", name,
                    describe(merge));
}

void read_merges(const JsonObject& model, const Vocabulary& vocabulary, TokenizerParts& parts) {
  const Json& merges = model.list("merges");
  parts.bpe.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto name = [&] { return model.name_of(fmt::format("merges[{}]", i)); };
    const Json& merge = merges[i];
    if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) continue;
    const auto [left, right] = read_pair(merge, name());
    add_merge(left, right, vocabulary, name, parts.bpe);
  }
}

}  // namespace

void add_model_token(const std::string& where, const std::string& content, TokenId id,
                     Vocabulary& vocabulary, TokenizerParts& parts) {
  const bool is_byte_level = parts.bpe.symbols == BpeSymbols::bytes;
  std::optional<std::string> bytes = is_byte_level ? bytes_from_byte_level(content) : content;
  // What it stands for as far as is known before the decoder is.
  const auto [it, is_new] =
      parts.tokens.try_emplace(id, TokenInfo{bytes.value_or(content), /*special=*/false});
  if (!is_new) {
    throw FormatError("vocab ({}): id {} is given twice, to {} and to {}", where, id,
                      quote(it->second.bytes), quote(content));
  }
  parts.n_ids = std::max(parts.n_ids, id + 1);
  // What is not written in the byte-level alphabet stands for its own characters and cannot come
  // out of a merge.
  if (bytes) parts.bpe.id_from_bytes.emplace(std::move(*bytes), id);
  vocabulary.id_from_content.emplace(content, id);
}

void find_byte_tokens(const Vocabulary& vocabulary, bool falls_back, BpeTables& bpe) {
  const bool is_byte_level = bpe.symbols == BpeSymbols::bytes;
  if (!is_byte_level && !falls_back) return;
  for (int byte = 0; byte < 256; ++byte) {
    const auto it = vocabulary.id_from_content.find(
        is_byte_level ? byte_level_char(static_cast<std::uint8_t>(byte)) : byte_token(byte));
    if (it != vocabulary.id_from_content.end()) {
      bpe.id_from_byte[static_cast<std::size_t>(byte)] = it->second;
    }
  }
}

void add_merge(const std::string& left, const std::string& right, const Vocabulary& vocabulary,
               const std::function<std::string()>& name, BpeTables& bpe) {
  const auto id_of = [&](const std::string& token) {
    const auto it = vocabulary.id_from_content.find(token);
    if (it == vocabulary.id_from_content.end())
      throw FormatError("{}: expected tokens of the vocabulary, found {}", name(), quote(token));
    return it->second;
  };
  bpe.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
}

Vocabulary read_bpe_model(const JsonObject& root, TokenizerParts& parts) {
  const JsonObject model = root.object("model");
  if (model.string_if("type").value_or("BPE") != "BPE") refuse_kind(model, "type", "\"BPE\"");
  for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string_if(field).value_or("").empty()) refuse_kind(model, field, "none");
  }
  if (model.number_or("dropout", 0.0, 1.0, 0.0) != 0.0) refuse_kind(model, "dropout", "none");

  Vocabulary vocabulary = read_vocabulary(model, parts);
  find_byte_tokens(vocabulary, model.boolean_or("byte_fallback", false), parts.bpe);
  check_byte_fallback(model, vocabulary, parts.bpe);
  read_merges(model, vocabulary, parts);
  parts.bpe.ignore_merges = model.boolean_or("ignore_merges", false);
  parts.bpe.fuse_unknown = model.boolean_or("fuse_unk", false);
  if (const auto unknown = model.string_if("unk_token")) {
    const auto it = vocabulary.id_from_content.find(*unknown);
    if (it == vocabulary.id_from_content.end()) {
      model.refuse("unk_token", "a token of the vocabulary");
    }
    parts.bpe.unknown_id = it->second;
  }
  return vocabulary;
}

}  // namespace kvscope
