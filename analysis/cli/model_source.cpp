#include "analysis/cli/model_source.hpp"

#include <fmt/format.h>

#include "core/base/data_dir.hpp"
#include "core/base/error.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

template <class Load>
auto as_input(Load&& load) {
  try {
    return load();
  } catch (const ConfigError& error) {
    throw FormatError(error.what());
  }
}

}  // namespace

fs::path model_dir(const std::string& word) {
  if (word == "verifier") return embedded_verifier();
  if (word == "draft") return embedded_draft();
  std::error_code error;
  if (fs::is_directory(word, error)) return word;
  if (fs::exists(word, error)) {
    throw IoError(fmt::format(
        "{} is a file, expected a checkpoint folder (config.json, model.safetensors)", word));
  }
  throw IoError(
      fmt::format("no model folder {}; the embedded models are called verifier and draft", word));
}

std::string model_name(const fs::path& dir) {
  const fs::path full = fs::absolute(dir).lexically_normal();
  return full.has_filename() ? full.filename().string() : full.parent_path().filename().string();
}

std::string config_json_of(const fs::path& dir) {
  return read_whole_file(dir / "config.json", /*max_bytes=*/std::size_t{16} << 20);
}

Transformer load_transformer(const fs::path& dir) {
  return as_input([&] { return Transformer::load(dir); });
}

ModelConfig load_config(const fs::path& dir) {
  return as_input([&] { return load_model_config(dir); });
}

Tokenizer load_tokenizer(const fs::path& dir) {
  return as_input([&] { return Tokenizer::load(dir); });
}

}  // namespace kvscope::cli
