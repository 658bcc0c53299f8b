// Which checkpoint a command works on: a folder, or one of the embedded pair by name.
#pragma once

#include <filesystem>
#include <string>

#include "analysis/cli/options.hpp"
#include "core/model/backend.hpp"
#include "core/model/config.hpp"
#include "core/model/tokenizer.hpp"
#include "core/model/transformer.hpp"

namespace kvscope::cli {

/// --matmul and --kv-dtype: how a model is computed. Defaults are exact; a choice changes results
/// within its rounding.
struct EngineOptions {
  std::string matmul;  // empty: the environment variable KVSCOPE_MATMUL, or f32
  std::string kv_dtype = "f32";

  void declare(OptionSet& options);
  /// --matmul alone: for recordings, whose log-sum-exp is that of the recorded q and k.
  void declare_matmul(OptionSet& options);
  /// Throws UsageError for names that there are not, or that this machine lacks.
  LaneOptions lane_options() const;
  std::string matmul_name() const { return std::string(name_of(lane_options().matmul)); }
};

/// "verifier" and "draft" name the embedded models (write ./draft for a folder of that name);
/// anything else is a path. Throws IoError if it is not a folder.
std::filesystem::path model_dir(const std::string& word);

/// Name for provenance: the folder's own name.
std::string model_name(const std::filesystem::path& dir);

/// Contents of config.json, at most 16 MiB. Throws IoError.
std::string config_json_of(const std::filesystem::path& dir);

/// As Transformer::load and Tokenizer::load, but a model that kvscope does not compute is bad input
/// (FormatError), not a wrong option.
Transformer load_transformer(const std::filesystem::path& dir, const EngineOptions& engine);
ModelConfig load_config(const std::filesystem::path& dir);
Tokenizer load_tokenizer(const std::filesystem::path& dir);

}  // namespace kvscope::cli
