#include "analysis/fit/draft_folder.hpp"

#include <algorithm>

#include "analysis/base/measure_layers.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/new_file.hpp"
#include "core/base/whole_file.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/model/layer_weights.hpp"
#include "core/model/safetensors_writer.hpp"
#include "core/model/weights.hpp"

namespace kvscope {

namespace fs = std::filesystem;

namespace {

std::string_view bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

TensorToWrite floats(const std::string& name, const std::vector<Index>& shape,
                     std::function<Tensor<float>()> make) {
  std::size_t n = 1;
  for (const Index extent : shape) n *= static_cast<std::size_t>(extent);
  return {name, "F32", shape, n * sizeof(float), [make = std::move(make)](const auto& put) {
            const Tensor<float> values = make();
            put(bytes_of(values.flat()));
          }};
}

Shape shape_from(const std::vector<Index>& extents) {
  Shape shape;
  for (const Index extent : extents) shape.dim[static_cast<std::size_t>(shape.rank++)] = extent;
  return shape;
}

Tensor<float> filled(const Shape& shape, float value) {
  Tensor<float> tensor(shape);
  for (float& x : tensor.flat()) x = value;
  return tensor;
}

void copy_tokenizer(const fs::path& model, const fs::path& folder, bool overwrite) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  if (!fs::is_directory(model)) return;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tekken.json",
                           "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                           "chat_template.jinja", "generation_config.json"}) {
    const fs::path file = model / name;
    if (fs::is_regular_file(file))
      write_new_file(folder / name, read_regular_file(file, kMostBytes), overwrite);
  }
}

/// The verifier's config.json for its first n layers with a head of their own: layers, per-layer
/// lists and tie_word_embeddings changed, and under "kvscope_draft" what `about` says (JSON).
/// Throws FormatError, and ConfigError for a model with several towers.
std::string draft_config_text(const std::string& verifier_config, Index n_layers,
                              const std::string& about) {
  Json config = parse_ordered_json(verifier_config, "config.json");
  if (!config.is_object() || config.contains("text_config")) {
    throw ConfigError(
        "fit draft: expected a model of text alone, found one whose config.json has a text_config");
  }
  const Json all = config.value("num_hidden_layers", Json());
  if (!all.is_number_integer())
    throw FormatError("num_hidden_layers (config.json): expected a whole number");
  for (auto& [name, value] : config.items()) {
    if (!value.is_array()) continue;
    if (name == "mlp_only_layers") {  // indices of layers
      Json kept = Json::array();
      for (const auto& layer : value)
        if (layer.is_number_integer() && layer.get<Index>() < n_layers) kept.push_back(layer);
      value = kept;
    } else if (value.size() == all.get<std::size_t>()) {  // an entry per layer
      value.erase(value.begin() + n_layers, value.end());
    }
  }
  config["num_hidden_layers"] = n_layers;
  config["tie_word_embeddings"] = false;
  config["kvscope_draft"] = parse_ordered_json(about, "kvscope_draft");
  return config.dump(2) + "\n";
}

}  // namespace

void write_draft(const fs::path& model, Index n_layers, const DraftFit& fit,
                 const std::string& about, const fs::path& folder, bool overwrite) {
  const ModelConfig config = first_layers(load_model_config(model), n_layers);
  const std::string config_text = draft_config_text(model_config_text(model), n_layers, about);
  const WeightFiles files = WeightFiles::open(model);
  collect_weights(config, files);  // asks for what the first layers need
  std::vector<std::string> unread = files.unread();
  std::ranges::sort(unread);
  const bool is_neox = config.plan.names == LayerPlan::Names::gpt_neox;
  const std::string head = is_neox ? "embed_out.weight" : "lm_head.weight";
  const std::string norm = is_neox ? "gpt_neox.final_layer_norm" : "model.norm";
  const bool is_gguf = gguf_file_of(model).has_value();

  std::vector<TensorToWrite> tensors;
  for (const auto& [key, tensor] : files.entries()) {
    const std::string name = key;  // for lambdas, which take no bindings
    if (name == head || std::ranges::binary_search(unread, name)) continue;
    if (name == norm + ".weight" || name == norm + ".bias") {
      // What the fitted head reads is normed and no more.
      const bool is_one = name.ends_with("weight") && !config.plan.norm_adds_one;
      tensors.push_back(floats(name, tensor.shape, [shape = shape_from(tensor.shape), is_one] {
        return filled(shape, is_one ? 1.0f : 0.0f);
      }));
    } else if (is_gguf) {
      tensors.push_back(
          floats(name, tensor.shape, [&files, name, shape = shape_from(tensor.shape)] {
            return files.get_float(name, shape);
          }));
    } else {
      tensors.push_back({name, tensor.type_name, tensor.shape, tensor.bytes.size(),
                         [bytes = tensor.bytes](const auto& put) {
                           put({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
                         }});
    }
  }
  tensors.push_back({head,
                     "F32",
                     {fit.head.dim(0), fit.head.dim(1)},
                     static_cast<std::size_t>(fit.head.flat().size_bytes()),
                     [&fit](const auto& put) { put(bytes_of(fit.head.flat())); }});
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError("cannot make the folder {}: {}", folder.string(), error.message());
  copy_tokenizer(model, folder, overwrite);
  write_safetensors(folder / "model.safetensors", tensors, overwrite);
  write_new_file(folder / "config.json", config_text, overwrite);
}

}  // namespace kvscope
