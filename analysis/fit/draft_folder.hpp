// A fitted draft (draft_fit.hpp) as a model's folder: config.json, model.safetensors, tokenizer.
#pragma once

#include <filesystem>
#include <string>

#include "analysis/fit/draft_fit.hpp"

namespace kvscope {

/// Writes the folder: the tensors of the first layers as the verifier's files have them (from a
/// GGUF file: widened to F32), a final norm without effect, the fitted head. The tokenizer's files
/// are copied; those of a GGUF file stay there, and a draft without a tokenizer of its own speaks
/// the verifier's. Throws IoError and what loading throws.
void write_draft(const std::filesystem::path& model, Index n_layers, const DraftFit& fit,
                 const std::string& about, const std::filesystem::path& folder, bool overwrite);

}  // namespace kvscope
