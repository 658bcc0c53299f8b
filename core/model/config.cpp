// Absent fields get the defaults of the config classes in Hugging Face transformers, since
// config.json leaves out what its writer's version took for granted.
#include "core/model/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/mapped_file.hpp"

namespace kvscope {

namespace {

constexpr std::array<std::string_view, 4> kFamilyNames = {"llama", "mistral", "qwen2", "qwen3"};
constexpr std::array<std::string_view, 3> kRopeNames = {"default", "linear", "llama3"};

// Far above any model that exists; their products fit 64 bits: n_layers * 4 * d_model * d_ff <
// 2^55.
constexpr Index kMaxLayers = 1 << 11;
constexpr Index kMaxHeads = 1 << 12;
constexpr Index kMaxHeadDim = 1 << 12;
constexpr Index kMaxWidth = 1 << 20;  // d_model, n_q * d_head
constexpr Index kMaxFfWidth = 1 << 22;
constexpr Index kMaxVocab = 1 << 24;
constexpr Index kMaxPositions = Index{1} << 30;
constexpr std::size_t kMaxConfigBytes = 16 << 20;

// What a family's config class assumes for fields that config.json leaves out.
struct FamilyDefaults {
  std::optional<Index> n_kv;    // empty: as many as query heads
  std::optional<Index> d_head;  // empty: d_model / n_q
  std::optional<Index> window;  // sliding_window
  Index max_positions;
  std::optional<std::int32_t> bos_id;
  std::optional<std::int32_t> eos_id;
};

FamilyDefaults defaults_of(ModelFamily family) {
  switch (family) {
    case ModelFamily::llama:
      return {std::nullopt, std::nullopt, std::nullopt, 2048, 1, 2};
    case ModelFamily::mistral:
      return {8, std::nullopt, 4096, 131072, 1, 2};
    case ModelFamily::qwen2:
      return {32, std::nullopt, 4096, 32768, std::nullopt, std::nullopt};
    case ModelFamily::qwen3:
      break;
  }
  return {32, 128, 4096, 32768, std::nullopt, std::nullopt};
}

ModelFamily read_family(const JsonObject& json) {
  const std::string& type = json.string("model_type");
  const auto it = std::find(kFamilyNames.begin(), kFamilyNames.end(), type);
  if (it == kFamilyNames.end()) {
    throw ConfigError(fmt::format("{}: expected one of {}, found {}", json.name_of("model_type"),
                                  fmt::join(kFamilyNames, ", "), quote(type)));
  }
  return static_cast<ModelFamily>(it - kFamilyNames.begin());
}

// A positive count. What is no count at all is broken; what is beyond `most` is not computed.
Index read_count(const JsonObject& json, const std::string& field, Index most) {
  const Index n = json.integer(field, 1, std::numeric_limits<Index>::max());
  if (n > most) {
    throw ConfigError(
        fmt::format("{}: expected at most {}, found {}", json.name_of(field), most, n));
  }
  return n;
}

// Absent: `absent`. JSON null: `null_value`. These differ in the config classes.
Index read_count_or(const JsonObject& json, const std::string& field, Index most, Index absent,
                    Index null_value) {
  if (!json.has(field)) return absent;
  return json.find(field) == nullptr ? null_value : read_count(json, field, most);
}

void read_sizes(const JsonObject& json, const FamilyDefaults& defaults, ModelConfig& config) {
  config.n_layers = read_count(json, "num_hidden_layers", kMaxLayers);
  config.n_q = read_count(json, "num_attention_heads", kMaxHeads);
  config.d_model = read_count(json, "hidden_size", kMaxWidth);
  config.d_ff = read_count(json, "intermediate_size", kMaxFfWidth);
  config.n_vocab = read_count(json, "vocab_size", kMaxVocab);
  config.max_positions = read_count_or(json, "max_position_embeddings", kMaxPositions,
                                       defaults.max_positions, defaults.max_positions);
  config.n_kv = read_count_or(json, "num_key_value_heads", kMaxHeads,
                              defaults.n_kv.value_or(config.n_q), config.n_q);
  if (config.n_q % config.n_kv != 0) {
    throw ConfigError(fmt::format("{}: expected a divisor of num_attention_heads = {}, found {}",
                                  json.name_of("num_key_value_heads"), config.n_q, config.n_kv));
  }

  const bool has_head_dim = json.find("head_dim") != nullptr;
  if (!has_head_dim && (json.has("head_dim") || !defaults.d_head)) {
    if (config.d_model % config.n_q != 0) {
      throw ConfigError(fmt::format(
          "{}: expected a multiple of num_attention_heads = {} (there is no head_dim), found {}",
          json.name_of("hidden_size"), config.n_q, config.d_model));
    }
    config.d_head = config.d_model / config.n_q;
  } else {
    config.d_head = has_head_dim ? read_count(json, "head_dim", kMaxHeadDim) : *defaults.d_head;
  }
  if (config.d_head % 2 != 0) {
    throw ConfigError(
        fmt::format("{}: expected an even number (rotary embedding turns pairs), found {}",
                    json.name_of("head_dim"), config.d_head));
  }
  if (config.d_head > kMaxHeadDim || config.n_q * config.d_head > kMaxWidth) {
    throw ConfigError(
        fmt::format("{}: expected at most {} per head and {} over all heads, found {} heads of {}",
                    json.name_of("head_dim"), kMaxHeadDim, kMaxWidth, config.n_q, config.d_head));
  }
}

// `rope_type` is the present name, `type` the one of transformers before 4.43.
RopeConfig::Kind read_rope_kind(const JsonObject& rope) {
  const std::string field = rope.find("rope_type") != nullptr ? "rope_type" : "type";
  if (rope.find(field) == nullptr) return RopeConfig::Kind::plain;
  const std::string& name = rope.string(field);
  const auto it = std::find(kRopeNames.begin(), kRopeNames.end(), name);
  if (it == kRopeNames.end()) {
    throw ConfigError(fmt::format("{}: expected one of {}, found {}", rope.name_of(field),
                                  fmt::join(kRopeNames, ", "), quote(name)));
  }
  return static_cast<RopeConfig::Kind>(it - kRopeNames.begin());
}

void refuse_partial_rotary(const JsonObject& json) {
  if (json.number_or("partial_rotary_factor", 0.0, 1.0, 1.0) != 1.0) {
    throw ConfigError(fmt::format("{}: expected 1 (rotary embedding of whole heads), found {}",
                                  json.name_of("partial_rotary_factor"),
                                  describe(*json.find("partial_rotary_factor"))));
  }
}

RopeConfig read_rope(const JsonObject& json, Index max_positions) {
  constexpr double kLeastTheta = 1e-3;
  constexpr double kMost = 1e15;
  RopeConfig rope;
  refuse_partial_rotary(json);
  rope.theta = json.number_or("rope_theta", kLeastTheta, kMost, 10000.0);
  const std::string group =
      json.find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  if (json.find(group) == nullptr) return rope;

  const JsonObject fields = json.object(group);
  for (const auto& [name, value] : fields.value().items()) {
    if (value.is_object()) {
      throw ConfigError(
          fmt::format("{}: expected one setting for all layers, found one of its own for {}",
                      json.name_of(group), quote(name)));
    }
  }
  refuse_partial_rotary(fields);
  rope.theta = fields.number_or("rope_theta", kLeastTheta, kMost, rope.theta);
  rope.kind = read_rope_kind(fields);
  if (rope.kind == RopeConfig::Kind::plain) return rope;
  rope.factor = fields.number("factor", 1.0, 1e9);
  if (rope.kind == RopeConfig::Kind::linear) return rope;
  rope.low_freq_factor = fields.number("low_freq_factor", 1e-9, 1e9);
  rope.high_freq_factor = fields.number("high_freq_factor", 1e-9, 1e9);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    throw ConfigError(fmt::format("{}: expected more than low_freq_factor = {}, found {}",
                                  fields.name_of("high_freq_factor"), rope.low_freq_factor,
                                  rope.high_freq_factor));
  }
  rope.original_max_positions = read_count_or(fields, "original_max_position_embeddings",
                                              kMaxPositions, max_positions, max_positions);
  return rope;
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
      throw ConfigError(fmt::format("{}: expected full_attention or sliding_attention, found {}",
                                    json.name_of("layer_types"), describe(type)));
    }
    slides.push_back(!is_full);
  }
  return slides;
}

// A query at position i sees the keys j <= i with i - j < window.
std::optional<Index> read_window(const JsonObject& json, const FamilyDefaults& defaults) {
  if (!json.has("sliding_window")) return defaults.window;
  if (json.find("sliding_window") == nullptr) return std::nullopt;
  return json.integer("sliding_window", 1, kMaxPositions);
}

void read_windows(const JsonObject& json, const FamilyDefaults& defaults, ModelConfig& config) {
  config.window.assign(static_cast<std::size_t>(config.n_layers), std::nullopt);
  const std::vector<bool> slides = read_layer_types(json, config.n_layers);
  const bool any_slides = std::find(slides.begin(), slides.end(), true) != slides.end();
  const auto contradict = [&](std::string_view why) {
    throw ConfigError(
        fmt::format("{}: expected full_attention in all layers ({}), found sliding_attention",
                    json.name_of("layer_types"), why));
  };

  if (config.family == ModelFamily::llama) {
    if (any_slides) contradict("llama models have no sliding window");
    return;
  }
  if (config.family == ModelFamily::mistral) {
    const std::optional<Index> window = read_window(json, defaults);
    if (any_slides && !window) contradict("sliding_window is null");
    // Transformers' Mistral slides in every layer, whatever layer_types says; a list that says
    // otherwise belongs to another model class, so neither reading can be trusted.
    const bool all_slide = std::find(slides.begin(), slides.end(), false) == slides.end();
    if (window && !all_slide) {
      throw ConfigError(
          fmt::format("{}: expected sliding_attention in all layers of a mistral model with a "
                      "sliding_window, found full_attention",
                      json.name_of("layer_types")));
    }
    std::fill(config.window.begin(), config.window.end(), window);
    return;
  }
  const bool use_window = json.boolean_or("use_sliding_window", false);
  const std::optional<Index> window = use_window ? read_window(json, defaults) : std::nullopt;
  if (!window) {
    if (any_slides)
      contradict(use_window ? "sliding_window is null" : "use_sliding_window is false");
    return;
  }
  const Index first =
      json.integer_or("max_window_layers", 0, std::numeric_limits<Index>::max(), 28);
  for (Index layer = 0; layer < config.n_layers; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    if (slides.empty() ? layer >= first : slides[i]) config.window[i] = window;
  }
}

void read_biases(const JsonObject& json, ModelConfig& config) {
  switch (config.family) {
    case ModelFamily::llama:
      config.qkv_bias = config.o_bias = json.boolean_or("attention_bias", false);
      config.mlp_bias = json.boolean_or("mlp_bias", false);
      break;
    case ModelFamily::mistral:
      break;
    case ModelFamily::qwen2:
      config.qkv_bias = true;
      break;
    case ModelFamily::qwen3:
      config.qkv_bias = config.o_bias = json.boolean_or("attention_bias", false);
      config.qk_norm = true;
      break;
  }
}

std::int32_t token_id(const JsonObject& json, const std::string& field,
                      const nlohmann::json& value) {
  constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{kMost}) {
    throw FormatError(fmt::format("{}: expected a token id from 0 to {}, found {}",
                                  json.name_of(field), kMost, describe(value)));
  }
  return value.get<std::int32_t>();
}

void read_special_tokens(const JsonObject& json, const FamilyDefaults& defaults,
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

void refuse_what_is_not_computed(const JsonObject& json) {
  const std::string act = json.string_if("hidden_act").value_or("silu");
  if (act != "silu") {
    throw ConfigError(fmt::format("{}: expected \"silu\" (SwiGLU), found {}",
                                  json.name_of("hidden_act"), quote(act)));
  }
  if (json.find("quantization_config") != nullptr) {
    throw ConfigError(
        fmt::format("{}: expected weights in F32, F16 or BF16, found a quantised checkpoint",
                    json.name_of("quantization_config")));
  }
}

}  // namespace

std::string_view name_of(ModelFamily family) {
  return kFamilyNames[static_cast<std::size_t>(family)];
}

std::string_view name_of(RopeConfig::Kind kind) {
  return kRopeNames[static_cast<std::size_t>(kind)];
}

float ModelConfig::score_scale() const {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(d_head)));
}

std::int64_t ModelConfig::n_parameters() const {
  const Index q_width = n_q * d_head;
  const Index kv_width = n_kv * d_head;
  Index attention = d_model * (q_width + 2 * kv_width) + q_width * d_model;
  if (qkv_bias) attention += q_width + 2 * kv_width;
  if (o_bias) attention += d_model;
  if (qk_norm) attention += 2 * d_head;
  Index mlp = 3 * d_model * d_ff;
  if (mlp_bias) mlp += 2 * d_ff + d_model;
  const Index norms = 2 * d_model;
  const Index embeddings = (tied_embeddings ? 1 : 2) * n_vocab * d_model;
  return embeddings + n_layers * (attention + mlp + norms) + d_model;
}

ModelConfig parse_model_config(std::string_view json_text, const std::string& where) {
  const nlohmann::json root = parse_json(json_text, where);
  const JsonObject json(root, where);
  ModelConfig config;
  config.family = read_family(json);
  const FamilyDefaults defaults = defaults_of(config.family);
  refuse_what_is_not_computed(json);
  read_sizes(json, defaults, config);
  config.rms_eps = json.number_or("rms_norm_eps", 0.0, 1.0, 1e-6);
  config.rope = read_rope(json, config.max_positions);
  config.tied_embeddings = json.boolean_or("tie_word_embeddings", false);
  read_biases(json, config);
  read_windows(json, defaults, config);
  read_special_tokens(json, defaults, config);
  return config;
}

ModelConfig load_model_config(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "config.json";
  const MappedFile file(path);
  if (file.size() > kMaxConfigBytes) {
    throw FormatError(fmt::format("{}: expected a config of at most {} bytes, found {}",
                                  path.string(), kMaxConfigBytes, file.size()));
  }
  return parse_model_config(file.text(), path.string());
}

}  // namespace kvscope
