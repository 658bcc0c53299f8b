#include "core/model/gguf/gguf_pre_tokenizer.hpp"

#include <array>
#include <nlohmann/json.hpp>

namespace kvscope {

namespace {

// The expressions of the published tokenizer.json files: Llama 3, Qwen 2, Mistral's Tekken, o200k.
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

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

}  // namespace

nlohmann::json GgufPreTokenizer::steps(bool adds_prefix_space) const {
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

const GgufPreTokenizer* gguf_pre_tokenizer(std::string_view name) {
  for (const NamedPreTokenizer& row : kPreTokenizers) {
    if (row.name == name) return &row.kind;
  }
  return nullptr;
}

std::vector<std::string_view> gguf_pre_tokenizer_names() {
  std::vector<std::string_view> names;
  for (const NamedPreTokenizer& row : kPreTokenizers) names.push_back(row.name);
  return names;
}

}  // namespace kvscope
