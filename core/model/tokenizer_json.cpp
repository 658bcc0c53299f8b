#include "core/model/tokenizer_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/model/byte_level.hpp"

namespace kvscope {

namespace {

using nlohmann::json;

constexpr TokenId kMaxId = std::numeric_limits<TokenId>::max() - 1;

[[noreturn]] void refuse_kind(const JsonObject& fields, const std::string& field,
                              std::string_view expected) {
  const json* value = fields.find(field);
  throw ConfigError(fmt::format("{}: expected {}, found {}", fields.name_of(field), expected,
                                value == nullptr ? "nothing" : describe(*value)));
}

// A component of a given kind may be one of several that a "Sequence" lists: calls visit(component)
// for each in order.
template <class Visit>
void for_each_component(const JsonObject& component, const std::string& list_name,
                        const Visit& visit, int depth = 0) {
  if (component.string("type") != "Sequence") {
    visit(component);
    return;
  }
  if (depth > 8) refuse_kind(component, "type", "sequences nested at most 8 deep");
  const json& list = component.list(list_name);
  for (std::size_t i = 0; i < list.size(); ++i) {
    for_each_component(JsonObject(list[i], component.where(), fmt::format("{}[{}].", list_name, i)),
                       list_name, visit, depth + 1);
  }
}

// ---- model

struct Vocabulary {
  StringMap<TokenId> id_from_content;  // as spelled in the file
};

TokenId read_id(const JsonObject& fields, const std::string& field) {
  return static_cast<TokenId>(fields.integer(field, 0, kMaxId));
}

Vocabulary read_vocabulary(const JsonObject& model, TokenizerParts& parts) {
  Vocabulary vocabulary;
  const JsonObject vocab = model.object("vocab");
  vocabulary.id_from_content.reserve(vocab.value().size());
  for (const auto& [content, value] : vocab.value().items()) {
    const TokenId id = read_id(vocab, content);
    std::optional<std::string> bytes = bytes_from_byte_level(content);
    // What is not written in the alphabet stands for its own characters and cannot come out of a
    // merge.
    const bool is_byte_level = bytes.has_value();
    const auto [it, is_new] =
        parts.tokens.try_emplace(id, TokenInfo{bytes.value_or(content), false});
    if (!is_new) {
      throw FormatError(fmt::format("vocab ({}): id {} is given twice, to {} and to {}",
                                    vocab.where(), id, quote(it->second.bytes), quote(content)));
    }
    if (is_byte_level) parts.bpe.id_from_bytes.emplace(*bytes, id);
    vocabulary.id_from_content.emplace(content, id);
    parts.n_ids = std::max(parts.n_ids, id + 1);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto it =
        vocabulary.id_from_content.find(byte_level_char(static_cast<std::uint8_t>(byte)));
    if (it != vocabulary.id_from_content.end()) {
      parts.bpe.id_from_byte[static_cast<std::size_t>(byte)] = it->second;
    }
  }
  return vocabulary;
}

// "a b" or ["a", "b"].
std::pair<std::string, std::string> read_pair(const json& merge, const std::string& name) {
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
  throw FormatError(fmt::format("{}: expected two tokens (\"a b\" or [\"a\", \"b\"]), found {}",
                                name, describe(merge)));
}

void read_merges(const JsonObject& model, const Vocabulary& vocabulary, TokenizerParts& parts) {
  const json& merges = model.list("merges");
  parts.bpe.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto name = [&] { return model.name_of(fmt::format("merges[{}]", i)); };
    const json& merge = merges[i];
    if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) continue;
    const auto [left, right] = read_pair(merge, name());
    const auto id_of = [&](const std::string& token) {
      const auto it = vocabulary.id_from_content.find(token);
      if (it == vocabulary.id_from_content.end()) {
        throw FormatError(
            fmt::format("{}: expected tokens of the vocabulary, found {}", name(), quote(token)));
      }
      return it->second;
    };
    parts.bpe.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
}

Vocabulary read_model(const JsonObject& root, TokenizerParts& parts) {
  const JsonObject model = root.object("model");
  if (model.string_if("type").value_or("BPE") != "BPE") refuse_kind(model, "type", "\"BPE\"");
  for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string_if(field).value_or("").empty()) refuse_kind(model, field, "none");
  }
  if (model.number_or("dropout", 0.0, 1.0, 0.0) != 0.0) refuse_kind(model, "dropout", "none");

  Vocabulary vocabulary = read_vocabulary(model, parts);
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
  const auto& bytes = parts.bpe.id_from_byte;
  const bool all_bytes =
      std::all_of(bytes.begin(), bytes.end(), [](const auto& id) { return id.has_value(); });
  // With a token for every byte there is nothing to fall back from.
  if (model.boolean_or("byte_fallback", false) && !all_bytes) {
    refuse_kind(model, "byte_fallback", "false or a vocabulary with all 256 bytes");
  }
  return vocabulary;
}

// ---- added tokens

void read_added_tokens(const JsonObject& root, const Vocabulary& vocabulary,
                       TokenizerParts& parts) {
  if (root.find("added_tokens") == nullptr) return;
  const json& list = root.list("added_tokens");
  std::unordered_set<std::string> seen;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonObject fields(list[i], root.where(), fmt::format("added_tokens[{}].", i));
    AddedToken token;
    token.content = fields.string("content");
    token.id = read_id(fields, "id");
    token.special = fields.boolean_or("special", false);
    token.single_word = fields.boolean_or("single_word", false);
    token.lstrip = fields.boolean_or("lstrip", false);
    token.rstrip = fields.boolean_or("rstrip", false);
    token.normalized = fields.boolean_or("normalized", !token.special);
    if (token.content.empty() || token.content.size() > kMaxAddedToken) {
      fields.refuse("content", fmt::format("1 to {} bytes", kMaxAddedToken));
    }
    if (!seen.insert(token.content).second) {
      fields.refuse("content", "each token once");
    }
    // A token that is in the vocabulary too has the same id there, and the same bytes as without
    // being added.
    const auto in_vocabulary = vocabulary.id_from_content.find(token.content);
    if (in_vocabulary != vocabulary.id_from_content.end()) {
      if (in_vocabulary->second != token.id) {
        fields.refuse("id", fmt::format("{} as in the vocabulary", in_vocabulary->second));
      }
      parts.tokens[token.id].special = token.special;
    } else {
      const auto [it, is_new] =
          parts.tokens.try_emplace(token.id, TokenInfo{token.content, token.special});
      if (!is_new) {
        throw FormatError(fmt::format("{}: id {} is given twice, to {} and to {}",
                                      fields.name_of("id"), token.id, quote(it->second.bytes),
                                      quote(token.content)));
      }
    }
    parts.n_ids = std::max(parts.n_ids, token.id + 1);
    parts.added_tokens.push_back(std::move(token));
  }
}

// ---- normalizer, pre-tokenizer, decoder

void read_normalizer(const JsonObject& root, TokenizerParts& parts) {
  if (root.find("normalizer") == nullptr) return;
  for_each_component(root.object("normalizer"), "normalizers", [&](const JsonObject& component) {
    if (component.string("type") != "NFC") refuse_kind(component, "type", "no normalizer or NFC");
    parts.normalizer = Normalizer::nfc;
  });
}

SplitBehavior read_behavior(const JsonObject& split) {
  const std::string& name = split.string("behavior");
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  split.refuse("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

SplitStep read_split(const JsonObject& split) {
  SplitStep step;
  const JsonObject pattern = split.object("pattern");
  if (const auto text = pattern.string_if("String")) {
    if (text->empty()) pattern.refuse("String", "at least one character");
    step.pattern = *text;
  } else {
    step.pattern = Regex(pattern.string("Regex"), pattern.name_of("Regex"));
  }
  step.behavior = read_behavior(split);
  step.invert = split.boolean_or("invert", false);
  return step;
}

void read_pre_tokenizer(const JsonObject& root, TokenizerParts& parts) {
  bool is_byte_level = false;
  const auto read = [&](const JsonObject& component) {
    const std::string& type = component.string("type");
    if (is_byte_level) refuse_kind(component, "type", "nothing after ByteLevel");
    if (type == "Split") {
      parts.pre_tokenizer.emplace_back(read_split(component));
    } else if (type == "Digits") {
      const bool individual = component.boolean_or("individual_digits", false);
      parts.pre_tokenizer.emplace_back(
          SplitStep{Regex("\\p{N}", component.name_of("type")),
                    individual ? SplitBehavior::isolated : SplitBehavior::contiguous});
    } else if (type == "ByteLevel") {
      is_byte_level = true;
      if (component.boolean_or("add_prefix_space", true)) {
        parts.pre_tokenizer.emplace_back(PrefixSpaceStep{});
      }
      if (component.boolean_or("use_regex", true)) {
        parts.pre_tokenizer.emplace_back(
            SplitStep{Regex(gpt2_pattern(), component.name_of("type")), SplitBehavior::isolated});
      }
    } else {
      refuse_kind(component, "type", "Sequence, Split, Digits or ByteLevel");
    }
  };
  if (root.find("pre_tokenizer") != nullptr) {
    for_each_component(root.object("pre_tokenizer"), "pretokenizers", read);
  }
  if (!is_byte_level) {
    refuse_kind(root, "pre_tokenizer",
                "one that ends with ByteLevel (other BPE is not implemented)");
  }
}

void check_decoder(const JsonObject& root) {
  if (root.find("decoder") == nullptr) return;
  for_each_component(root.object("decoder"), "decoders", [](const JsonObject& component) {
    const std::string& type = component.string("type");
    if (type != "ByteLevel" && type != "Fuse") refuse_kind(component, "type", "ByteLevel");
  });
}

// ---- post-processor

std::vector<TokenId> template_ids(const JsonObject& processor, const JsonObject& item) {
  const std::string& name = item.object("SpecialToken").string("id");
  const JsonObject special = processor.object("special_tokens").object(name);
  std::vector<TokenId> ids;
  for (const json& id : special.list("ids")) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > std::uint64_t{kMaxId}) {
      special.refuse("ids", "token ids");
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

// The template of a single text: special tokens around exactly one "Sequence".
void read_template(const JsonObject& processor, TokenizerParts& parts) {
  const json& list = processor.list("single");
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
        throw FormatError(fmt::format("{}: expected ids of tokens, found {}",
                                      root.name_of("post_processor"), id));
      }
    }
  }
}

}  // namespace

TokenizerParts parse_tokenizer_json(std::string_view json_text, const std::string& where) {
  const json value = parse_json(json_text, where);
  const JsonObject root(value, where);
  TokenizerParts parts;
  read_added_tokens(root, read_model(root, parts), parts);
  read_normalizer(root, parts);
  read_pre_tokenizer(root, parts);
  check_decoder(root);
  read_post_processor(root, parts);
  return parts;
}

}  // namespace kvscope
