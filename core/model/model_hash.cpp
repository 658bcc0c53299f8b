#include "core/model/model_hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <system_error>

#include "core/base/whole_file.hpp"
#include "core/model/safetensors.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kEndBytes = std::size_t{64} << 10;
constexpr std::size_t kMostText = std::size_t{1} << 30;

std::string hash_of(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

/// Names come from a file and may hold anything: their length goes first.
std::string line_of(const ListedTensor& tensor) {
  const std::size_t n = std::min(kEndBytes, tensor.bytes.size());
  const auto first = tensor.bytes.first(n);
  const auto last = tensor.bytes.last(n);
  return fmt::format("{}:{} {} {} {:016x} {:016x}\n", tensor.name.size(), tensor.name,
                     tensor.dtype_name, shape_text(tensor.shape),
                     XXH3_64bits(first.data(), first.size()),
                     XXH3_64bits(last.data(), last.size()));
}

}  // namespace

std::string model_hash(std::string_view config_json, std::string_view tokenizer_json,
                       const WeightFiles& weights) {
  std::string text = fmt::format("config {}\ntokenizer {}\n", hash_of(config_json),
                                 tokenizer_json.empty() ? "none" : hash_of(tokenizer_json));
  for (const ListedTensor& tensor : weights.list()) text += line_of(tensor);
  return "xxh128:" + hash_of(text);
}

std::string model_hash(const std::filesystem::path& model_dir, const WeightFiles& weights) {
  const std::filesystem::path tokenizer = model_dir / "tokenizer.json";
  std::error_code error;
  return model_hash(
      read_whole_file(model_dir / "config.json", kMostText),
      std::filesystem::exists(tokenizer, error) ? read_whole_file(tokenizer, kMostText) : "",
      weights);
}

std::string model_hash(const std::filesystem::path& model_dir) {
  return model_hash(model_dir, WeightFiles::open(model_dir));
}

}  // namespace kvscope
