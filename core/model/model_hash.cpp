#include "core/model/model_hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/mapped_file.hpp"
#include "core/base/whole_file.hpp"
#include "core/model/config.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/model/safetensors.hpp"
#include "core/model/tokenizer.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kEndBytes = std::size_t{64} << 10;
constexpr std::size_t kMostText = std::size_t{1} << 30;

std::string hash_of(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

/// Names come from a file and may hold anything: their length goes first.
std::string line_of(const std::string& name, const WeightEntry& tensor) {
  const std::size_t n = std::min(kEndBytes, tensor.bytes.size());
  const auto first = tensor.bytes.first(n);
  const auto last = tensor.bytes.last(n);
  std::string line =
      fmt::format("{}:{} {} {} {:016x} {:016x}\n", name.size(), name, tensor.type_name,
                  shape_text(tensor.shape), XXH3_64bits(first.data(), first.size()),
                  XXH3_64bits(last.data(), last.size()));
  // A checkpoint of many small tensors is read whole here, but need not stay in memory for it.
  forget_pages(first);
  forget_pages(last);
  return line;
}

void add_text(std::string& text, std::string_view word) {
  text += fmt::format("{}:{}\n", word.size(), word);
}

/// The tables of a GGUF file, by name.
std::string tokenizer_tables(const nlohmann::json& metadata) {
  std::string text;
  const auto add = [&](const nlohmann::json& one) {
    if (one.is_string()) return add_text(text, one.get_ref<const std::string&>());
    add_text(text, one.is_number_float() ? fmt::format("{}", one.get<double>()) : one.dump());
  };
  for (const auto& [name, value] : metadata.items()) {
    if (!name.starts_with("tokenizer.")) continue;
    add_text(text, name);
    if (!value.is_array()) add(value);
    for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) add(value[i]);
  }
  return text;
}

std::string tokenizer_text(const std::filesystem::path& model) {
  const auto file = tokenizer_file(model);
  if (!file) return "";
  if (gguf_file_of(*file)) return tokenizer_tables(GgufCheckpoint(*file).metadata().value());
  return read_whole_file(*file, kMostText);
}

}  // namespace

std::string model_hash(std::string_view config_json, std::string_view tokenizer_json,
                       const WeightFiles& weights) {
  std::string text = fmt::format("config {}\ntokenizer {}\n", hash_of(config_json),
                                 tokenizer_json.empty() ? "none" : hash_of(tokenizer_json));
  for (const auto& [name, tensor] : weights.entries()) text += line_of(name, tensor);
  return "xxh128:" + hash_of(text);
}

std::string model_hash(const std::filesystem::path& model_dir, const WeightFiles& weights) {
  return model_hash(model_config_text(model_dir), tokenizer_text(model_dir), weights);
}

std::string model_hash(const std::filesystem::path& model_dir) {
  return model_hash(model_dir, WeightFiles::open(model_dir));
}

}  // namespace kvscope
