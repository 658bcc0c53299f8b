#include "core/model/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/mapped_file.hpp"
#include "core/model/config_fields.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/model/gguf/gguf_weights.hpp"

namespace kvscope {

Index read_count(const JsonObject& json, const std::string& field, Index most) {
  const Index n = json.integer(field, 1, std::numeric_limits<Index>::max());
  if (n > most)
    throw ConfigError("{}: expected at most {}, found {}", json.name_of(field), most, n);
  return n;
}

Index read_count_or(const JsonObject& json, const std::string& field, Index most, Index absent,
                    Index null_value) {
  if (!json.has(field)) return absent;
  return json.find(field) == nullptr ? null_value : read_count(json, field, most);
}

namespace {

constexpr std::size_t kMaxConfigBytes = 16 << 20;

void read_sizes(const JsonObject& json, const FamilyTraits& defaults, ModelConfig& config) {
  config.n_layers = read_count(json, "num_hidden_layers", kMaxLayers);
  config.n_q = read_count(json, "num_attention_heads", kMaxHeads);
  config.d_model = read_count(json, "hidden_size", kMaxWidth);
  config.d_ff = read_count(json, "intermediate_size", kMaxFfWidth);
  config.n_vocab = read_count(json, "vocab_size", kMaxVocab);
  config.max_positions = read_count_or(json, "max_position_embeddings", kMaxPositions,
                                       defaults.max_positions, defaults.max_positions);
  config.n_kv = read_count_or(json, "num_key_value_heads", kMaxHeads,
                              defaults.n_kv.value_or(config.n_q), config.n_q);
  if (defaults.plan.fused_by_head && config.n_kv != config.n_q) {
    throw ConfigError(
        "{}: expected num_attention_heads = {} (a {} model stores q, k and v of each head "
        "together), found {}",
        json.name_of("num_key_value_heads"), config.n_q, enum_name(defaults.family), config.n_kv);
  }
  if (config.n_q % config.n_kv != 0) {
    throw ConfigError("{}: expected a divisor of num_attention_heads = {}, found {}",
                      json.name_of("num_key_value_heads"), config.n_q, config.n_kv);
  }

  const bool has_head_dim = json.find("head_dim") != nullptr;
  if (!has_head_dim && (json.has("head_dim") || !defaults.d_head)) {
    if (config.d_model % config.n_q != 0) {
      throw ConfigError(
          "{}: expected a multiple of num_attention_heads = {} (there is no head_dim), found {}",
          json.name_of("hidden_size"), config.n_q, config.d_model);
    }
    config.d_head = config.d_model / config.n_q;
  } else {
    config.d_head = has_head_dim ? read_count(json, "head_dim", kMaxHeadDim) : *defaults.d_head;
  }
  if (config.d_head % 2 != 0) {
    throw ConfigError("{}: expected an even number (rotary embedding turns pairs), found {}",
                      json.name_of("head_dim"), config.d_head);
  }
  if (config.d_head > kMaxHeadDim || config.n_q * config.d_head > kMaxWidth) {
    throw ConfigError(
        "{}: expected at most {} per head and {} over all heads, found {} heads of {}",
        json.name_of("head_dim"), kMaxHeadDim, kMaxWidth, config.n_q, config.d_head);
  }
}

// The `layer_types` list as "slides or not" per layer; empty if config.json has none.
std::vector<bool> read_layer_types(const JsonObject& json, Index n_layers) {
  std::vector<bool> slides;
  if (json.find("layer_types") == nullptr) return slides;
  const auto& list = json.list("layer_types");
  if (static_cast<Index>(list.size()) != n_layers) {
    json.refuse("layer_types", fmt::format("a list of num_hidden_layers = {}", n_layers));
  }
  for (const auto& type : list) {
    const bool is_full = type == "full_attention";
    if (!is_full && type != "sliding_attention") {
      throw ConfigError("{}: expected full_attention or sliding_attention, found {}",
                        json.name_of("layer_types"), describe(type));
    }
    slides.push_back(!is_full);
  }
  return slides;
}

// A query at position i sees the keys j <= i with i - j < window.
std::optional<Index> read_window(const JsonObject& json, const FamilyTraits& defaults) {
  if (!json.has("sliding_window")) return defaults.window;
  if (json.find("sliding_window") == nullptr) return std::nullopt;
  return json.integer("sliding_window", 1, kMaxPositions);
}

// Throws for a layer_types that asks for sliding layers which `why` says there cannot be.
[[noreturn]] void refuse_sliding(const JsonObject& json, std::string_view why) {
  throw ConfigError("{}: expected full_attention in all layers ({}), found sliding_attention",
                    json.name_of("layer_types"), why);
}

// Some families slide in every layer, whatever layer_types says; a list that says otherwise belongs
// to another model class, so neither reading can be trusted.
void slide_everywhere(const JsonObject& json, const std::vector<bool>& slides,
                      std::optional<Index> window, ModelConfig& config) {
  const bool all_slide = std::find(slides.begin(), slides.end(), false) == slides.end();
  if (window && !all_slide) {
    throw ConfigError(
        "{}: expected sliding_attention in all layers of a {} model with a "
        "sliding_window, found full_attention",
        json.name_of("layer_types"), enum_name(config.family));
  }
  std::fill(config.window.begin(), config.window.end(), window);
}

// Which layers slide if config.json has no layer_types.
bool slides_by_default(const JsonObject& json, const FamilyTraits& traits,
                       const ModelConfig& config, Index layer) {
  constexpr auto kMost = std::numeric_limits<Index>::max();
  switch (traits.sliding) {
    case FamilyTraits::Sliding::layers_without_rope:
      return !config.has_rope[static_cast<std::size_t>(layer)];
    case FamilyTraits::Sliding::late_layers:
      return layer >= json.integer_or("max_window_layers", 0, kMost, 28);
    case FamilyTraits::Sliding::all_but_every_and_last:
      return (layer + 1) % traits.sliding_period != 0 && layer + 1 < config.n_layers;
    case FamilyTraits::Sliding::all_but_every: {
      Index period = traits.sliding_period;
      if (!traits.sliding_period_field.empty()) {
        period = json.integer_or(std::string(traits.sliding_period_field), 1, kMost, period);
      }
      return (layer + 1) % period != 0;
    }
    default:
      return traits.sliding == FamilyTraits::Sliding::everywhere;
  }
}

// Needs has_rope.
void read_windows(const JsonObject& json, const FamilyTraits& traits, ModelConfig& config) {
  config.window.assign(static_cast<std::size_t>(config.n_layers), std::nullopt);
  std::vector<bool> slides = read_layer_types(json, config.n_layers);
  const bool any_slides = std::find(slides.begin(), slides.end(), true) != slides.end();

  if (traits.sliding == FamilyTraits::Sliding::never) {
    if (any_slides) {
      refuse_sliding(json,
                     fmt::format("{} models have no sliding window", enum_name(traits.family)));
    }
    return;
  }
  const bool use_window = !traits.window_needs_flag || json.boolean_or("use_sliding_window", false);
  const std::optional<Index> window = use_window ? read_window(json, traits) : std::nullopt;
  // Without the flag, or beside layer_types, these say nothing.
  for (const auto field : {std::string_view("sliding_window"),
                           std::string_view("max_window_layers"), traits.sliding_period_field}) {
    json.has(std::string(field));
  }
  if (!window && any_slides) {
    refuse_sliding(json, use_window ? "sliding_window is null" : "use_sliding_window is false");
  }
  if (traits.sliding == FamilyTraits::Sliding::everywhere) {
    slide_everywhere(json, slides, window, config);
    return;
  }
  if (!window) return;
  if (traits.sliding == FamilyTraits::Sliding::all_but_every_and_last && !slides.empty())
    slides.back() = false;
  for (Index layer = 0; layer < config.n_layers; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    if (slides.empty() ? slides_by_default(json, traits, config, layer) : slides[i]) {
      config.window[i] = window;
    }
  }
}

void read_biases(const JsonObject& json, const FamilyTraits& traits, ModelConfig& config) {
  switch (traits.attention_bias) {
    case FamilyTraits::Bias::none:
      break;
    case FamilyTraits::Bias::qkv:
      config.qkv_bias = true;
      break;
    case FamilyTraits::Bias::if_said:
      config.qkv_bias = config.o_bias = json.boolean_or("attention_bias", false);
      break;
    case FamilyTraits::Bias::unless_said:
      config.qkv_bias = config.o_bias = json.boolean_or("attention_bias", true);
      break;
  }
  config.mlp_bias = traits.has_mlp_bias;
  if (traits.reads_mlp_bias) config.mlp_bias = json.boolean_or("mlp_bias", false);
  config.qk_norm = traits.qk_norm;
  config.has_sink_logits = traits.has_sink_logits;
}

// A soft cap; null = none.
double read_cap(const JsonObject& json, const std::string& field, std::optional<double> absent) {
  if (!absent) return 0.0;
  return json.number_or(field, 0.0, 1e9, json.has(field) ? 0.0 : *absent);
}

// What layers are made of, and the scales around them. Needs d_model.
void read_plan(const JsonObject& json, const FamilyTraits& traits, ModelConfig& config) {
  config.plan = traits.plan;
  if (traits.reads_parallel_residual) {
    config.plan.is_parallel = json.boolean_or("use_parallel_residual", true);
  }
  if (traits.scales_embeddings) {
    config.plan.embedding_scale = std::sqrt(static_cast<double>(config.d_model));
  }
  if (traits.query_scale) {
    config.query_scale = json.number_or("query_pre_attn_scalar", 1e-6, 1e9, *traits.query_scale);
  }
  config.plan.logit_softcap = read_cap(json, "final_logit_softcapping", traits.logit_softcap);
  config.plan.score_softcap = read_cap(json, "attn_logit_softcapping", traits.score_softcap);
  const auto* both_ways = json.find("use_bidirectional_attention");  // "vision": of pictures alone
  if (both_ways != nullptr && *both_ways != false && *both_ways != "vision") {
    throw ConfigError("{}: expected false (only causal attention is computed)",
                      json.name_of("use_bidirectional_attention"));
  }
  if (!json.boolean_or("is_causal", true)) {
    throw ConfigError("{}: expected true (only causal attention is computed)",
                      json.name_of("is_causal"));
  }
}

std::int32_t token_id(const JsonObject& json, const std::string& field,
                      const nlohmann::json& value) {
  constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{kMost}) {
    throw FormatError("{}: expected a token id from 0 to {}, found {}", json.name_of(field), kMost,
                      describe(value));
  }
  return value.get<std::int32_t>();
}

void read_special_tokens(const JsonObject& json, const FamilyTraits& defaults,
                         ModelConfig& config) {
  config.bos_id = json.has("bos_token_id") ? std::nullopt : defaults.bos_id;
  if (const auto* bos = json.find("bos_token_id")) {
    config.bos_id = token_id(json, "bos_token_id", *bos);
  }
  if (!json.has("eos_token_id")) {
    if (defaults.eos_id) config.eos_ids.push_back(*defaults.eos_id);
    return;
  }
  const auto* eos = json.find("eos_token_id");
  if (eos == nullptr) return;
  if (!eos->is_array()) {
    config.eos_ids.push_back(token_id(json, "eos_token_id", *eos));
    return;
  }
  for (const auto& id : *eos) config.eos_ids.push_back(token_id(json, "eos_token_id", id));
}

void refuse_other_activations(const JsonObject& json, const FamilyTraits& traits) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kNames = {
      {{"silu", "SwiGLU"}, {"gelu_pytorch_tanh", "GeGLU"}, {"gelu", "GELU"}}};
  const auto [expected, kind] = kNames[static_cast<std::size_t>(traits.plan.activation)];
  const std::string field(traits.activation_field);
  json.has("hidden_act");  // which says nothing where another field counts
  const std::string act = json.string_if(field).value_or(std::string(expected));
  if (act != expected) {
    throw ConfigError("{}: expected \"{}\" ({}), found {}", json.name_of(field), expected, kind,
                      quote(act));
  }
}

}  // namespace

LayerShape ModelConfig::shape(Index layer) const {
  if (!layer_shapes.empty()) return layer_shapes[static_cast<std::size_t>(layer)];
  return {n_kv, d_head, score_scale(), static_cast<float>(plan.score_softcap)};
}

Index ModelConfig::kv_width() const {
  Index width = 0;
  for (Index layer = 0; layer < n_layers; ++layer) {
    const LayerShape heads = shape(layer);
    if (heads.keys_of < 0) width += 2 * heads.n_kv * heads.d_head;
  }
  return width;
}

Index ModelConfig::ff_width(Index layer) const {
  return plan.wide_mlp_where_shared && shape(layer).keys_of >= 0 ? 2 * d_ff : d_ff;
}

float ModelConfig::score_scale() const {
  return static_cast<float>(
      1.0 / std::sqrt(query_scale > 0.0 ? query_scale : static_cast<double>(d_head)));
}

namespace {

// Weights of all layers and embeddings, with n_experts of every mixture.
std::int64_t count_parameters(const ModelConfig& c, Index n_experts) {
  Index attention = 0;  // of all layers
  for (Index layer = 0; layer < c.n_layers; ++layer) {
    const LayerShape shape = c.shape(layer);
    const bool has_keys = shape.keys_of < 0;
    const Index n_stored = !has_keys ? 0 : c.has_keys_as_values(layer) ? 1 : 2;
    const Index q_width = c.n_q * shape.d_head;
    const Index kv_width = shape.n_kv * shape.d_head;
    attention += c.d_model * (2 * q_width + n_stored * kv_width);
    if (c.qkv_bias) attention += q_width + n_stored * kv_width;
    if (c.o_bias) attention += c.d_model;
    if (c.qk_norm && c.plan.norms_all_heads) attention += q_width + kv_width;
    if (c.qk_norm && !c.plan.norms_all_heads) attention += (has_keys ? 2 : 1) * shape.d_head;
    if (c.has_sink_logits) attention += c.n_q;
  }
  const Index norm = (c.plan.layer_norm ? 2 : 1) * c.d_model;
  const Index norms = (c.plan.norms == LayerPlan::Norms::both ? 4 : 2) * norm;

  const Index n_in = c.plan.is_gated ? 2 : 1;  // projections to d_ff
  Index dense = 0;                             // of all layers
  for (Index layer = 0; layer < c.n_layers; ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    if (at < c.has_experts.size() && c.has_experts[at]) continue;
    dense += (n_in + 1) * c.d_model * c.ff_width(layer);
    if (c.mlp_bias) dense += n_in * c.d_ff + c.d_model;
  }
  Index router = c.moe.n_experts * c.d_model;
  Index expert = 3 * c.d_model * c.moe.d_ff;
  if (c.moe.is_clamped) {
    router += c.moe.n_experts;
    expert += 2 * c.moe.d_ff + c.d_model;
  }
  const Index n_sparse = std::count(c.has_experts.begin(), c.has_experts.end(), true);
  const Index mlps = n_sparse * (router + n_experts * expert) + dense;
  Index embeddings = (c.tied_embeddings ? 1 : 2) * c.n_vocab * c.d_model;
  Index others = c.n_layers * (norms + (c.plan.scales_output ? 1 : 0));
  if (c.d_layer_input > 0) {
    embeddings += c.n_layer_vocab * c.n_layers * c.d_layer_input;
    others += c.n_layers * (3 * c.d_model * c.d_layer_input + norm) + c.d_layer_input;
  }
  return embeddings + attention + others + mlps + norm;
}

}  // namespace

std::int64_t ModelConfig::n_parameters() const {
  return count_parameters(*this, moe.n_experts);
}

std::int64_t ModelConfig::n_active_parameters() const {
  return count_parameters(*this, moe.n_picked);
}

namespace {

// Of a config.json's fields that nothing here reads, those that change no number of a model that
// runs; so do names of token ids and of the towers of pictures beside the text.
constexpr std::string_view kWithoutNumbers =
    " architectures auto_map dtype torch_dtype id2label label2id problem_type "
    "task_specific_params quantization quantization_config initializer_range pretraining_tp "
    "use_cache cache_implementation is_decoder is_encoder_decoder return_dict "
    "chunk_size_feed_forward attention_dropout classifier_dropout embd_pdrop resid_pdrop "
    "hidden_dropout expert_dropout spatial_merge_size initial_context_length experts_per_token "
    "router_aux_loss_coef output_attentions output_hidden_states router_jitter_noise "
    "input_jitter_noise output_router_logits tokenizer_class kvscope_draft unsloth_fixed ";

bool has_no_numbers(std::string_view name) {
  return name.starts_with("_") || name.starts_with("vision_") || name.starts_with("image_") ||
         name.starts_with("video_") || name.starts_with("quantization_config.") ||
         name.ends_with("_token_id") || name.ends_with("_version") ||
         kWithoutNumbers.find(fmt::format(" {} ", name)) != std::string_view::npos;
}

// Gemma 3 has settings for each type of layers: as in transformers, rope_scaling lies over those
// of full attention.
void lay_scaling_over(nlohmann::json& root) {
  if (!root.is_object() || root.value("model_type", nlohmann::json()) != "gemma3_text") return;
  const auto scaling = root.find("rope_scaling");
  const auto groups = root.find("rope_parameters");
  if (scaling == root.end() || !scaling->is_object() || groups == root.end()) return;
  if (!groups->is_object()) return;
  nlohmann::json& full = (*groups)["full_attention"];
  if (full.is_null()) full = nlohmann::json::object();
  if (!full.is_object()) return;
  full.update(*scaling);
  root.erase(scaling);
}

}  // namespace

ModelConfig parse_model_config(std::string_view json_text, const std::string& where) {
  nlohmann::json root = text_part(parse_json(json_text, where));
  lay_scaling_over(root);
  FieldsRead read;
  const JsonObject json(root, where, "", &read);
  ModelConfig config;
  const FamilyTraits& traits = read_family(json);
  config.family = traits.family;
  refuse_other_activations(json, traits);
  config.quantization = read_quantization(json, traits.family);
  read_sizes(json, traits, config);
  read_rope_layers(json, traits, config);
  read_windows(json, traits, config);
  read_plan(json, traits, config);
  if (traits.reads_layer_shapes) read_layer_shapes(json, config);
  config.rms_eps = json.number_or(std::string(traits.norm_eps_field), 0.0, 1.0, traits.rms_eps);
  read_rope(json, traits, config);
  config.tied_embeddings = json.boolean_or("tie_word_embeddings", traits.tied_embeddings);
  read_biases(json, traits, config);
  read_moe(json, traits, config);
  read_special_tokens(json, traits, config);
  for (std::string& name : json.unread()) {
    if (!has_no_numbers(name)) config.unread.push_back(std::move(name));
  }
  return config;
}

std::string model_config_text(const std::filesystem::path& model) {
  if (const auto gguf = gguf_file_of(model))
    return hub_config(GgufCheckpoint(*gguf, GgufTables::skipped));
  const std::filesystem::path path = model / "config.json";
  const MappedFile file(path);
  if (file.size() > kMaxConfigBytes) {
    throw FormatError("{}: expected a config of at most {} bytes, found {}", path.string(),
                      kMaxConfigBytes, file.size());
  }
  return std::string(file.text());
}

ModelConfig load_model_config(const std::filesystem::path& model) {
  const auto gguf = gguf_file_of(model);
  ModelConfig config =
      parse_model_config(model_config_text(model), (gguf ? *gguf : model / "config.json").string());
  std::error_code ignored;
  // transformers applies it where peft is installed
  if (!gguf && std::filesystem::exists(model / "adapter_config.json", ignored))
    config.unread.emplace_back("adapter_config.json");
  return config;
}

}  // namespace kvscope
