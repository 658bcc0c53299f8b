#include "core/model/tokenizer_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/base/error.hpp"
#include "core/model/tokenizer_json_parts.hpp"

namespace kvscope {

using Json = nlohmann::json;

void refuse_kind(const JsonObject& fields, const std::string& field, std::string_view expected) {
  const Json* value = fields.find(field);
  throw ConfigError("{}: expected {}, found {}", fields.name_of(field), expected,
                    value == nullptr ? "nothing" : describe(*value));
}

TokenId read_token_id(const JsonObject& fields, const std::string& field) {
  return static_cast<TokenId>(fields.integer(field, 0, kMaxTokenId));
}

AddedToken read_added_token(const JsonObject& fields, TokenId id) {
  AddedToken token;
  token.content = fields.string("content");
  token.id = id;
  token.special = fields.boolean_or("special", false);
  token.single_word = fields.boolean_or("single_word", false);
  token.lstrip = fields.boolean_or("lstrip", false);
  token.rstrip = fields.boolean_or("rstrip", false);
  token.normalized = fields.boolean_or("normalized", !token.special);
  if (token.content.empty() || token.content.size() > kMaxAddedToken) {
    fields.refuse("content", fmt::format("1 to {} bytes", kMaxAddedToken));
  }
  return token;
}

namespace {

// ---- added tokens

void read_added_tokens(const JsonObject& root, const Vocabulary& vocabulary,
                       TokenizerParts& parts) {
  if (root.find("added_tokens") == nullptr) return;
  const Json& list = root.list("added_tokens");
  std::unordered_set<std::string> seen;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonObject fields(list[i], root.where(), fmt::format("added_tokens[{}].", i));
    AddedToken token = read_added_token(fields, read_token_id(fields, "id"));
    if (!seen.insert(token.content).second) {
      fields.refuse("content", "each token once");
    }
    add_added_token(std::move(token), vocabulary, fields.name_of("id"), parts);
  }
}

// ---- post-processor

std::vector<TokenId> template_ids(const JsonObject& processor, const JsonObject& item) {
  const std::string& name = item.object("SpecialToken").string("id");
  const JsonObject special = processor.object("special_tokens").object(name);
  std::vector<TokenId> ids;
  for (const Json& id : special.list("ids")) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > std::uint64_t{kMaxTokenId}) {
      special.refuse("ids", "token ids");
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

// The template of a single text: special tokens around exactly one "Sequence".
void read_template(const JsonObject& processor, TokenizerParts& parts) {
  const Json& list = processor.list("single");
  std::vector<TokenId> before, after;
  int n_sequences = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonObject item(list[i], processor.where(), fmt::format("post_processor.single[{}].", i));
    if (item.find("Sequence") != nullptr) {
      ++n_sequences;
    } else {
      auto& side = n_sequences == 0 ? before : after;
      const auto ids = template_ids(processor, item);
      side.insert(side.end(), ids.begin(), ids.end());
    }
  }
  if (n_sequences != 1) refuse_kind(processor, "single", "a template with the text in it once");
  before.insert(before.end(), parts.prefix.begin(), parts.prefix.end());
  parts.prefix = std::move(before);
  parts.suffix.insert(parts.suffix.end(), after.begin(), after.end());
}

void read_post_processor(const JsonObject& root, TokenizerParts& parts) {
  if (root.find("post_processor") == nullptr) return;
  for_each_component(root.object("post_processor"), "processors", [&](const JsonObject& component) {
    const std::string& type = component.string("type");
    if (type == "TemplateProcessing") {
      read_template(component, parts);
    } else if (type != "ByteLevel") {  // which changes offsets only
      refuse_kind(component, "type", "Sequence, TemplateProcessing or ByteLevel");
    }
  });
  for (const auto* ids : {&parts.prefix, &parts.suffix}) {
    for (TokenId id : *ids) {
      if (!parts.tokens.contains(id)) {
        throw FormatError("{}: expected ids of tokens, found {}", root.name_of("post_processor"),
                          id);
      }
    }
  }
}

}  // namespace

void add_added_token(AddedToken token, const Vocabulary& vocabulary, const std::string& name,
                     TokenizerParts& parts) {
  // A token that is in the vocabulary too has the same id there, and the same bytes as without
  // being added.
  const auto in_vocabulary = vocabulary.id_from_content.find(token.content);
  if (in_vocabulary != vocabulary.id_from_content.end()) {
    if (in_vocabulary->second != token.id) {
      throw FormatError("{}: expected {} as in the vocabulary, found the number {}", name,
                        in_vocabulary->second, token.id);
    }
    parts.tokens[token.id].special = token.special;
  } else {
    const auto [it, is_new] =
        parts.tokens.try_emplace(token.id, TokenInfo{token.content, token.special});
    if (!is_new) {
      throw FormatError("{}: id {} is given twice, to {} and to {}", name, token.id,
                        quote(it->second.bytes), quote(token.content));
    }
  }
  parts.n_ids = std::max(parts.n_ids, token.id + 1);
  parts.added_tokens.push_back(std::move(token));
}

TokenizerParts parse_tokenizer_json(std::string_view json_text, const std::string& where,
                                    const TokenizerCompanions& beside) {
  const Json value = parse_json(json_text, where);
  const JsonObject root(value, where);
  TokenizerParts parts;
  read_normalizer(root, parts);
  read_pre_tokenizer(root, parts);
  const Vocabulary vocabulary = read_bpe_model(root, parts);
  read_added_tokens(root, vocabulary, parts);
  add_companions(beside, vocabulary, parts);
  read_decoder(root, parts);
  read_post_processor(root, parts);
  return parts;
}

}  // namespace kvscope
