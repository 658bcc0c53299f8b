// tekken.json: the tokenizer of Mistral's own files.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/model/tokenizer_json_parts.hpp"

namespace kvscope {

namespace {

constexpr Index kMostTokens = Index{1} << 24;

// Files before version 7 do not list their special tokens.
constexpr std::array<std::string_view, 20> kOldSpecialTokens = {"<unk>",
                                                                "<s>",
                                                                "</s>",
                                                                "[INST]",
                                                                "[/INST]",
                                                                "[AVAILABLE_TOOLS]",
                                                                "[/AVAILABLE_TOOLS]",
                                                                "[TOOL_RESULTS]",
                                                                "[/TOOL_RESULTS]",
                                                                "[TOOL_CALLS]",
                                                                "[IMG]",
                                                                "<pad>",
                                                                "[IMG_BREAK]",
                                                                "[IMG_END]",
                                                                "[PREFIX]",
                                                                "[MIDDLE]",
                                                                "[SUFFIX]",
                                                                "[SYSTEM_PROMPT]",
                                                                "[/SYSTEM_PROMPT]",
                                                                "[TOOL_CONTENT]"};

std::optional<unsigned> base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<unsigned>(c - 'A');
  if (c >= 'a' && c <= 'z') return static_cast<unsigned>(c - 'a' + 26);
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0' + 52);
  if (c == '+') return 62;
  if (c == '/') return 63;
  return std::nullopt;
}

// Empty if `text` is no base64 with its padding.
std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t end = text.find_last_not_of('=') + 1;
  if (text.size() - end > 2) return std::nullopt;
  std::string bytes;
  unsigned bits = 0;
  int n_bits = 0;
  for (const char c : text.substr(0, end)) {
    const auto digit = base64_digit(c);
    if (!digit) return std::nullopt;
    bits = bits << 6 | *digit;
    n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    bytes += static_cast<char>(bits >> n_bits & 0xff);
  }
  return bytes;
}

class TekkenReader {
 public:
  TekkenReader(const nlohmann::json& value, const std::string& where)
      : root_(value, where), config_(root_.object("config")) {}

  TokenizerParts read() {
    parts_.bpe.symbols = BpeSymbols::bytes;
    parts_.bpe.ignore_merges = true;  // a piece that is a token is that token
    n_special_ = config_.integer("default_num_special_tokens", 0, kMostTokens);
    const Index n_all = config_.integer("default_vocab_size", n_special_ + 1, kMostTokens);
    parts_.pre_tokenizer.emplace_back(SplitStep{
        Regex(config_.string("pattern"), config_.name_of("pattern")), SplitBehavior::isolated});
    add_special_tokens();
    add_tokens(static_cast<std::size_t>(n_all - n_special_));
    add_merges();
    const auto bos = vocabulary_.id_from_content.find("<s>");
    if (bos != vocabulary_.id_from_content.end()) parts_.prefix = {bos->second};
    return std::move(parts_);
  }

 private:
  void add_special_token(std::string content, Index id) {
    vocabulary_.id_from_content.emplace(content, static_cast<TokenId>(id));
    AddedToken token;
    token.content = std::move(content);
    token.id = static_cast<TokenId>(id);
    token.special = true;
    const auto [it, is_new] =
        parts_.tokens.try_emplace(token.id, TokenInfo{token.content, /*special=*/true});
    if (!is_new || token.content.empty() || token.content.size() > kMaxAddedToken) {
      root_.refuse("special_tokens", "tokens of their own, each once");
    }
    parts_.n_ids = std::max(parts_.n_ids, token.id + 1);
    parts_.added_tokens.push_back(std::move(token));
  }

  // Places that the list leaves out are filled with names.
  void add_special_tokens() {
    std::vector<std::string> names;
    if (root_.find("special_tokens") == nullptr) {
      names.assign(kOldSpecialTokens.begin(), kOldSpecialTokens.end());
    } else {
      for (const nlohmann::json& value : root_.list("special_tokens")) {
        const JsonObject token(value, root_.where(), "special_tokens.");
        const auto rank = token.integer("rank", 0, kMostTokens);
        if (rank != static_cast<std::int64_t>(names.size())) {
          token.refuse("rank", fmt::format("{}, its place", names.size()));
        }
        names.push_back(token.string("token_str"));
      }
    }
    if (static_cast<Index>(names.size()) > n_special_) {
      config_.refuse("default_num_special_tokens", fmt::format("at least {}", names.size()));
    }
    for (Index id = 0; id < n_special_; ++id) {
      const auto at = static_cast<std::size_t>(id);
      add_special_token(at < names.size() ? names[at] : fmt::format("<SPECIAL_{}>", id), id);
    }
  }

  void add_tokens(std::size_t n) {
    const nlohmann::json& list = root_.list("vocab");
    if (list.size() < n) root_.refuse("vocab", fmt::format("a list of at least {}", n));
    for (std::size_t i = 0; i < n; ++i) {
      const JsonObject token(list[i], root_.where(), fmt::format("vocab[{}].", i));
      if (token.integer("rank", 0, kMostTokens) != static_cast<std::int64_t>(i)) {
        token.refuse("rank", fmt::format("{}, its place", i));
      }
      const auto bytes = from_base64(token.string("token_bytes"));
      if (!bytes) token.refuse("token_bytes", "bytes in base64");
      const auto id = static_cast<TokenId>(static_cast<Index>(i) + n_special_);
      if (!parts_.bpe.id_from_bytes.emplace(*bytes, id).second) {
        token.refuse("token_bytes", "each token once");
      }
      if (bytes->size() == 1) {
        parts_.bpe.id_from_byte[static_cast<unsigned char>(bytes->front())] = id;
      }
      parts_.tokens.emplace(id, TokenInfo{*bytes, /*special=*/false});
      parts_.n_ids = std::max(parts_.n_ids, id + 1);
    }
    const auto& single = parts_.bpe.id_from_byte;
    if (!std::all_of(single.begin(), single.end(), [](const auto& id) { return id.has_value(); })) {
      root_.refuse("vocab", "tokens for all 256 bytes");
    }
  }

  // Every way to make a token of two others has the token's rank.
  void add_merges() {
    for (TokenId id = static_cast<TokenId>(n_special_); id < parts_.n_ids; ++id) {
      const std::string& bytes = parts_.tokens.at(id).bytes;
      if (bytes.size() > kMaxAddedToken) continue;  // too long to be cut at every place
      for (std::size_t at = 1; at < bytes.size(); ++at) {
        const auto left = find(std::string_view(bytes).substr(0, at));
        const auto right = find(std::string_view(bytes).substr(at));
        if (!left || !right) continue;
        parts_.bpe.merges.push_back({*left, *right, id});
        parts_.bpe.ranks.push_back(static_cast<std::uint32_t>(id));
      }
    }
  }

  std::optional<TokenId> find(std::string_view bytes) const {
    const auto it = parts_.bpe.id_from_bytes.find(bytes);
    return it == parts_.bpe.id_from_bytes.end() ? std::nullopt : std::optional(it->second);
  }

  JsonObject root_, config_;
  Index n_special_ = 0;
  Vocabulary vocabulary_;  // special tokens only
  TokenizerParts parts_;
};

}  // namespace

TokenizerParts tekken_tokenizer(std::string_view json_text, const std::string& where) {
  const nlohmann::json value = parse_json(json_text, where);
  return TekkenReader(value, where).read();
}

}  // namespace kvscope
