// Rotary position embedding in config.json.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/model/config_fields.hpp"

namespace kvscope {

namespace {

constexpr std::array<std::string_view, 4> kRopeNames = {"default", "linear", "llama3", "yarn"};

// `rope_type` is the present name, `type` the one of transformers before 4.43.
RopeConfig::Kind read_rope_kind(const JsonObject& rope) {
  const std::string field = rope.find("rope_type") != nullptr ? "rope_type" : "type";
  if (rope.find(field) == nullptr) return RopeConfig::Kind::plain;
  const std::string& name = rope.string(field);
  const auto it = std::find(kRopeNames.begin(), kRopeNames.end(), name);
  if (it == kRopeNames.end()) {
    throw ConfigError("{}: expected one of {}, found {}", rope.name_of(field),
                      fmt::join(kRopeNames, ", "), quote(name));
  }
  return static_cast<RopeConfig::Kind>(it - kRopeNames.begin());
}

void refuse_partial_rotary(const JsonObject& json) {
  if (json.number_or("partial_rotary_factor", 0.0, 1.0, 1.0) != 1.0) {
    throw ConfigError("{}: expected 1 (rotary embedding of whole heads), found {}",
                      json.name_of("partial_rotary_factor"),
                      describe(*json.find("partial_rotary_factor")));
  }
}

void read_llama3(const JsonObject& fields, RopeConfig& rope) {
  rope.low_freq_factor = fields.number("low_freq_factor", 1e-9, 1e9);
  rope.high_freq_factor = fields.number("high_freq_factor", 1e-9, 1e9);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    throw ConfigError("{}: expected more than low_freq_factor = {}, found {}",
                      fields.name_of("high_freq_factor"), rope.low_freq_factor,
                      rope.high_freq_factor);
  }
}

// The paper's 0.1 ln(factor) + 1 (arXiv 2309.00071, section 3.4), times m in front of the
// logarithm.
double yarn_mscale(double factor, double m) {
  return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

double positive_or(const JsonObject& fields, const std::string& name, double otherwise) {
  const double value = fields.number_or(name, 0.0, 1e9, otherwise);
  return value == 0.0 ? otherwise : value;  // as transformers: 0 counts as not given
}

void read_yarn(const JsonObject& fields, RopeConfig& rope) {
  rope.beta_fast = positive_or(fields, "beta_fast", 32.0);
  rope.beta_slow = positive_or(fields, "beta_slow", 1.0);
  if (rope.beta_fast < rope.beta_slow) {
    throw ConfigError("{}: expected at least beta_slow = {}, found {}", fields.name_of("beta_fast"),
                      rope.beta_slow, rope.beta_fast);
  }
  if (rope.theta <= 1.0) {
    throw ConfigError("{}: expected a rope_theta above 1 for yarn, found {}",
                      fields.name_of("rope_theta"), rope.theta);
  }
  rope.truncate = fields.boolean_or("truncate", true);
  const double mscale = fields.number_or("mscale", 0.0, 1e9, 0.0);
  const double mscale_all = fields.number_or("mscale_all_dim", 0.0, 1e9, 0.0);
  rope.amplitude = mscale > 0.0 && mscale_all > 0.0
                       ? yarn_mscale(rope.factor, mscale) / yarn_mscale(rope.factor, mscale_all)
                       : yarn_mscale(rope.factor, 1.0);
  rope.amplitude = fields.number_or("attention_factor", 1e-6, 1e6, rope.amplitude);
}

}  // namespace

std::string_view name_of(RopeConfig::Kind kind) {
  return kRopeNames[static_cast<std::size_t>(kind)];
}

namespace {

constexpr double kLeastTheta = 1e-3;
constexpr double kMostTheta = 1e15;

// One group of settings (rope_scaling, rope_parameters or a part of the latter).
RopeConfig read_settings(const JsonObject& fields, double theta, Index max_positions) {
  RopeConfig rope;
  rope.theta = fields.number_or("rope_theta", kLeastTheta, kMostTheta, theta);
  rope.kind = read_rope_kind(fields);
  if (rope.kind == RopeConfig::Kind::plain) return rope;
  rope.factor = fields.number("factor", 1.0, 1e9);
  if (rope.kind == RopeConfig::Kind::linear) return rope;
  if (rope.kind == RopeConfig::Kind::llama3) read_llama3(fields, rope);
  if (rope.kind == RopeConfig::Kind::yarn) read_yarn(fields, rope);
  rope.original_max_positions = read_count_or(fields, "original_max_position_embeddings",
                                              kMaxPositions, max_positions, max_positions);
  return rope;
}

// The part of rope_parameters for one type of layers, for families whose layers differ.
std::optional<JsonObject> settings_of(const JsonObject& json, const std::string& layer_type) {
  if (json.find("rope_parameters") == nullptr) return std::nullopt;
  const JsonObject all = json.object("rope_parameters");
  for (const auto& [name, value] : all.value().items()) {
    if (name != "full_attention" && name != "sliding_attention") {
      throw ConfigError("{}: expected settings for full_attention and sliding_attention, found {}",
                        json.name_of("rope_parameters"), quote(name));
    }
  }
  if (all.find(layer_type) == nullptr) return std::nullopt;
  return all.object(layer_type);
}

}  // namespace

RopeConfig read_rope(const JsonObject& json, const FamilyTraits& traits, Index max_positions) {
  const double theta = json.number_or(std::string(traits.rope_theta_field), kLeastTheta, kMostTheta,
                                      traits.rope.theta);
  const bool has_parameters = json.find("rope_parameters") != nullptr;
  if (traits.local_rope_theta && has_parameters) {
    const auto fields = settings_of(json, "full_attention");
    if (fields) return read_settings(*fields, theta, max_positions);
  }
  const std::string group = has_parameters ? "rope_parameters" : "rope_scaling";
  if (json.find(group) == nullptr || (traits.local_rope_theta && has_parameters)) {
    RopeConfig rope = traits.rope;
    rope.theta = theta;
    return rope;
  }
  const JsonObject fields = json.object(group);
  for (const auto& [name, value] : fields.value().items()) {
    if (value.is_object()) {
      throw ConfigError("{}: expected one setting for all layers, found a separate one for {}",
                        json.name_of(group), quote(name));
    }
  }
  return read_settings(fields, theta, max_positions);
}

std::optional<RopeConfig> read_local_rope(const JsonObject& json, const FamilyTraits& traits,
                                          Index max_positions) {
  if (!traits.local_rope_theta) return std::nullopt;
  RopeConfig rope;
  rope.theta =
      json.number_or("rope_local_base_freq", kLeastTheta, kMostTheta, *traits.local_rope_theta);
  const auto fields = settings_of(json, "sliding_attention");
  return fields ? read_settings(*fields, rope.theta, max_positions) : rope;
}

Index read_rotary_dim(const JsonObject& json, const FamilyTraits& traits, Index d_head) {
  if (!traits.partial_rotary) {
    refuse_partial_rotary(json);
    for (const char* group : {"rope_parameters", "rope_scaling"}) {
      if (json.find(group) != nullptr) refuse_partial_rotary(json.object(group));
    }
    return d_head;
  }
  double factor =
      json.number_or(std::string(traits.rotary_factor_field), 0.0, 1.0, traits.rotary_factor);
  for (const char* group : {"rope_scaling", "rope_parameters"}) {
    if (json.find(group) == nullptr) continue;
    factor = json.object(group).number_or("partial_rotary_factor", 0.0, 1.0, factor);
  }
  const auto n = static_cast<Index>(static_cast<double>(d_head) * factor);
  if (n < 2 || n % 2 != 0) {
    throw ConfigError("{}: expected an even number of rotated channels, found {} of {}",
                      json.name_of("partial_rotary_factor"), n, d_head);
  }
  return n;
}

void read_rope_layers(const JsonObject& json, const FamilyTraits& traits, ModelConfig& config) {
  const auto n_layers = static_cast<std::size_t>(config.n_layers);
  config.has_rope.assign(n_layers, true);
  if (!traits.reads_layers_without_rope) return;
  if (json.find("no_rope_layers") == nullptr) {
    const Index interval = read_count_or(json, "no_rope_layer_interval", kMaxLayers, /*absent=*/4,
                                         /*null_value=*/4);
    for (std::size_t i = 0; i < n_layers; ++i) {
      config.has_rope[i] = (static_cast<Index>(i) + 1) % interval != 0;
    }
    return;
  }
  const auto& list = json.list("no_rope_layers");  // 1 = with RoPE, in spite of the name
  if (list.size() < n_layers) {
    json.refuse("no_rope_layers",
                fmt::format("a list of at least num_hidden_layers = {}", n_layers));
  }
  for (std::size_t i = 0; i < n_layers; ++i) {
    if (list[i] != 0 && list[i] != 1) {
      throw FormatError("{}: expected 0 (no RoPE) or 1, found {}", json.name_of("no_rope_layers"),
                        describe(list[i]));
    }
    config.has_rope[i] = list[i] == 1;
  }
}

}  // namespace kvscope
