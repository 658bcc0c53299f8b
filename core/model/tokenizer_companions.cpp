// Tokens that the files beside a tokenizer.json name: added as transformers adds them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/whole_file.hpp"
#include "core/model/tokenizer_json_parts.hpp"

namespace kvscope {

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array<std::string_view, 7> kNamed = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

/// A token as a text or an object; named ones are special whatever the object says.
AddedToken token_of(const OrderedJson& value, const std::string& where,
                    std::optional<bool> special) {
  OrderedJson object = value.is_string() ? OrderedJson{{"content", value}} : value;
  if (special && object.is_object()) object["special"] = *special;
  const nlohmann::json fields = object;
  return read_added_token(JsonObject(fields, where), /*id=*/0);
}

bool has_token(const OrderedJson& value) {
  return value.is_string() ? value != "" : value.is_object() && value.contains("content");
}

struct Companion {
  AddedToken token;  // its id is not known yet
  bool overrides;    // the flags of a token that is added already
};

/// Collects what is to be added, in the order in which ids are given out.
class Companions {
 public:
  explicit Companions(const TokenizerCompanions& files)
      : config_(object_of(files.config, "tokenizer_config.json")) {
    read_own();
    if (config_.contains("added_tokens_decoder")) {
      read_decoder();
    } else {
      read_map(object_of(files.special_map, "special_tokens_map.json"));
      read_added(object_of(files.added, "added_tokens.json"));
    }
    read_named();
    for (const OrderedJson& token : extra_)
      add(token, "extra_special_tokens", /*special=*/true, /*overrides=*/false);
  }
  const std::vector<Companion>& tokens() const { return tokens_; }
  const std::vector<std::pair<std::string, std::string>>& named() const { return named_; }
  /// Keys that would change ids and are not followed.
  std::vector<std::string> not_followed() const {
    std::vector<std::string> keys;
    if (config_.value("split_special_tokens", OrderedJson(false)) == true)
      keys.emplace_back("split_special_tokens");
    return keys;
  }

 private:
  static OrderedJson object_of(const std::string& text, const std::string& where) {
    if (text.empty()) return OrderedJson::object();
    OrderedJson json = parse_ordered_json(text, where);
    if (!json.is_object()) throw FormatError("{}: expected an object", where);
    return json;
  }
  static bool is_own_name(std::string_view key) {
    return key.ends_with("_token") && std::ranges::find(kNamed, key) == kNamed.end();
  }
  /// The tokens that tokenizer_config.json has beyond those of every tokenizer: a list, and tokens
  /// with names of their own.
  void read_own() {
    const auto list = [&](const char* key) { return config_.value(key, OrderedJson()); };
    extra_ = list("extra_special_tokens");
    if (extra_.empty()) extra_ = list("additional_special_tokens");
    for (const auto& [key, value] : config_.items()) {
      if (is_own_name(key) && value.is_string()) own_[key] = value;
      if (is_own_name(key) && value.is_object() && value.contains("__type")) typed_[key] = value;
    }
    take_names();
    const OrderedJson named = list("model_specific_special_tokens");
    if (!named.is_null() && !named.is_object())
      throw FormatError("tokenizer_config.json: model_specific_special_tokens: expected an object");
    if (own_.empty() && named.is_object()) own_.update(named);
  }
  /// A dict in place of the list names its tokens.
  void take_names() {
    if (extra_.is_object()) own_.update(extra_);
    if (!extra_.is_array()) extra_ = OrderedJson::array();
  }
  void read_map(const OrderedJson& map) {
    for (const auto& [key, value] : map.items()) {
      if (key == "extra_special_tokens" && value.is_array()) {
        for (const OrderedJson& token : value) {
          if (std::ranges::find(extra_, token) == extra_.end()) extra_.push_back(token);
        }
      } else if (key == "extra_special_tokens") {
        extra_ = value;
        take_names();
      } else if (key == "additional_special_tokens") {
        if (extra_.empty() && value.is_array()) extra_ = value;
      } else if (is_own_name(key)) {
        typed_[key] = value;
      } else {
        config_[key] = value;
      }
    }
  }
  void read_decoder() {
    std::vector<std::pair<Index, OrderedJson>> sorted;
    for (const auto& [key, token] : config_.at("added_tokens_decoder").items()) {
      const bool is_id = !key.empty() && key.size() < 10 &&
                         key.find_first_not_of("0123456789") == std::string::npos;
      if (!is_id)
        throw FormatError("tokenizer_config.json: added_tokens_decoder: expected ids, found {}",
                          quote(key));
      sorted.emplace_back(std::stol(key), token);
    }
    std::ranges::stable_sort(sorted, {}, [](const auto& entry) { return entry.first; });
    for (const auto& [id, token] : sorted)
      add(token, "added_tokens_decoder", {}, /*overrides=*/true);
  }
  /// {content: id}; the ids only order them.
  void read_added(const OrderedJson& json) {
    std::vector<std::pair<Index, std::string>> sorted;
    for (const auto& [content, id] : json.items()) {
      if (!id.is_number_integer())
        throw FormatError("added_tokens.json: {}: expected an id", quote(content));
      sorted.emplace_back(id.get<Index>(), content);
    }
    std::ranges::stable_sort(sorted, {}, [](const auto& entry) { return entry.first; });
    for (const auto& [id, content] : sorted)
      add(content, "added_tokens.json", is_named(content), /*overrides=*/true);
  }
  bool is_named(const std::string& content) const {
    const auto is_it = [&](const OrderedJson& token) {
      return token == content || (token.is_object() && token.value("content", "") == content);
    };
    return std::ranges::any_of(kNamed,
                               [&](auto name) {
                                 return config_.contains(name) &&
                                        is_it(config_.at(std::string(name)));
                               }) ||
           std::ranges::any_of(extra_, is_it);
  }
  void read_named() {
    for (const std::string_view name : kNamed) {
      if (config_.contains(name)) add_named(config_.at(std::string(name)), std::string(name));
    }
    typed_.update(own_);
    for (const auto& [key, value] : typed_.items()) add_named(value, key);
  }
  void add_named(const OrderedJson& value, const std::string& key) {
    if (!has_token(value)) return;
    add(value, key, /*special=*/true, /*overrides=*/false);
    named_.emplace_back(key, tokens_.back().token.content);
  }
  void add(const OrderedJson& value, const std::string& where, std::optional<bool> special,
           bool overrides) {
    tokens_.push_back({token_of(value, "tokenizer_config.json: " + where, special), overrides});
  }

  OrderedJson config_;
  OrderedJson extra_ = OrderedJson::array();
  OrderedJson own_ = OrderedJson::object();    // tokens with names that not every tokenizer has
  OrderedJson typed_ = OrderedJson::object();  // the same, in front of them
  std::vector<Companion> tokens_;
  std::vector<std::pair<std::string, std::string>> named_;
};

}  // namespace

TokenizerCompanions TokenizerCompanions::read(const std::filesystem::path& folder) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  const auto text_of = [&](const char* name) {
    std::error_code ignored;
    const std::filesystem::path file = folder / name;
    return std::filesystem::exists(file, ignored) ? read_regular_file(file, kMostBytes)
                                                  : std::string();
  };
  return {text_of("tokenizer_config.json"), text_of("special_tokens_map.json"),
          text_of("added_tokens.json")};
}

std::vector<std::pair<std::string, std::string>> TokenizerCompanions::named_tokens() const {
  return Companions(*this).named();
}

void add_companions(const TokenizerCompanions& files, const Vocabulary& vocabulary,
                    TokenizerParts& parts) {
  const Companions companions(files);
  for (auto [token, overrides] : companions.tokens()) {
    const auto known = std::ranges::find(parts.added_tokens, token.content, &AddedToken::content);
    if (known != parts.added_tokens.end()) {
      if (!overrides) continue;
      token.id = known->id;
      parts.tokens[token.id].special = token.special;
      *known = std::move(token);
      continue;
    }
    const auto in_vocabulary = vocabulary.id_from_content.find(token.content);
    token.id = static_cast<TokenId>(vocabulary.id_from_content.size());
    for (const AddedToken& other : parts.added_tokens) token.id = std::max(token.id, other.id + 1);
    if (in_vocabulary != vocabulary.id_from_content.end()) token.id = in_vocabulary->second;
    add_added_token(std::move(token), vocabulary, "tokenizer_config.json", parts);
  }
  parts.not_followed = companions.not_followed();
}

}  // namespace kvscope
