// The metadata of a GGUF file as the config.json that the same model has at the hub.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/model/config_fields.hpp"
#include "core/model/gguf/gguf_weights.hpp"

namespace kvscope {

namespace {

using HubJson = nlohmann::ordered_json;

struct Architecture {
  std::string_view gguf;
  ModelFamily family;
};

constexpr std::array<Architecture, 11> kArchitectures = {{{"llama", ModelFamily::llama},
                                                          {"qwen2", ModelFamily::qwen2},
                                                          {"qwen3", ModelFamily::qwen3},
                                                          {"qwen3moe", ModelFamily::qwen3_moe},
                                                          {"smollm3", ModelFamily::smollm3},
                                                          {"gpt-oss", ModelFamily::gpt_oss},
                                                          {"gemma2", ModelFamily::gemma2},
                                                          {"gemma3", ModelFamily::gemma3_text},
                                                          {"phi3", ModelFamily::phi3},
                                                          {"olmo2", ModelFamily::olmo2},
                                                          {"gptneox", ModelFamily::gpt_neox}}};

/// The family whose layers a GGUF architecture has: "qwen3moe" is qwen3_moe. Throws ConfigError
/// with the list of those there are.
ModelFamily family_of(const JsonObject& metadata) {
  if (const auto type = metadata.string_if("general.type"); type && *type != "model") {
    metadata.refuse("general.type", "\"model\" (a language model by itself)");
  }
  const std::string name = metadata.string_if("general.architecture").value_or("");
  std::vector<std::string_view> names;
  for (const Architecture& row : kArchitectures) {
    if (row.gguf == name) return row.family;
    names.push_back(row.gguf);
  }
  throw ConfigError("general.architecture ({}): expected one of {}, found {}", metadata.where(),
                    fmt::join(names, ", "), quote(name));
}

class ConfigWriter {
 public:
  explicit ConfigWriter(const GgufCheckpoint& checkpoint)
      : checkpoint_(checkpoint),
        meta_(checkpoint.metadata().value(), checkpoint.file(), "", &read_),
        arch_(meta_.string_if("general.architecture").value_or("")),
        family_(family_of(meta_)) {}

  HubJson write() {
    const bool is_windowed = family_ == ModelFamily::llama && window().has_value();
    json_["model_type"] = enum_name(is_windowed ? ModelFamily::mistral : family_);
    write_sizes();
    write_biases();
    write_rope();
    write_windows();
    write_scales();
    write_experts();
    write_tokens();
    write_unread();
    return json_;
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }

  // A count of the model. Some converters write one per layer; all of them must be equal then.
  std::optional<Index> count(std::string_view name) const {
    const std::string full = key(name);
    const nlohmann::json* value = meta_.find(full);
    if (value == nullptr || !value->is_array()) return meta_.integer_if(full, 0, kMaxPositions);
    const bool has_first = !value->empty() && value->front().is_number();
    const double first = has_first ? value->front().get<double>() : -1.0;
    const bool all_equal =
        first >= 0 && first <= kMaxPositions &&
        std::all_of(value->begin(), value->end(), [&](const auto& one) { return one == first; });
    if (!all_equal) meta_.refuse(full, "one number for all layers");
    return static_cast<Index>(first);
  }

  Index require(std::string_view name) const {
    const auto value = count(name);
    if (!value) meta_.refuse(key(name), "a whole number");
    return *value;
  }

  bool has_tensor(std::string_view name) const { return checkpoint_.find(name) != nullptr; }

  void write_sizes() {
    n_layers_ = require("block_count");
    const Index d_model = require("embedding_length");
    n_heads_ = require("attention.head_count");
    if (n_heads_ < 1) meta_.refuse(key("attention.head_count"), "at least 1");
    d_head_ = count("attention.key_length").value_or(d_model / n_heads_);
    if (count("attention.value_length").value_or(d_head_) != d_head_) {
      meta_.refuse(key("attention.value_length"), fmt::format("{} as of keys", d_head_));
    }
    json_["num_hidden_layers"] = n_layers_;
    json_["hidden_size"] = d_model;
    json_["num_attention_heads"] = n_heads_;
    json_["num_key_value_heads"] = count("attention.head_count_kv").value_or(n_heads_);
    if (family_ != ModelFamily::gpt_neox) json_["head_dim"] = d_head_;
    const auto d_ff = count("feed_forward_length");
    json_["intermediate_size"] = d_ff ? *d_ff : require("expert_feed_forward_length");
    if (const auto n = count("context_length")) json_["max_position_embeddings"] = *n;
    const TensorInFile* embedding = checkpoint_.find("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2) {
      throw FormatError("tensor \"token_embd.weight\" ({}): expected a matrix, found {}",
                        checkpoint_.file(), embedding ? "another shape" : "none");
    }
    json_["vocab_size"] = embedding->shape[0];
    json_["tie_word_embeddings"] = !has_tensor("output.weight");
    const bool is_neox = family_ == ModelFamily::gpt_neox;
    const std::string eps_key =
        key(is_neox ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon");
    const auto eps = meta_.number_if(eps_key);
    if (!eps) meta_.refuse(eps_key, "a number (no reader of GGUF assumes one)");
    json_[is_neox ? "layer_norm_eps" : "rms_norm_eps"] = *eps;
    if (!meta_.boolean_if(key("attention.causal")).value_or(true)) {
      meta_.refuse(key("attention.causal"), "true (only causal attention is computed)");
    }
  }

  void write_biases() {
    if (family_ == ModelFamily::gpt_neox) {
      json_["attention_bias"] = has_tensor("blk.0.attn_qkv.bias");
      json_["use_parallel_residual"] =
          meta_.boolean_if(key("use_parallel_residual")).value_or(true);
      return;
    }
    const FamilyTraits& traits = traits_of(family_);
    using Bias = FamilyTraits::Bias;
    if (traits.attention_bias == Bias::if_said || traits.attention_bias == Bias::unless_said)
      json_["attention_bias"] = has_tensor("blk.0.attn_q.bias");
    if (traits.reads_mlp_bias) json_["mlp_bias"] = has_tensor("blk.0.ffn_down.bias");
  }

  void write_rope() {
    RopeSettings rope;
    // Ollama's converter has names of its own for Gemma 3.
    rope.theta = first_number({"rope.freq_base", "rope.global.freq_base"}).value_or(10000.0);
    const Index n_rotated = count("rope.dimension_count").value_or(d_head_);
    // Gemma's and Qwen's converters leave it out or write the width of a whole head.
    if (n_rotated != d_head_) {
      json_[family_ == ModelFamily::gpt_neox ? "rotary_pct" : "partial_rotary_factor"] =
          static_cast<double>(n_rotated) / static_cast<double>(d_head_);
    }
    const double amplitude = meta_.number_if(key("rope.scaling.attn_factor")).value_or(1.0);
    read_scaling(rope, n_rotated);
    rope.amplitude *= amplitude;
    if (!traits_of(family_).local_rope_theta) {
      json_["rope_parameters"] = numbers_of(rope, n_rotated);
      return;
    }
    RopeSettings local;  // of layers with a window, which nothing scales
    local.theta = first_number({"rope.freq_base_swa", "rope.local.freq_base"})
                      .value_or(*traits_of(family_).local_rope_theta);
    local.amplitude = amplitude;
    json_["rope_parameters"] = {{"full_attention", numbers_of(rope, n_rotated)},
                                {"sliding_attention", numbers_of(local, n_rotated)}};
  }

  std::optional<double> first_number(std::initializer_list<std::string_view> names) const {
    std::optional<double> first;
    for (const std::string_view name : names) {
      const auto value = meta_.number_if(key(name));
      if (!first) first = value;
    }
    return first;
  }

  static HubJson numbers_of(const RopeSettings& settings, Index n_rotated) {
    const RopeConfig rope = rope_from(settings, n_rotated);
    return {{"rope_type", rope.kind},
            {"rope_theta", rope.theta},
            {"factor", rope.factor},
            {"amplitude", rope.amplitude},
            {"frequencies", rope.frequencies}};
  }

  // llama.cpp's rule: the divisors of rope_freqs.weight first, then what the type of scaling says.
  void read_scaling(RopeSettings& rope, Index n_rotated) {
    for (const char* tensor : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
      if (!has_tensor(tensor)) continue;
      throw ConfigError("tensor {} ({}): expected none (longrope is not computed), found one",
                        quote(tensor), checkpoint_.file());
    }
    const std::string type(meta_.string_if(key("rope.scaling.type")).value_or("linear"));
    if (type != "none" && type != "linear" && type != "yarn") {
      throw ConfigError("{} ({}): expected one of none, linear, yarn, found {}",
                        key("rope.scaling.type"), meta_.where(), quote(type));
    }
    const double unset = 0.0;
    double factor = meta_.number_if(key("rope.scaling.factor")).value_or(unset);
    const double old_factor = meta_.number_if(key("rope.scale_linear")).value_or(unset);
    if (factor == unset) factor = old_factor == unset ? 1.0 : old_factor;
    if (!(factor >= 1e-6 && factor <= 1e9)) meta_.refuse(key("rope.scaling.factor"), "1e-6 to 1e9");
    rope.original_positions =
        static_cast<double>(count("rope.scaling.original_context_length")
                                .value_or(count("context_length").value_or(0)));
    rope.beta_fast = meta_.number_if(key("rope.scaling.yarn_beta_fast")).value_or(rope.beta_fast);
    rope.beta_slow = meta_.number_if(key("rope.scaling.yarn_beta_slow")).value_or(rope.beta_slow);
    rope.truncate = family_ != ModelFamily::gpt_oss;  // no field says it; OpenAI's config does
    if (const TensorInFile* freqs = checkpoint_.find("rope_freqs.weight")) {
      rope.divisors = divisors_in(*freqs, n_rotated);
      rope.kind = "rope_freqs";
    }
    if (type == "none" || (type == "linear" && factor == 1.0)) return;
    rope.kind = type;
    rope.factor = factor;
    if (type != "yarn") return;
    rope.amplitude = yarn_amplitude(factor);
    if (rope.original_positions < 1.0 || rope.theta <= 1.0) {
      throw ConfigError("{} ({}): expected a context length and a base above 1 with yarn",
                        key("rope.scaling.original_context_length"), meta_.where());
    }
  }

  std::vector<float> divisors_in(const TensorInFile& freqs, Index n_rotated) const {
    if (freqs.type != StoredType::f32 || freqs.count != n_rotated / 2) {
      throw FormatError("tensor \"rope_freqs.weight\" ({}): expected {} of F32, found {} of {}",
                        checkpoint_.file(), n_rotated / 2, freqs.count, freqs.type_name);
    }
    std::vector<float> divisors(static_cast<std::size_t>(freqs.count));
    widen(StoredType::f32, freqs.bytes.data(), divisors.data(), freqs.count);
    for (const float divisor : divisors) {
      if (!(divisor > 0.0f && divisor <= 1e9f)) {
        throw FormatError("tensor \"rope_freqs.weight\" ({}): expected positive numbers, found {}",
                          checkpoint_.file(), divisor);
      }
    }
    return divisors;
  }

  std::optional<Index> window() const {
    const auto n = count("attention.sliding_window");
    return n && *n > 0 ? n : std::nullopt;
  }

  void write_windows() {
    if (family_ == ModelFamily::olmo2 && window()) {  // OLMo 3 under the same name
      throw ConfigError("{} ({}): expected none (an OLMo 2 model has no windows), found {}",
                        key("attention.sliding_window"), meta_.where(), *window());
    }
    const bool takes_window = traits_of(family_).sliding != FamilyTraits::Sliding::never &&
                              !traits_of(family_).window_needs_flag;
    if (!takes_window && family_ != ModelFamily::llama) return;
    if (const auto n = window()) json_["sliding_window"] = *n;
    // llama.cpp slides nothing then, while the hub's config class has a default.
    if (family_ == ModelFamily::gemma3_text && !window()) json_["sliding_window"] = nullptr;
    const std::string pattern = key("attention.sliding_window_pattern");
    const nlohmann::json* value = meta_.find(pattern);
    if (value == nullptr) return;
    if (!value->is_array()) {
      json_["sliding_window_pattern"] = meta_.integer(pattern, 1, kMaxLayers);
      return;
    }
    for (const double one : gguf_numbers(meta_, pattern, static_cast<std::size_t>(n_layers_))) {
      json_["layer_types"].push_back(one != 0.0 ? "sliding_attention" : "full_attention");
    }
  }

  // Soft caps, and what queries are divided by.
  void write_scales() {
    const FamilyTraits& traits = traits_of(family_);
    for (const auto& [name, is_read] :
         {std::pair{"attn_logit_softcapping", traits.score_softcap.has_value()},
          std::pair{"final_logit_softcapping", traits.logit_softcap.has_value()}}) {
      const auto cap = is_read ? meta_.number_if(key(name)) : std::nullopt;
      if (cap) json_[name] = *cap;
    }
    if (!traits.query_scale) return;
    // Gemma's largest models divide by the width per head, the others by the head's own. The files
    // do not say which, so that all readers go by the number of layers.
    constexpr Index kGemma2Layers = 46;
    constexpr Index kGemma3Layers = 62;
    const bool is_largest =
        n_layers_ == (family_ == ModelFamily::gemma2 ? kGemma2Layers : kGemma3Layers);
    double scalar =
        static_cast<double>(is_largest ? json_["hidden_size"].get<Index>() / n_heads_ : d_head_);
    if (const auto scale = meta_.number_if(key("attention.scale")); scale && *scale > 0.0) {
      scalar = 1.0 / (*scale * *scale);
    }
    json_["query_pre_attn_scalar"] = scalar;
  }

  void write_experts() {
    const Index n_experts = count("expert_count").value_or(0);
    count("expert_used_count");  // which says nothing without experts
    const bool takes_experts = traits_of(family_).experts != FamilyTraits::Experts::none;
    if (n_experts > 0 && !takes_experts) {
      throw ConfigError(
          "{} ({}): expected no experts in a {} model, found {} (a "
          "mixture such as Mixtral is not computed)",
          key("expert_count"), meta_.where(), enum_name(family_), n_experts);
    }
    if (!takes_experts) return;
    json_["num_experts"] = n_experts;
    json_["num_experts_per_tok"] = require("expert_used_count");
    if (const auto n = count("expert_feed_forward_length")) {
      const bool is_clamped = traits_of(family_).experts == FamilyTraits::Experts::clamped;
      json_[is_clamped ? "intermediate_size" : "moe_intermediate_size"] = *n;
    }
    if (family_ != ModelFamily::qwen3_moe) return;
    json_["norm_topk_prob"] = meta_.boolean_if(key("expert_weights_norm")).value_or(true);
    json_["mlp_only_layers"] = HubJson::array();
    for (Index layer = 0; layer < std::min(n_layers_, kMaxLayers); ++layer) {
      if (!has_tensor(fmt::format("blk.{}.ffn_gate_exps.weight", layer))) {
        json_["mlp_only_layers"].push_back(layer);
      }
    }
  }

  void write_tokens() {
    for (const char* name : {"bos", "eos"}) {
      const auto id =
          meta_.integer_if(fmt::format("tokenizer.ggml.{}_token_id", name), 0, kMaxVocab);
      json_[fmt::format("{}_token_id", name)] = id ? HubJson(*id) : HubJson(nullptr);
    }
  }

  // Fields of the architecture that nothing above asked for: under their own names, so that the
  // reader of the config tells them as it tells its own (ModelConfig::unread).
  void write_unread() {
    for (const auto& [name, value] : meta_.value().items()) {
      const bool is_harmless = !name.starts_with(arch_ + ".") || read_.contains(name) ||
                               name == key("vocab_size") || name == key("rope.scaling.finetuned") ||
                               name.starts_with(key("vision.")) || name.starts_with(key("mm."));
      if (is_harmless) continue;
      json_[name] = value.is_array() ? HubJson(describe_gguf_list(value)) : HubJson(value);
    }
  }

  const GgufCheckpoint& checkpoint_;
  FieldsRead read_;
  JsonObject meta_;
  std::string arch_;
  ModelFamily family_;
  Index n_layers_ = 0;
  Index n_heads_ = 1;
  Index d_head_ = 0;
  HubJson json_;
};

}  // namespace

std::string hub_config(const GgufCheckpoint& checkpoint) {
  return ConfigWriter(checkpoint)
      .write()
      .dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace kvscope
