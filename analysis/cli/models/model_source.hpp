// Which checkpoint a command works on: a folder or GGUF file, one of the embedded pair by name, or
// a model in the cache of the hub or in Ollama's store.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "analysis/base/number_formats.hpp"
#include "analysis/options/options.hpp"
#include "core/model/backend.hpp"
#include "core/model/config.hpp"
#include "core/model/matrix.hpp"
#include "core/model/tokenizer.hpp"
#include "core/model/transformer.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope::cli {

/// --matmul, --kv-dtype and --device: how and where a model is computed. Defaults are exact; a
/// choice changes results within its rounding.
struct EngineOptions {
  std::string matmul = "f32";
  std::string kv_dtype = "f32";
  std::string device = "cpu";

  void declare(OptionSet& options);
  /// For recordings, whose log-sum-exp is that of the recorded q and k: keys in bf16 only on a GPU,
  /// which rounds the queries too.
  void declare_for_recording(OptionSet& options);
  /// --matmul and --device alone.
  void declare_for_reports(OptionSet& options);
  /// Before anything is loaded. Throws UsageError for names that there are not, or that this
  /// machine lacks, IoError where the device does not do.
  void check() const { backend(); }
  /// Throws what check() throws.
  BackendFactory backend() const;
  /// "f32", "bf16-amx", on a GPU "cuda-f32" or "cuda-bf16": what provenance says.
  std::string matmul_name() const;
  NumberFormats number_formats() const { return {matmul_name(), kv_dtype}; }
  bool is_on_gpu() const { return device != "cpu"; }
  /// What is kept of weights that must be widened.
  Kept copies() const;

 private:
  LaneOptions lane_options() const;
  bool has_bf16_products() const;
  void declare_device(OptionSet& options);
  void declare_matmul(OptionSet& options);
  bool is_for_recording_ = false;
};

/// Says on standard error if the method chooses its keys on the host, which then gets copies of
/// queries and keys in every call.
void note_host_choice(const MethodSpec& method, const std::optional<Budget>& budget);

/// What the option --model takes, for helps.
inline constexpr const char* kModelHelp =
    "checkpoint folder, GGUF file, ORG/NAME in the hub's cache, ollama:NAME[:TAG], "
    "or verifier or draft (embedded)";

/// "verifier" and "draft" name the embedded models (write ./draft for a folder of that name);
/// "ollama:NAME[:TAG]" one in Ollama's store; a path that exists is itself; "ORG/NAME[@REVISION]"
/// is looked for in the hub's cache. Returns a folder or a file. Throws IoError for what is not
/// there, with the command that fetches it.
std::filesystem::path model_dir(const std::string& word);

/// True for words that model_dir() takes for a model that is there although no path has their name.
bool names_model(const std::string& word);

/// Name for provenance: the folder's or file's own name; of a snapshot in the hub's cache the
/// model's, of a file in Ollama's store what the file says.
std::string model_name(const std::filesystem::path& dir);

/// What numbers of a loaded model rest on: core/model/model_hash.hpp.
std::string hash_of_model(const std::filesystem::path& dir, const Transformer& model);

/// Contents of config.json, or what it would say of a GGUF file. Throws IoError or FormatError.
std::string config_json_of(const std::filesystem::path& dir);

/// As Transformer::load and Tokenizer::load, but a model that kvscope does not compute is bad input
/// (FormatError), not a wrong option; and of what is no model at all the message says what it is.
/// What unread_words() says is a remark, or, if `is_strict`, bad input.
Transformer load_transformer(const std::filesystem::path& dir, const EngineOptions& engine,
                             bool is_strict = false);
/// The settings and tensors that nothing read while the weights were collected, layers' numbers as
/// *; empty if there are none.
std::string unread_words(const ModelConfig& config, const WeightFiles& files);
ModelConfig load_config(const std::filesystem::path& dir);
Tokenizer load_tokenizer(const std::filesystem::path& dir);

}  // namespace kvscope::cli
