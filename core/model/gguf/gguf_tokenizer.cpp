// The tokenizer that a GGUF file's own tables describe.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"
#include "core/model/gguf/derived_merges.hpp"
#include "core/model/gguf/gguf_file.hpp"
#include "core/model/tokenizer_json_parts.hpp"

namespace kvscope {

namespace {

// Kinds of tokens, as tokenizer.ggml.token_type numbers them.
constexpr int kControlToken = 3;
constexpr int kUserToken = 4;

std::string ggml_key(std::string_view name) {
  return fmt::format("tokenizer.ggml.{}", name);
}

// The expressions of the published tokenizer.json files: Llama 3, Qwen 2, Mistral's Tekken, o200k.
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// One way to cut texts into pieces, as the tokenizer.json of the models that have it says it.
struct GgufPreTokenizer {
  bool is_composed = false;     // the text is brought into NFC
  std::string_view pattern;     // of Split; empty: ByteLevel's own expression
  bool splits_digits = false;   // each digit is a piece
  bool ignores_merges = false;  // a piece that is a token needs no merges
  bool adds_bos = false;        // where the file does not say it

  /// The pre-tokenizer in the words of tokenizer.json.
  nlohmann::json steps(bool adds_prefix_space) const {
    nlohmann::json list = nlohmann::json::array();
    if (splits_digits) list.push_back({{"type", "Digits"}, {"individual_digits", true}});
    if (!pattern.empty()) {
      list.push_back({{"type", "Split"},
                      {"pattern", {{"Regex", pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}});
    }
    list.push_back({{"type", "ByteLevel"},
                    {"add_prefix_space", adds_prefix_space},
                    {"use_regex", pattern.empty()}});
    return {{"type", "Sequence"}, {"pretokenizers", list}};
  }
};

/// By the names that GGUF files give them (tokenizer.ggml.pre).
struct NamedPreTokenizer {
  std::string_view name;
  GgufPreTokenizer kind;
};

constexpr GgufPreTokenizer kGpt2{false, {}, false, false, false};
constexpr GgufPreTokenizer kDigits{false, {}, true, false, false};
constexpr GgufPreTokenizer kLlamaBpe{false, kLlama3, false, true, true};
constexpr GgufPreTokenizer kLlama3Pieces{false, kLlama3, false, false, false};
constexpr GgufPreTokenizer kQwen{true, kQwen2, false, false, false};

constexpr std::array<NamedPreTokenizer, 13> kPreTokenizers = {
    {{"gpt-2", kGpt2},
     {"olmo", kGpt2},
     {"phi-2", kGpt2},
     {"smollm", kDigits},
     {"llama-bpe", kLlamaBpe},
     {"llama3", kLlamaBpe},
     {"llama-v3", kLlamaBpe},
     {"smaug-bpe", kLlama3Pieces},
     {"dbrx", kLlama3Pieces},
     {"qwen2", kQwen},
     {"deepseek-r1-qwen", kQwen},
     {"gpt-4o", {false, kO200k, false, true, false}},
     {"tekken", {false, kTekken, false, true, true}}}};

class GgufTokenizerReader {
 public:
  explicit GgufTokenizerReader(const JsonObject& metadata) : meta_(metadata) {}

  TokenizerParts read() {
    const auto model = meta_.string_if(ggml_key("model"));
    if (model == "gpt2") {
      read_byte_level();
    } else if (model == "llama") {
      read_sentencepiece();
    } else {
      refuse_kind(meta_, ggml_key("model"), "\"gpt2\" or \"llama\"");
    }
    add_ends();
    parts_.chat_template = meta_.string_if("tokenizer.chat_template").value_or("");
    return std::move(parts_);
  }

 private:
  void read_byte_level() {
    const std::string pre = meta_.string_if(ggml_key("pre")).value_or("");
    const auto row = std::ranges::find(kPreTokenizers, pre, &NamedPreTokenizer::name);
    if (row == kPreTokenizers.end()) {
      std::vector<std::string_view> names;
      for (const NamedPreTokenizer& known : kPreTokenizers) names.push_back(known.name);
      refuse_kind(meta_, ggml_key("pre"), fmt::format("one of {}", fmt::join(names, ", ")));
    }
    const GgufPreTokenizer& kind = row->kind;
    nlohmann::json steps = {{"pre_tokenizer", kind.steps(flag("add_space_prefix") == true)}};
    if (kind.is_composed) steps["normalizer"] = {{"type", "NFC"}};
    read_text_steps(steps);
    parts_.bpe.ignore_merges = kind.ignores_merges;
    adds_bos_ = kind.adds_bos;
    const Vocabulary vocabulary = read_vocabulary(/*respells_spaces=*/false);
    find_byte_tokens(vocabulary, /*falls_back=*/false, parts_.bpe);
    read_merges(vocabulary);
    read_added(vocabulary);
    // No unknown token: bytes that the vocabulary lacks are dropped, as the models' own tokenizers
    // do, although files name one.
  }

  void read_sentencepiece() {
    const bool has_prefix = flag("add_space_prefix").value_or(true);
    const nlohmann::json replace = {
        {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kWordMark}};
    nlohmann::json before = nlohmann::json::array();
    if (has_prefix) before.push_back({{"type", "Prepend"}, {"prepend", kWordMark}});
    before.push_back(replace);
    nlohmann::json after = {
        {{"type", "Replace"}, {"pattern", {{"String", kWordMark}}}, {"content", " "}},
        {{"type", "ByteFallback"}},
        {{"type", "Fuse"}}};
    if (has_prefix) {
      after.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    const nlohmann::json steps = {{"normalizer", {{"type", "Sequence"}, {"normalizers", before}}},
                                  {"decoder", {{"type", "Sequence"}, {"decoders", after}}}};
    read_text_steps(steps);
    adds_bos_ = true;
    const Vocabulary vocabulary = read_vocabulary(/*respells_spaces=*/true);
    find_byte_tokens(vocabulary, /*falls_back=*/true, parts_.bpe);
    if (meta_.has(ggml_key("merges"))) {
      read_merges(vocabulary);
    } else {
      derive_merges(vocabulary);
    }
    read_added(vocabulary);
    parts_.bpe.unknown_id = special("unknown_token_id");
    parts_.bpe.fuse_unknown = true;
    read_decoder(JsonObject(steps, meta_.where()), parts_);
  }

  void read_text_steps(const nlohmann::json& steps) {
    const JsonObject root(steps, meta_.where());
    read_normalizer(root, parts_);
    read_pre_tokenizer(root, parts_);
  }

  std::optional<bool> flag(std::string_view name) const { return meta_.boolean_if(ggml_key(name)); }

  const nlohmann::json& texts(std::string_view name) const {
    const nlohmann::json* list = meta_.find(ggml_key(name));
    if (list == nullptr || !list->is_array() || (!list->empty() && !list->front().is_string()))
      meta_.refuse(ggml_key(name), "a list of strings");
    return *list;
  }

  // SentencePiece's tokens of spaces alone are spelled with spaces in some files.
  Vocabulary read_vocabulary(bool respells_spaces) {
    const nlohmann::json& tokens = texts("tokens");
    if (tokens.empty()) meta_.refuse(ggml_key("tokens"), "a list of strings");
    Vocabulary vocabulary;
    vocabulary.id_from_content.reserve(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      auto content = tokens[i].get<std::string>();
      if (first_invalid_utf8(content)) {
        throw FormatError("{}[{}] ({}): expected UTF-8, found {}", ggml_key("tokens"), i,
                          meta_.where(), quote(content));
      }
      if (respells_spaces && content.find_first_not_of(' ') == std::string::npos) {
        content = replace_all(content, " ", kWordMark);
      }
      contents_.push_back(content);
      add_model_token(meta_.where(), content, static_cast<TokenId>(i), vocabulary, parts_);
    }
    return vocabulary;
  }

  void read_merges(const Vocabulary& vocabulary) {
    const nlohmann::json& merges = texts("merges");
    parts_.bpe.merges.reserve(merges.size());
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const std::string_view merge = merges[i].get_ref<const std::string&>();
      const auto name = [&] {
        return fmt::format("{}[{}] ({})", ggml_key("merges"), i, meta_.where());
      };
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos)
        throw FormatError("{}: expected two tokens \"a b\", found {}", name(), quote(merge));
      add_merge(std::string(merge.substr(0, space)), std::string(merge.substr(space + 1)),
                vocabulary, name, parts_.bpe);
    }
  }

  void derive_merges(const Vocabulary& vocabulary) {
    const auto architecture = meta_.string_if("general.architecture").value_or("");
    std::vector<double> scores;
    if (architecture.starts_with("gemma")) {
      // Gemma's merges go by the tokens' places; the scores do not follow them.
      for (std::size_t i = 0; i < contents_.size(); ++i) scores.push_back(-static_cast<double>(i));
    } else {
      scores = gguf_numbers(meta_, ggml_key("scores"), contents_.size());
      const auto is_finite = [](double score) { return std::isfinite(score); };
      if (!std::all_of(scores.begin(), scores.end(), is_finite)) {
        meta_.refuse(ggml_key("scores"), "finite numbers");
      }
    }
    parts_.bpe.merges = merges_from_scores(contents_, scores, vocabulary.id_from_content);
  }

  void read_added(const Vocabulary& vocabulary) {
    if (meta_.find(ggml_key("token_type")) == nullptr) return;
    const nlohmann::json& tokens = texts("tokens");
    const std::vector<double> types = gguf_numbers(meta_, ggml_key("token_type"), tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool is_control = types[i] == kControlToken;
      if (!is_control && types[i] != kUserToken) continue;
      const auto content = tokens[i].get<std::string>();
      // A token of spaces comes out of the merges; an empty one cannot be found in a text.
      if (content.empty() || content != contents_[i] || content.size() > kMaxAddedToken) continue;
      AddedToken token;
      token.content = content;
      token.id = vocabulary.id_from_content.at(content);
      token.special = is_control;
      if (token.id != static_cast<TokenId>(i)) continue;  // spelled as an earlier one
      add_added_token(std::move(token), vocabulary, ggml_key("tokens"), parts_);
    }
  }

  std::optional<TokenId> special(std::string_view name) const {
    const auto last = static_cast<std::int64_t>(contents_.size()) - 1;
    const auto id = meta_.integer_if(ggml_key(name), 0, last);
    return id ? std::optional(static_cast<TokenId>(*id)) : std::nullopt;
  }

  void add_ends() {
    const auto add = [&](bool wanted, std::string_view name, std::vector<TokenId>& side) {
      if (!wanted) return;
      const auto id = special(name);
      if (!id) meta_.refuse(ggml_key(name), "a token id (the file says that it is added)");
      side.push_back(*id);
    };
    const bool says_bos = flag("add_bos_token").has_value();
    const bool has_bos = meta_.has(ggml_key("bos_token_id"));
    add(says_bos ? *flag("add_bos_token") : adds_bos_ && has_bos, "bos_token_id", parts_.prefix);
    add(flag("add_eos_token").value_or(false), "eos_token_id", parts_.suffix);
  }

  const JsonObject& meta_;
  TokenizerParts parts_;
  std::vector<std::string> contents_;  // as they are spelled in the vocabulary
  bool adds_bos_ = false;              // where the file does not say it
};

}  // namespace

TokenizerParts gguf_tokenizer(const JsonObject& metadata) {
  return GgufTokenizerReader(metadata).read();
}

}  // namespace kvscope
