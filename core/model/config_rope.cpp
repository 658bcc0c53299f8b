// Rotary position embedding in config.json.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "core/base/error.hpp"
#include "core/model/config_fields.hpp"

namespace kvscope {

namespace {

// YaRN (arXiv 2309.00071, section 3.2): pairs that turn more than beta_fast times within the
// original context keep their frequency, those that turn less than beta_slow times are divided by
// the factor, a ramp over the pairs between blends.
void stretch_by_yarn(const RopeSettings& rope, Index d_head, std::vector<float>& frequency) {
  const auto pair_that_turns = [&](double n_turns) {  // a real-valued pair index
    return static_cast<double>(d_head) *
           std::log(rope.original_positions / (n_turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = pair_that_turns(rope.beta_fast);
  double high = pair_that_turns(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(d_head - 1));
  if (low == high) high += 0.001;  // as the authors do: a step instead of a division by zero
  for (std::size_t i = 0; i < frequency.size(); ++i) {
    const float at =
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1.0f - std::clamp(at, 0.0f, 1.0f);
    const float stretched = static_cast<float>(static_cast<double>(frequency[i]) / rope.factor);
    frequency[i] = stretched * (1.0f - kept) + frequency[i] * kept;
  }
}

}  // namespace

double yarn_amplitude(double factor, double m) {
  return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

RopeConfig rope_from(const RopeSettings& rope, Index d_head) {
  RopeConfig numbers{{}, rope.amplitude, rope.kind, rope.theta, rope.factor};
  std::vector<float>& frequency = numbers.frequencies;
  frequency.resize(static_cast<std::size_t>(d_head / 2));
  for (std::size_t i = 0; i < frequency.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(d_head);
    const float power = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    frequency[i] = 1.0f / power;
    if (!rope.divisors.empty()) frequency[i] /= rope.divisors[i];
  }
  if (rope.kind == "proportional") {
    const auto n_turned =
        static_cast<std::size_t>(rope.proportion * static_cast<double>(d_head / 2));
    std::fill(frequency.begin() + static_cast<std::ptrdiff_t>(n_turned), frequency.end(), 0.0f);
  }
  if (rope.kind == "linear" || rope.kind == "proportional") {
    for (float& f : frequency) f /= static_cast<float>(rope.factor);
  }
  if (rope.kind == "llama3") {
    const double original = rope.original_positions;
    const double longest_kept = original / rope.high_freq_factor;  // wavelengths below stay
    // Wavelengths above are divided.
    const double shortest_scaled = original / rope.low_freq_factor;
    for (float& f : frequency) {
      const double wavelength = 2.0 * std::numbers::pi / static_cast<double>(f);
      if (wavelength < longest_kept) continue;
      const double scaled = static_cast<double>(f) / rope.factor;
      if (wavelength > shortest_scaled) {
        f = static_cast<float>(scaled);
        continue;
      }
      const double smooth = (original / wavelength - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
      f = static_cast<float>((1.0 - smooth) * scaled + smooth * static_cast<double>(f));
    }
  }
  if (rope.kind == "yarn") stretch_by_yarn(rope, d_head, frequency);
  return numbers;
}

namespace {

constexpr std::array<std::string_view, 5> kRopeNames = {"default", "linear", "llama3", "yarn",
                                                        "proportional"};
constexpr double kLeastTheta = 1e-3;
constexpr double kMostTheta = 1e15;

// `rope_type` is the present name, `type` the one of transformers before 4.43.
std::string read_rope_kind(const JsonObject& rope, const FamilyTraits& traits) {
  const bool is_new = rope.find("rope_type") != nullptr;
  const bool is_old = rope.find("type") != nullptr;
  if (!is_new && !is_old) return "default";
  const std::string field = is_new ? "rope_type" : "type";
  const std::string& name = rope.string(field);
  const std::size_t n_names = traits.family == ModelFamily::phi3 ? 1 : 4;
  const auto names = std::span(kRopeNames).first(traits.reads_layer_shapes ? 5 : n_names);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw ConfigError("{}: expected one of {} (in a {} model), found {}", rope.name_of(field),
                      fmt::join(names, ", "), enum_name(traits.family), quote(name));
  }
  return name;
}

void read_llama3(const JsonObject& fields, RopeSettings& rope) {
  rope.low_freq_factor = fields.number("low_freq_factor", 1e-9, 1e9);
  rope.high_freq_factor = fields.number("high_freq_factor", 1e-9, 1e9);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    throw ConfigError("{}: expected more than low_freq_factor = {}, found {}",
                      fields.name_of("high_freq_factor"), rope.low_freq_factor,
                      rope.high_freq_factor);
  }
}

double positive_or(const JsonObject& fields, const std::string& name, double otherwise) {
  const double value = fields.number_or(name, 0.0, 1e9, otherwise);
  return value == 0.0 ? otherwise : value;  // as transformers: 0 counts as not given
}

void read_yarn(const JsonObject& fields, bool is_of_some_layers, RopeSettings& rope) {
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
  // Null is false; in settings of some layers transformers does not look for it.
  if (!is_of_some_layers) rope.truncate = fields.boolean_or("truncate", !fields.has("truncate"));
  const double mscale = fields.number_or("mscale", 0.0, 1e9, 0.0);
  const double mscale_all = fields.number_or("mscale_all_dim", 0.0, 1e9, 0.0);
  rope.amplitude = mscale > 0.0 && mscale_all > 0.0 ? yarn_amplitude(rope.factor, mscale) /
                                                          yarn_amplitude(rope.factor, mscale_all)
                                                    : yarn_amplitude(rope.factor);
  rope.amplitude = fields.number_or("attention_factor", 1e-6, 1e6, rope.amplitude);
}

// What another reader has worked out (core/model/gguf/gguf_config.cpp): the numbers themselves.
RopeConfig read_numbers(const JsonObject& fields, double theta, Index rotary_dim) {
  RopeConfig rope;
  rope.kind = fields.string_if("rope_type").value_or("default");
  rope.theta = fields.number_or("rope_theta", kLeastTheta, kMostTheta, theta);
  rope.factor = fields.number_or("factor", 0.0, 1e9, 1.0);
  rope.amplitude = fields.number_or("amplitude", 1e-6, 1e6, 1.0);
  const auto& list = fields.list("frequencies");
  if (static_cast<Index>(list.size()) != rotary_dim / 2) {
    fields.refuse("frequencies", fmt::format("{} numbers, one per pair", rotary_dim / 2));
  }
  for (const auto& value : list) {
    const double frequency = value.is_number() ? value.get<double>() : -1.0;
    if (!(frequency >= 0.0 && frequency <= 1e9)) {
      fields.refuse("frequencies", "numbers from 0 to 1e9");
    }
    rope.frequencies.push_back(static_cast<float>(frequency));
  }
  return rope;
}

// Where the settings of a model stand.
struct RopeGroup {
  JsonObject fields;
  bool is_of_some_layers = false;  // one group per type of layers
};

RopeConfig read_settings(const JsonObject& json, const FamilyTraits& traits, const RopeGroup& group,
                         double theta, const ModelConfig& config, Index rotary_dim) {
  const JsonObject& fields = group.fields;
  if (fields.find("frequencies")) return read_numbers(fields, theta, rotary_dim);
  RopeSettings rope;
  rope.theta = fields.number_or("rope_theta", kLeastTheta, kMostTheta, theta);
  rope.kind = read_rope_kind(fields, traits);
  if (rope.kind == "llama3" || rope.kind == "yarn") {
    // The value beside the group wins over the one inside, as in transformers, which does not look
    // there where layers have groups of their own.
    const std::string field = "original_max_position_embeddings";
    const bool is_beside = !group.is_of_some_layers && json.find(field) != nullptr;
    rope.original_positions = (is_beside ? json : fields)
                                  .number_or(field, 1.0, static_cast<double>(kMaxPositions),
                                             static_cast<double>(config.max_positions));
    if (is_beside) fields.has(field);
  }
  if (rope.kind == "proportional") {
    rope.proportion = fields.number_or("partial_rotary_factor", 0.0, 1.0, 1.0);
    rope.factor = fields.number_or("factor", 1e-6, 1e9, 1.0);
  } else if (rope.kind != "default") {
    const bool is_stretch = rope.kind == "yarn" && fields.has("factor") && !fields.find("factor");
    rope.factor = is_stretch ? static_cast<double>(config.max_positions) / rope.original_positions
                             : fields.number("factor", 1e-6, 1e9);
  }
  if (rope.kind == "llama3") read_llama3(fields, rope);
  if (rope.kind == "yarn") read_yarn(fields, group.is_of_some_layers, rope);
  return rope_from(rope, rotary_dim);
}

// The part of rope_parameters for one type of layers, for families whose layers differ.
std::optional<RopeGroup> group_of_layers(const JsonObject& json, const std::string& layer_type) {
  if (json.find("rope_parameters") == nullptr) return std::nullopt;
  const JsonObject all = json.object("rope_parameters");
  for (const auto& [name, value] : all.value().items()) {
    if (name != "full_attention" && name != "sliding_attention") {
      throw ConfigError("{}: expected settings for full_attention and sliding_attention, found {}",
                        json.name_of("rope_parameters"), quote(name));
    }
  }
  if (all.find(layer_type) == nullptr) return std::nullopt;
  return RopeGroup{all.object(layer_type), /*is_of_some_layers=*/true};
}

// The settings that count for all layers, of those with a window excepted: as in transformers,
// rope_scaling unless it is absent, null or empty, else rope_parameters.
std::optional<RopeGroup> group_of_model(const JsonObject& json, const FamilyTraits& traits) {
  if (traits.reads_layer_shapes) return group_of_layers(json, "full_attention");
  const auto* scaling = json.find("rope_scaling");
  const bool has_scaling = scaling != nullptr && !scaling->empty();
  if (traits.local_rope_theta && json.find("rope_parameters") != nullptr) {
    return group_of_layers(json, "full_attention");  // with rope_scaling in it: lay_scaling_over
  }
  const std::string name = has_scaling ? "rope_scaling" : "rope_parameters";
  if (json.find(name) == nullptr) return std::nullopt;
  const JsonObject fields = json.object(name);
  for (const auto& [field, value] : fields.value().items()) {
    if (value.is_object()) {
      throw ConfigError("{}: expected one setting for all layers, found a separate one for {}",
                        json.name_of(name), quote(field));
    }
  }
  return RopeGroup{fields};
}

Index read_rotary_dim(const JsonObject& json, const FamilyTraits& traits,
                      const std::optional<RopeGroup>& group, Index d_head) {
  const std::string beside(traits.rotary_factor_field);
  double factor = json.number_or(beside, 0.0, 1.0, traits.rotary_factor);
  if (group) factor = group->fields.number_or("partial_rotary_factor", 0.0, 1.0, factor);
  if (!traits.partial_rotary && factor != 1.0) {
    const bool is_inside = group && group->fields.find("partial_rotary_factor") != nullptr;
    throw ConfigError("{}: expected 1 (rotary embedding of whole heads), found the number {}",
                      (is_inside ? group->fields : json).name_of("partial_rotary_factor"), factor);
  }
  const auto n = static_cast<Index>(static_cast<double>(d_head) * factor);
  if (n < 2 || n % 2 != 0) {
    throw ConfigError("{}: expected an even number of rotated channels, found {} of {}",
                      json.name_of("partial_rotary_factor"), n, d_head);
  }
  return n;
}

}  // namespace

void read_rope(const JsonObject& json, const FamilyTraits& traits, ModelConfig& config) {
  // A part of the pairs turns by its settings there, and the rest by nothing; all stands in groups.
  const bool is_whole = traits.reads_layer_shapes;
  const auto theta_of = [&](std::string_view field, double otherwise) {
    return is_whole ? otherwise
                    : json.number_or(std::string(field), kLeastTheta, kMostTheta, otherwise);
  };
  const double theta = theta_of(traits.rope_theta_field, traits.rope.theta);
  json.has("original_max_position_embeddings");  // which says nothing of kinds that do not ask
  const auto group = group_of_model(json, traits);
  config.rotary_dim =
      is_whole ? config.d_head : read_rotary_dim(json, traits, group, config.d_head);
  if (group) {
    config.rope = read_settings(json, traits, *group, theta, config, config.rotary_dim);
  } else {
    RopeSettings rope = traits.rope;
    rope.theta = theta;
    config.rope = rope_from(rope, config.rotary_dim);
  }
  if (!traits.local_rope_theta) return;
  RopeSettings local;
  local.theta = theta_of("rope_local_base_freq", *traits.local_rope_theta);
  const auto local_group = group_of_layers(json, "sliding_attention");
  Index rotary_dim = config.rotary_dim;
  const auto with_window =
      std::ranges::find_if(config.window, [](auto w) { return w.has_value(); });
  if (traits.reads_layer_shapes && with_window != config.window.end())
    rotary_dim = config.shape(with_window - config.window.begin()).d_head;
  config.local_rope =
      local_group ? read_settings(json, traits, *local_group, local.theta, config, rotary_dim)
                  : rope_from(local, rotary_dim);
}

void read_rope_layers(const JsonObject& json, const FamilyTraits& traits, ModelConfig& config) {
  const auto n_layers = static_cast<std::size_t>(config.n_layers);
  config.has_rope.assign(n_layers, true);
  if (!traits.reads_layers_without_rope) return;
  json.has("no_rope_layer_interval");  // which says nothing beside a list
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
