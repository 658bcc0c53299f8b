#include "analysis/cost/any_shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"

namespace kvscope {

namespace {

using nlohmann::json;
using Names = std::initializer_list<const char*>;  // of one number in different architectures

constexpr Index kMostLayers = 1 << 11;
constexpr Index kMostWidth = 1 << 24;

/// The part that is about text.
const json& text_config(const json& root) {
  for (const char* part : {"text_config", "llm_config", "language_config", "thinker_config"}) {
    if (root.is_object() && root.contains(part) && root[part].is_object())
      return text_config(root[part]);
  }
  return root;
}

std::string present_of(const JsonObject& fields, Names names) {
  for (const char* name : names) {
    if (fields.find(name) != nullptr) return name;
  }
  return *names.begin();
}

Index count(const JsonObject& fields, Names names) {
  return fields.integer(present_of(fields, names), 1, kMostWidth);
}

Index count_or(const JsonObject& fields, Names names, Index fallback) {
  return fields.integer_or(present_of(fields, names), 0, kMostWidth, fallback);
}

enum class LayerSees { all, window, nothing };

/// What a layer's word says; `word` is kept for the report if the layer does not attend.
LayerSees sees_of(const std::string& word) {
  const auto has = [&](const char* part) { return word.find(part) != word.npos; };
  if (has("sliding") || has("local") || has("chunked") || has("swa")) return LayerSees::window;
  if (has("linear") || has("mamba") || has("recurrent")) return LayerSees::nothing;
  const bool attends = has("attention") || has("full") || has("global") || has("hybrid");
  return attends || word == "*" ? LayerSees::all : LayerSees::nothing;
}

/// Layers at these places see everything, the others nothing.
std::vector<LayerSees> only_at(const JsonObject& fields, const char* field, std::size_t n_layers) {
  std::vector<LayerSees> sees(n_layers, LayerSees::nothing);
  for (const json& place : fields.list(field)) {
    if (!place.is_number_unsigned() || place.get<std::size_t>() >= n_layers)
      fields.refuse(field, fmt::format("layers from 0 to {}", n_layers - 1));
    sees[place.get<std::size_t>()] = LayerSees::all;
  }
  return sees;
}

class LayersReader {
 public:
  LayersReader(const JsonObject& fields, Index n_layers)
      : fields_(fields), n_(static_cast<std::size_t>(n_layers)) {}

  std::vector<LayerSees> read() {
    for (const char* field : {"layer_types", "layers_block_type", "block_types", "layer_type"}) {
      if (fields_.find(field) != nullptr && fields_.find(field)->is_array()) return words(field);
    }
    if (const auto pattern = fields_.string_if("hybrid_override_pattern")) return signs(*pattern);
    if (fields_.find("hybrid_layer_pattern") != nullptr)
      return flags("hybrid_layer_pattern", LayerSees::all, LayerSees::window);
    if (fields_.find("attn_type_list") != nullptr)
      return flags("attn_type_list", LayerSees::nothing, LayerSees::all);
    for (const char* field : {"attn_layer_indices", "full_attn_idxs", "attention_layers_idx"}) {
      if (fields_.find(field) != nullptr) return only_at(fields_, field, n_);
    }
    if (const Index every = count_or(fields_, {"full_attention_interval"}, 0); every > 0)
      return every_so_many(every, every - 1, LayerSees::nothing);
    if (const Index every = count_or(fields_, {"attn_layer_period"}, 0); every > 0)
      return every_so_many(every, count_or(fields_, {"attn_layer_offset"}, 0), LayerSees::nothing);
    return by_window();
  }

  /// Kinds of layers that do not attend.
  const std::set<std::string>& others() const { return others_; }

 private:
  LayerSees noted(const std::string& word) {
    const LayerSees sees = sees_of(word);
    if (sees == LayerSees::nothing) others_.insert(word);
    return sees;
  }

  std::vector<LayerSees> words(const char* field) {
    std::vector<LayerSees> sees;
    for (const json& word : fields_.list(field)) {
      if (!word.is_string()) fields_.refuse(field, "a list of words");
      sees.push_back(noted(word.get<std::string>()));
    }
    const bool repeats = std::string_view(field) == "block_types" && !sees.empty();
    for (std::size_t i = 0; repeats && sees.size() < n_; ++i) sees.push_back(sees[i]);
    return all_of(field, std::move(sees));
  }

  /// Nemotron-H: M a state space, * attention, - an MLP alone.
  std::vector<LayerSees> signs(const std::string& pattern) {
    std::vector<LayerSees> sees;
    for (const char sign : pattern) sees.push_back(noted(std::string(1, sign)));
    return all_of("hybrid_override_pattern", std::move(sees));
  }

  std::vector<LayerSees> flags(const char* field, LayerSees of_zero, LayerSees of_one) {
    std::vector<LayerSees> sees;
    for (const json& flag : fields_.list(field)) {
      if (flag != 0 && flag != 1) fields_.refuse(field, "a list of zeros and ones");
      sees.push_back(flag == 0 ? of_zero : of_one);
    }
    return all_of(field, std::move(sees));
  }

  std::vector<LayerSees> every_so_many(Index every, Index offset, LayerSees others) const {
    std::vector<LayerSees> sees(n_, others);
    for (auto at = static_cast<std::size_t>(offset); at < n_; at += static_cast<std::size_t>(every))
      sees[at] = LayerSees::all;
    return sees;
  }

  std::vector<LayerSees> by_window() const {
    if (!has_window(fields_)) return std::vector<LayerSees>(n_, LayerSees::all);
    const Index every = count_or(fields_, {"sliding_window_pattern", "_sliding_window_pattern"}, 0);
    return every > 0 ? every_so_many(every, every - 1, LayerSees::window)
                     : std::vector<LayerSees>(n_, LayerSees::window);
  }

  std::vector<LayerSees> all_of(const char* field, std::vector<LayerSees> sees) const {
    if (sees.size() != n_)
      throw FormatError("{}: expected one entry for each of the {} layers, found {}",
                        fields_.name_of(field), n_, sees.size());
    return sees;
  }

 public:
  static bool has_window(const JsonObject& fields) {
    return fields.find("sliding_window") != nullptr &&
           fields.boolean_or("use_sliding_window", true);
  }

 private:
  const JsonObject& fields_;
  std::size_t n_;
  std::set<std::string> others_;
};

/// Query heads, KV heads, and channels: where keys and values differ, their mean, which has equal
/// bytes and operations.
struct HeadShape {
  Index n_q = 0, n_kv = 0, d_head = 0;
  bool operator==(const HeadShape&) const = default;
};

HeadShape heads_of(const JsonObject& fields, Index d_model) {
  HeadShape heads;
  heads.n_q = count(fields, {"num_attention_heads", "n_head", "num_heads"});
  heads.n_kv = count_or(fields, {"num_key_value_heads", "num_kv_heads", "n_head_kv"}, heads.n_q);
  const Index d_key =
      count_or(fields, {"head_dim", "attention_head_dim", "kv_channels"}, d_model / heads.n_q);
  heads.d_head = (d_key + count_or(fields, {"v_head_dim"}, d_key)) / 2;
  return heads;
}

/// MiMo's layers with a window have fields of their own.
HeadShape window_heads_of(const JsonObject& fields, const HeadShape& heads) {
  HeadShape own;
  own.n_q = count_or(fields, {"swa_num_attention_heads"}, heads.n_q);
  own.n_kv = count_or(fields, {"swa_num_key_value_heads"}, heads.n_kv);
  const Index d_key = count_or(fields, {"swa_head_dim"}, heads.d_head);
  own.d_head = (d_key + count_or(fields, {"swa_v_head_dim"}, d_key)) / 2;
  return own;
}

void check_heads(const JsonObject& fields, const HeadShape& heads) {
  if (heads.n_kv > 0 && heads.n_q % heads.n_kv == 0 && heads.d_head > 0 && heads.d_head % 2 == 0)
    return;
  throw ConfigError(
      "{}: expected query heads that are a multiple of the KV heads, and an even number of "
      "channels, found {} and {} heads of {}",
      fields.where(), heads.n_q, heads.n_kv, heads.d_head);
}

MoeConfig experts_of(const JsonObject& fields, Index d_ff) {
  MoeConfig moe;
  if (!fields.boolean_or("enable_moe_block", true)) return moe;
  moe.n_experts = count_or(fields, {"num_experts", "num_local_experts", "n_routed_experts"}, 0);
  if (moe.n_experts <= 1) return {};
  moe.n_picked = count_or(
      fields, {"num_experts_per_tok", "moe_topk", "num_experts_per_token", "top_k_experts"}, 1);
  moe.d_ff = count_or(fields, {"moe_intermediate_size", "expert_ffn_hidden_size"}, d_ff);
  // Every token goes to those that are shared; Gemma 4's experts stand beside the usual MLP.
  const Index beside = fields.find("enable_moe_block") != nullptr ? d_ff : 0;
  const Index of_width = count_or(fields, {"shared_expert_intermediate_size"}, beside) / moe.d_ff;
  const Index n_shared = count_or(fields, {"n_shared_experts", "num_shared_experts"}, of_width);
  moe.n_experts += n_shared;
  moe.n_picked = std::min(moe.n_picked + n_shared, moe.n_experts);
  return moe;
}

/// What the layers of a model see, and with which heads.
struct AttendingLayers {
  std::vector<LayerSees> sees;  // of all layers
  HeadShape of_full, of_window;
  std::optional<Index> window;
  Index first_shared = kMostLayers;  // from which on layers read the keys of earlier ones
  std::set<std::string> others;      // kinds of layers that do not attend
};

/// By the names of fields; `config` gets the widths.
AttendingLayers layers_of(const JsonObject& fields, ModelConfig& config) {
  config.n_layers =
      fields.integer(present_of(fields, {"num_hidden_layers", "n_layer", "num_layers", "n_layers"}),
                     1, kMostLayers);
  config.d_model = count(fields, {"hidden_size", "n_embd", "d_model"});
  config.d_ff = count_or(fields, {"intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"},
                         4 * config.d_model);
  config.n_vocab = count_or(fields, {"vocab_size"}, 1);
  config.max_positions = count_or(
      fields, {"max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"}, 0);
  config.tied_embeddings = fields.boolean_or("tie_word_embeddings", false);
  LayersReader reader(fields, config.n_layers);
  AttendingLayers layers{.sees = reader.read(), .of_full = heads_of(fields, config.d_model)};
  layers.of_window = window_heads_of(fields, layers.of_full);
  layers.others = reader.others();
  const std::string field =
      fields.find("sliding_window") == nullptr && fields.find("attention_chunk_size") != nullptr
          ? "attention_chunk_size"
          : "sliding_window";
  if (std::ranges::count(layers.sees, LayerSees::window) > 0)
    layers.window = fields.integer(field, 1, Index{1} << 40);
  layers.first_shared =
      std::max<Index>(0, config.n_layers - count_or(fields, {"num_kv_shared_layers"}, 0));
  return layers;
}

/// Of Gemma 4, by the reader of models that run, which knows its rules but not its experts.
AttendingLayers layers_of_reader(json root, const std::string& where, ModelConfig& config) {
  (root.contains("text_config") ? root["text_config"] : root)["enable_moe_block"] = false;
  config = parse_model_config(root.dump(), where);
  AttendingLayers layers;
  layers.of_full = layers.of_window = {config.n_q, config.n_kv, config.d_head};
  for (Index layer = 0; layer < config.n_layers; ++layer) {
    const LayerShape own = config.shape(layer);
    const auto window = config.window[static_cast<std::size_t>(layer)];
    layers.sees.push_back(window ? LayerSees::window : LayerSees::all);
    if (own.keys_of >= 0) layers.first_shared = std::min(layers.first_shared, layer);
    if (!window) continue;
    layers.window = window;
    layers.of_window = {config.n_q, own.n_kv, own.d_head};
  }
  return layers;
}

std::string heads_words(const HeadShape& heads) {
  return fmt::format("{} query and {} KV heads of {} channels", heads.n_q, heads.n_kv,
                     heads.d_head);
}

}  // namespace

AnyShape any_shape(std::string config_text, const std::string& where, const std::string& name,
                   double weight_bits) {
  const json root = parse_json(config_text, where);
  AnyShape shape{.text = std::move(config_text)};
  ModelConfig& config = shape.config;
  if (has_equal_layers(root)) {
    config = parse_model_config(shape.text, where);
    shape.model = cost_model(config, name, weight_bits);
    return shape;
  }
  const JsonObject fields(text_config(root), where);
  if (fields.find("kv_lora_rank") != nullptr) {
    throw ConfigError(
        "{}: keys are stored as one latent vector (MLA), whose cost does not follow from heads and "
        "widths: record the model (pip's kvscope_recorder) and ask kvscope cost TRACE",
        fields.name_of("kv_lora_rank"));
  }

  const std::string of_root = JsonObject(root, where).string_if("model_type").value_or("");
  const bool has_reader = fields.string_if("model_type").value_or(of_root).starts_with("gemma4");
  const AttendingLayers layers =
      has_reader ? layers_of_reader(root, where, config) : layers_of(fields, config);
  const auto n_of = [&](LayerSees what) {
    return static_cast<Index>(std::ranges::count(layers.sees, what));
  };
  for (const HeadShape& one : {layers.of_window, layers.of_full}) check_heads(fields, one);
  config.n_q = layers.of_full.n_q;
  config.n_kv = layers.of_full.n_kv;
  config.d_head = layers.of_full.d_head;
  config.moe = experts_of(fields, config.d_ff);
  config.has_experts.assign(layers.sees.size(), config.moe.n_experts > 0);
  const Index first_dense = count_or(fields, {"first_k_dense_replace"}, 0);
  for (std::size_t i = 0; i < layers.sees.size(); ++i) {
    if (static_cast<Index>(i) < first_dense) config.has_experts[i] = false;
  }

  // Weights are those of all layers, before the ones that do not attend are left out.
  CostModel& model = shape.model;
  model = cost_model(config, name, weight_bits);
  config.layer_shapes.clear();
  config.window.clear();
  for (std::size_t i = 0; i < layers.sees.size(); ++i) {
    const LayerSees sees = layers.sees[i];
    if (sees == LayerSees::nothing) continue;
    model.places.push_back(static_cast<Index>(i));
    config.window.push_back(sees == LayerSees::window ? layers.window : std::nullopt);
    const bool reads_others = static_cast<Index>(i) >= layers.first_shared;
    (sees == LayerSees::window ? model.n_window_shared : model.n_full_shared) += reads_others;
  }
  model.window = config.window;
  if (layers.of_window != layers.of_full) {
    const HeadShape& own = layers.of_window;
    model.window_shape = {{own.n_q, own.n_kv, own.d_head}};
  }
  std::vector<std::string> parts;
  if (const Index n = n_of(LayerSees::all); n > 0)
    parts.push_back(fmt::format("{} see all keys ({})", n, heads_words(layers.of_full)));
  if (const Index n = n_of(LayerSees::window); n > 0)
    parts.push_back(
        fmt::format("{} the last {} ({})", n, *layers.window, heads_words(layers.of_window)));
  if (const Index n = n_of(LayerSees::nothing); n > 0) {
    parts.push_back(fmt::format(
        "{} do not attend{}", n,
        layers.others.empty() ? "" : fmt::format(" ({})", fmt::join(layers.others, ", "))));
  }
  if (const Index n = model.n_full_shared + model.n_window_shared; n > 0)
    parts.push_back(fmt::format("{} read an earlier layer's keys", n));
  const bool has_exact_weights = has_reader && config.moe.n_experts == 0;
  model.layers = fmt::format("{}, {} layers: {}.{}", name, config.n_layers, fmt::join(parts, "; "),
                             has_exact_weights ? "" : " Weights are estimated from the widths.");
  config.n_layers = static_cast<Index>(config.window.size());
  if (config.n_layers == 0)
    throw ConfigError("{}: no layer attends: there is nothing to choose keys for", where);
  return shape;
}

}  // namespace kvscope
