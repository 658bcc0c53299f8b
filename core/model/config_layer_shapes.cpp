// Layers that differ in config.json: Gemma 4's.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/model/config_fields.hpp"

namespace kvscope {

namespace {

// The published files have settings for all layers without a window; those that transformers
// writes have per_layer_config, in which their heads stand layer by layer.
LayerShape read_shape(const JsonObject& json, const ModelConfig& config, Index layer) {
  LayerShape shape{config.n_kv, config.d_head, 1.0f, 0.0f, -1};
  const bool is_full = !config.window[static_cast<std::size_t>(layer)];
  if (json.has("per_layer_config")) {
    if (json.find("per_layer_config") == nullptr) return shape;
    const JsonObject all = json.object("per_layer_config");
    const std::string name = std::to_string(layer);
    if (all.find(name) == nullptr) return shape;
    const JsonObject own = all.object(name);
    shape.n_kv = read_count_or(own, "num_key_value_heads", kMaxHeads, shape.n_kv, shape.n_kv);
    shape.d_head = read_count_or(own, "head_dim", kMaxHeadDim, shape.d_head, shape.d_head);
    return shape;
  }
  const Index n_kv =
      read_count_or(json, "num_global_key_value_heads", kMaxHeads, config.n_kv, config.n_kv);
  const Index d_head = read_count_or(json, "global_head_dim", kMaxHeadDim, 512, 512);
  if (is_full && config.plan.keys_are_values) shape.n_kv = n_kv;
  if (is_full) shape.d_head = d_head;
  return shape;
}

void check_shape(const JsonObject& json, const ModelConfig& config, const LayerShape& shape,
                 Index layer) {
  if (config.n_q % shape.n_kv == 0 && shape.d_head % 2 == 0 &&
      config.n_q * shape.d_head <= kMaxWidth)
    return;
  throw ConfigError(
      "{}: expected KV heads that divide the {} query heads, of an even number of channels, at "
      "most {} over all heads; found {} of {} in layer {}",
      json.name_of("num_attention_heads"), config.n_q, kMaxWidth, shape.n_kv, shape.d_head, layer);
}

// The last layers attend to the keys of the last one before them that has a window as they do.
void share_keys(const JsonObject& json, ModelConfig& config) {
  const Index n_shared = json.integer_or("num_kv_shared_layers", 0, config.n_layers - 1, 0);
  const Index first = config.n_layers - n_shared;
  const auto has_window = [&](Index layer) {
    return config.window[static_cast<std::size_t>(layer)].has_value();
  };
  for (Index layer = first; layer < config.n_layers; ++layer) {
    Index owner = first - 1;
    while (owner >= 0 && has_window(owner) != has_window(layer)) --owner;
    LayerShape& shape = config.layer_shapes[static_cast<std::size_t>(layer)];
    if (owner < 0) {
      throw ConfigError("{}: expected a layer with keys of its own for layer {} among the first {}",
                        json.name_of("num_kv_shared_layers"), layer, first);
    }
    shape.keys_of = owner;
  }
}

}  // namespace

void read_layer_shapes(const JsonObject& json, ModelConfig& config) {
  if (json.boolean_or("enable_moe_block", false)) {
    throw ConfigError(
        "{}: expected false (Gemma 4's experts beside the MLP are not computed here; the Python "
        "recorder takes such models)",
        json.name_of("enable_moe_block"));
  }
  for (const char* of_experts : {"num_experts", "top_k_experts", "moe_intermediate_size"})
    json.has(of_experts);  // which say nothing without
  config.query_scale = 1.0;
  config.plan.keys_are_values = json.boolean_or("attention_k_eq_v", false);
  config.plan.wide_mlp_where_shared = json.boolean_or("use_double_wide_mlp", false);
  config.d_layer_input = json.integer_or("hidden_size_per_layer_input", 0, kMaxWidth, 256);
  config.n_layer_vocab =
      read_count_or(json, "vocab_size_per_layer_input", kMaxVocab, 262144, 262144);
  if (config.d_layer_input * config.n_layers > kMaxWidth) {
    throw ConfigError("{}: expected at most {} over all layers, found {} in each of {}",
                      json.name_of("hidden_size_per_layer_input"), kMaxWidth, config.d_layer_input,
                      config.n_layers);
  }
  if (config.d_layer_input > 0 && config.n_layer_vocab < config.n_vocab) {
    throw ConfigError("{}: expected vocab_size = {} at least, found {}",
                      json.name_of("vocab_size_per_layer_input"), config.n_vocab,
                      config.n_layer_vocab);
  }
  std::optional<LayerShape> full, sliding;
  for (Index layer = 0; layer < config.n_layers; ++layer) {
    const LayerShape shape = read_shape(json, config, layer);
    check_shape(json, config, shape, layer);
    config.layer_shapes.push_back(shape);
    auto& alike = config.window[static_cast<std::size_t>(layer)] ? sliding : full;
    if (alike && *alike != shape) {
      throw ConfigError("{}: expected equal heads in all layers {} a window, found {} of {} in {}",
                        json.name_of("per_layer_config"), &alike == &full ? "without" : "with",
                        shape.n_kv, shape.d_head, layer);
    }
    alike = shape;
  }
  share_keys(json, config);
  config.n_kv = full->n_kv;
  config.d_head = full->d_head;
}

}  // namespace kvscope
