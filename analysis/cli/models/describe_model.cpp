#include "analysis/cli/models/describe_model.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "analysis/cli/models/model_advice.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"
#include "core/base/version.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/model/layer_weights.hpp"
#include "core/model/model_hash.hpp"
#include "core/model/weights.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostShown = 16;  // values of a list in the metadata

/// The file's own words, and how many bytes it stores as which type.
Json describe_gguf(const GgufCheckpoint& checkpoint) {
  std::int64_t n_tensors = 0, n_parameters = 0, n_bytes = 0;
  std::map<std::string, std::int64_t> types;
  checkpoint.for_each_tensor([&](const TensorInFile& tensor, const std::string&) {
    ++n_tensors;
    n_parameters += tensor.count;
    n_bytes += static_cast<std::int64_t>(tensor.bytes.size());
    ++types[tensor.type_name];
  });
  Json json = {{"what", "GGUF file"},
               {"file", checkpoint.file()},
               {"version", checkpoint.version()},
               {"n_files", checkpoint.n_files()},
               {"n_tensors", n_tensors},
               {"stored_parameters", n_parameters},
               {"stored_bytes", n_bytes},
               {"tensors_by_type", types}};
  for (const auto& [name, value] : checkpoint.metadata().value().items())
    json["metadata"][name] = value.is_array() && value.size() > kMostShown
                                 ? Json(describe_gguf_list(value))
                                 : Json(value);
  return json;
}

Json describe_shapes(const ModelConfig& config) {
  Json windows = Json::array();
  for (const auto& window : config.window) windows.push_back(or_null(window));
  Json no_rope = Json::array();
  for (std::size_t i = 0; i < config.has_rope.size(); ++i) {
    if (!config.has_rope[i]) no_rope.push_back(i);
  }
  Json layers = Json::array();
  for (const LayerShape& shape : config.layer_shapes) {
    layers.push_back({{"n_kv", shape.n_kv}, {"d_head", shape.d_head}});
    if (shape.keys_of >= 0) layers.back()["keys_of"] = shape.keys_of;
  }
  Json json = {
      {"family", enum_name(config.family)},
      {"n_parameters", config.n_parameters()},
      {"n_active_parameters", config.n_active_parameters()},
      {"n_layers", config.n_layers},
      {"n_q", config.n_q},
      {"n_kv", config.n_kv},
      {"d_head", config.d_head},
      {"d_model", config.d_model},
      {"d_ff", config.d_ff},
      {"n_vocab", config.n_vocab},
      {"max_positions", config.max_positions},
      {"rope_kind", config.rope.kind},
      {"rope_theta", config.rope.theta},
      {"tied_embeddings", config.tied_embeddings},
      {"qkv_bias", config.qkv_bias},
      {"qk_norm", config.qk_norm},
      {"sinks", config.has_sink_logits},
      {"n_experts", config.moe.n_experts},
      {"n_experts_per_token", config.moe.n_picked},
      {"layers_without_rope", no_rope},
      {"quantization", config.quantization.method.empty() ? "none" : config.quantization.method},
      {"window", windows}};
  if (!layers.empty()) json["layer_shapes"] = layers;
  return json;
}

std::int64_t memory_of_machine() {
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
}

/// What most of the weights are stored as: "Q4_K", "BF16", "fp8".
std::string weights_name(const ModelConfig& config, const WeightFiles& weights) {
  const auto types = weights.bytes_by_type();
  const auto most = std::ranges::max_element(
      types, [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string name = config.quantization.method;
  if (name.empty() && most != types.end()) name = most->first;
  return name;
}

Json describe_checkpoint(const fs::path& path, const WeightFiles& weights) {
  Json json = {{"what", "checkpoint"}, {"folder", path.string()}};
  json["hash"] = model_hash(path, weights);
  json["stored_parameters"] = weights.n_parameters();
  json["stored_bytes"] = weights.n_bytes();
  json["bytes_by_type"] = weights.bytes_by_type();
  return json;
}

/// Throws what keeps these weights from being computed, as far as headers tell.
void check_runs(const fs::path& path, const ModelConfig& config, const WeightFiles& weights) {
  refuse_quantization(config);
  if (gguf_file_of(path)) {
    std::vector<std::string> read;
    for (int i = 0; i < kNumStoredTypes; ++i)
      read.emplace_back(name_of(static_cast<StoredType>(i)));
    for (const auto& [type, n_bytes] : weights.bytes_by_type()) {
      if (std::ranges::find(read, type) == read.end())
        throw FormatError("weights of type {} are not read", type);
    }
  }
  if (weights.n_bytes() > memory_of_machine()) {
    throw FormatError("{} of weights, more than this machine's memory of {}",
                      bytes_text(static_cast<double>(weights.n_bytes())),
                      bytes_text(static_cast<double>(memory_of_machine())));
  }
}

}  // namespace

Json describe_model(const fs::path& path) {
  Json json;
  const auto gguf = gguf_file_of(path);
  if (gguf) json = describe_gguf(GgufCheckpoint(*gguf));
  try {
    const ModelConfig config = load_config(path);
    const WeightFiles weights = WeightFiles::open(path);
    if (!gguf) json = describe_checkpoint(path, weights);
    json.update(describe_shapes(config));
    if (gguf) json["hash"] = model_hash(path, weights);
    check_runs(path, config, weights);
    collect_weights(config, weights, Kept::as_stored);  // asks for all that it reads
    if (const std::string unread = unread_words(config, weights); !unread.empty())
      json["unread"] = unread;
    json["runs_here"] = "yes";
  } catch (const Error& error) {
    if (json.empty()) throw;
    json["runs_here"] = fmt::format("no: {}", error.what());
  }
  return json;
}

ModelSummary summarize_model(const fs::path& path) {
  ModelSummary summary;
  try {
    const ModelConfig config = load_config(path);
    summary.family = enum_name(config.family);
    summary.n_parameters = config.n_parameters();
    summary.max_positions = config.max_positions;
    const WeightFiles weights = WeightFiles::open(path);
    summary.stored_bytes = weights.n_bytes();
    summary.weights = weights_name(config, weights);
    check_runs(path, config, weights);
    check_has_tokenizer(path);
  } catch (const Error& error) {
    summary.why_not = error.what();
  }
  return summary;
}

}  // namespace kvscope::cli
