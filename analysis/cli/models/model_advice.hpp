// What a path that was named as a model holds instead of one, and the way out.
#pragma once

#include <filesystem>
#include <string>

namespace kvscope::cli {

/// Throws FormatError with what was found and what makes a model of it, if `path` has no weights
/// that kvscope reads: PyTorch files, an adapter, a single safetensors file, other frameworks.
/// Returns if it has, or if there is nothing to say.
void check_has_weights(const std::filesystem::path& path);

/// The same for tokenizers: vocab.json without tokenizer.json.
void check_has_tokenizer(const std::filesystem::path& path);

/// True if there is a tokenizer of any kind, readable or not.
bool has_tokenizer(const std::filesystem::path& path);

/// What to add to the refusal of a config.json; begins with "; ", or empty.
std::string config_advice(const std::filesystem::path& path);

}  // namespace kvscope::cli
