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

/// --matmul, --kv-dtype and --device: how and where a model is computed. Defaults are exact; a
/// choice changes results within its rounding.
struct EngineOptions {
  std::string matmul;  // empty: the environment variable KVSCOPE_MATMUL, or f32
  std::string kv_dtype = "f32";
  std::string device = "cpu";

  void declare(OptionSet& options);
  /// For recordings, whose log-sum-exp is that of the recorded q and k: keys in bf16 only on a GPU,
  /// which rounds the queries too.
  void declare_for_recording(OptionSet& options);
  /// Before anything is loaded. Throws UsageError for names that there are not, or that this
  /// machine lacks, IoError where the device does not do.
  void check() const;
  /// Throws what check() throws.
  BackendFactory backend() const;
  /// "f32", "bf16-amx", on a GPU "cuda-f32" or "cuda-bf16": what provenance says.
  std::string matmul_name() const;
  bool is_on_gpu() const { return device != "cpu"; }

 private:
  LaneOptions lane_options() const;
  bool has_bf16_products() const;
  void declare_device(OptionSet& options);
  void declare_matmul(OptionSet& options);
  bool is_for_recording_ = false;
};

/// "verifier" and "draft" name the embedded models (write ./draft for a folder of that name);
/// anything else is a path. Throws IoError if it is not a folder.
std::filesystem::path model_dir(const std::string& word);

/// Name for provenance: the folder's own name.
std::string model_name(const std::filesystem::path& dir);

/// What numbers of a loaded model rest on: core/model/model_hash.hpp.
std::string hash_of_model(const std::filesystem::path& dir, const Transformer& model);

/// Contents of config.json, at most 16 MiB. Throws IoError.
std::string config_json_of(const std::filesystem::path& dir);

/// As Transformer::load and Tokenizer::load, but a model that kvscope does not compute is bad input
/// (FormatError), not a wrong option.
Transformer load_transformer(const std::filesystem::path& dir, const EngineOptions& engine);
ModelConfig load_config(const std::filesystem::path& dir);
Tokenizer load_tokenizer(const std::filesystem::path& dir);

}  // namespace kvscope::cli
