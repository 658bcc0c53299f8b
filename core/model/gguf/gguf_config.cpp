// The metadata of a GGUF file as the config.json that the same model has at the hub.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/model/config_fields.hpp"
#include "core/model/gguf/gguf_weights.hpp"
#include "core/model/gguf/rope_freqs.hpp"

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

class ConfigWriter {
 public:
  explicit ConfigWriter(const GgufCheckpoint& checkpoint)
      : checkpoint_(checkpoint),
        meta_(checkpoint.metadata()),
        arch_(meta_.string("general.architecture").value_or("")),
        family_(family_of(meta_)) {}

  HubJson write() {
    const bool is_windowed = family_ == ModelFamily::llama && window().has_value();
    json_["model_type"] = name_of(is_windowed ? ModelFamily::mistral : family_);
    write_sizes();
    write_biases();
    write_rope();
    write_windows();
    write_scales();
    write_experts();
    write_tokens();
    return json_;
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }

  // A count of the model. Some converters write one per layer; all of them must be equal then.
  std::optional<Index> count(std::string_view name) const {
    const std::string full = key(name);
    const auto it = meta_.values().find(full);
    if (it == meta_.values().end()) return std::nullopt;
    const auto* list = std::get_if<GgufArray>(&it->second);
    if (list == nullptr) return meta_.integer(full, 0, kMaxPositions);
    const std::vector<double>& values = *meta_.numbers(full);
    const bool all_equal = !values.empty() && values[0] >= 0 && values[0] <= kMaxPositions &&
                           std::equal(values.begin() + 1, values.end(), values.begin());
    if (!all_equal) meta_.refuse(full, "one number for all layers");
    return static_cast<Index>(values[0]);
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
    const GgufTensor* embedding = checkpoint_.find("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2) {
      throw FormatError("tensor \"token_embd.weight\" ({}): expected a matrix, found {}",
                        checkpoint_.file(), embedding ? "another shape" : "none");
    }
    json_["vocab_size"] = embedding->shape[0];
    json_["tie_word_embeddings"] = !has_tensor("output.weight");
    const bool is_neox = family_ == ModelFamily::gpt_neox;
    const auto eps = meta_.number(
        key(is_neox ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"));
    if (eps) json_[is_neox ? "layer_norm_eps" : "rms_norm_eps"] = *eps;
  }

  void write_biases() {
    if (family_ == ModelFamily::gpt_neox) {
      json_["attention_bias"] = has_tensor("blk.0.attn_qkv.bias");
      json_["use_parallel_residual"] = meta_.boolean(key("use_parallel_residual")).value_or(true);
      return;
    }
    json_["attention_bias"] = has_tensor("blk.0.attn_q.bias");
    json_["mlp_bias"] = has_tensor("blk.0.ffn_down.bias");
  }

  void write_rope() {
    const bool is_neox = family_ == ModelFamily::gpt_neox;
    const double theta = meta_.number(key("rope.freq_base")).value_or(10000.0);
    json_[is_neox ? "rotary_emb_base" : "rope_theta"] = theta;
    const Index n_rotated = count("rope.dimension_count").value_or(d_head_);
    // Gemma's and Qwen's converters leave it out or write the width of a whole head.
    if (n_rotated != d_head_) {
      json_[is_neox ? "rotary_pct" : "partial_rotary_factor"] =
          static_cast<double>(n_rotated) / static_cast<double>(d_head_);
    }
    if (const auto local = meta_.number(key("rope.freq_base_swa"))) {
      json_["rope_local_base_freq"] = *local;
    }
    write_scaling(theta);
  }

  void write_scaling(double theta) {
    if (const GgufTensor* freqs = checkpoint_.find("rope_freqs.weight")) {
      write_llama3(*freqs, theta);
      return;
    }
    if (has_tensor("rope_factors_long.weight")) {
      json_["rope_scaling"] = {{"rope_type", "longrope"}};  // refused by name
      return;
    }
    const auto type = meta_.string(key("rope.scaling.type"));
    if (!type || *type == "none") return;
    HubJson scaling = {{"rope_type", *type}};
    scaling["factor"] = meta_.number(key("rope.scaling.factor")).value_or(1.0);
    if (const auto n = count("rope.scaling.original_context_length")) {
      scaling["original_max_position_embeddings"] = *n;
    }
    for (const auto& [name, hub] : std::initializer_list<std::pair<const char*, const char*>>{
             {"rope.scaling.attn_factor", "attention_factor"},
             {"rope.scaling.yarn_beta_fast", "beta_fast"},
             {"rope.scaling.yarn_beta_slow", "beta_slow"}}) {
      if (const auto value = meta_.number(key(name))) scaling[hub] = *value;
    }
    // The metadata cannot say it; OpenAI's config does.
    if (family_ == ModelFamily::gpt_oss) scaling["truncate"] = false;
    json_["rope_scaling"] = scaling;
  }

  void write_llama3(const GgufTensor& freqs, double theta) {
    if (freqs.type != StoredType::f32 || freqs.count != d_head_ / 2) {
      throw FormatError("tensor \"rope_freqs.weight\" ({}): expected {} of F32, found {} of {}",
                        checkpoint_.file(), d_head_ / 2, freqs.count, freqs.type_name);
    }
    std::vector<float> factors(static_cast<std::size_t>(freqs.count));
    widen(StoredType::f32, freqs.bytes.data(), factors.data(), freqs.count);
    const auto found = llama3_scaling(factors, theta, d_head_);
    if (!found) {
      throw ConfigError(
          "tensor \"rope_freqs.weight\" ({}): expected the factors of "
          "Llama 3's RoPE scaling, found others",
          checkpoint_.file());
    }
    if (found->factor == 1.0) return;
    json_["rope_scaling"] = {{"rope_type", "llama3"},
                             {"factor", found->factor},
                             {"low_freq_factor", found->low_freq_factor},
                             {"high_freq_factor", found->high_freq_factor},
                             {"original_max_position_embeddings", found->original_max_positions}};
  }

  std::optional<Index> window() const {
    const auto n = count("attention.sliding_window");
    return n && *n > 0 ? n : std::nullopt;
  }

  void write_windows() {
    if (family_ == ModelFamily::olmo2 && window()) {  // OLMo 3 under the same name
      throw ConfigError("{} ({}): expected none (an OLMo 2 model has no windows), found {}",
                        key("attention.sliding_window"), meta_.file(), *window());
    }
    const bool takes_window = traits_of(family_).sliding != FamilyTraits::Sliding::never &&
                              !traits_of(family_).window_needs_flag;
    if (!takes_window && family_ != ModelFamily::llama) return;
    if (const auto n = window()) json_["sliding_window"] = *n;
    const std::string pattern = key("attention.sliding_window_pattern");
    const auto it = meta_.values().find(pattern);
    if (it == meta_.values().end()) return;
    if (!std::holds_alternative<GgufArray>(it->second)) {
      json_["sliding_window_pattern"] = *meta_.integer(pattern, 1, kMaxLayers);
      return;
    }
    const std::vector<double>& slides = *meta_.numbers(pattern);
    if (static_cast<Index>(slides.size()) != n_layers_) {
      meta_.refuse(pattern, fmt::format("a list of {}", n_layers_));
    }
    for (const double one : slides) {
      json_["layer_types"].push_back(one != 0.0 ? "sliding_attention" : "full_attention");
    }
  }

  // Soft caps, and what queries are divided by.
  void write_scales() {
    for (const auto& [name, hub] : std::initializer_list<std::pair<const char*, const char*>>{
             {"attn_logit_softcapping", "attn_logit_softcapping"},
             {"final_logit_softcapping", "final_logit_softcapping"}}) {
      if (const auto cap = meta_.number(key(name))) json_[hub] = *cap;
    }
    if (!traits_of(family_).query_scale) return;
    // Gemma's largest models divide by the width per head, the others by the head's own. The files
    // do not say which, so that all readers go by the number of layers.
    constexpr Index kGemma2Layers = 46;
    constexpr Index kGemma3Layers = 62;
    const bool is_largest =
        n_layers_ == (family_ == ModelFamily::gemma2 ? kGemma2Layers : kGemma3Layers);
    double scalar =
        static_cast<double>(is_largest ? json_["hidden_size"].get<Index>() / n_heads_ : d_head_);
    if (const auto scale = meta_.number(key("attention.scale")); scale && *scale > 0.0) {
      scalar = 1.0 / (*scale * *scale);
    }
    json_["query_pre_attn_scalar"] = scalar;
  }

  void write_experts() {
    const Index n_experts = count("expert_count").value_or(0);
    const bool takes_experts = traits_of(family_).experts != FamilyTraits::Experts::none;
    if (n_experts > 0 && !takes_experts) {
      throw ConfigError(
          "{} ({}): expected no experts in a {} model, found {} (a "
          "mixture such as Mixtral is not computed)",
          key("expert_count"), meta_.file(), name_of(family_), n_experts);
    }
    if (!takes_experts) return;
    json_["num_experts"] = n_experts;
    json_["num_experts_per_tok"] = require("expert_used_count");
    if (const auto n = count("expert_feed_forward_length")) {
      const bool is_clamped = traits_of(family_).experts == FamilyTraits::Experts::clamped;
      json_[is_clamped ? "intermediate_size" : "moe_intermediate_size"] = *n;
    }
    if (family_ != ModelFamily::qwen3_moe) return;
    json_["norm_topk_prob"] = meta_.boolean(key("expert_weights_norm")).value_or(true);
    json_["mlp_only_layers"] = HubJson::array();
    for (Index layer = 0; layer < std::min(n_layers_, kMaxLayers); ++layer) {
      if (!has_tensor(fmt::format("blk.{}.ffn_gate_exps.weight", layer))) {
        json_["mlp_only_layers"].push_back(layer);
      }
    }
  }

  void write_tokens() {
    for (const char* name : {"bos", "eos"}) {
      const auto id = meta_.integer(fmt::format("tokenizer.ggml.{}_token_id", name), 0, kMaxVocab);
      json_[fmt::format("{}_token_id", name)] = id ? HubJson(*id) : HubJson(nullptr);
    }
  }

  const GgufCheckpoint& checkpoint_;
  const GgufMetadata& meta_;
  std::string arch_;
  ModelFamily family_;
  Index n_layers_ = 0;
  Index n_heads_ = 1;
  Index d_head_ = 0;
  HubJson json_;
};

}  // namespace

ModelFamily family_of(const GgufMetadata& metadata) {
  if (const auto type = metadata.string("general.type"); type && *type != "model") {
    metadata.refuse("general.type", "\"model\" (a language model by itself)");
  }
  const std::string_view name = metadata.string("general.architecture").value_or("");
  std::vector<std::string_view> names;
  for (const Architecture& row : kArchitectures) {
    if (row.gguf == name) return row.family;
    names.push_back(row.gguf);
  }
  throw ConfigError("general.architecture ({}): expected one of {}, found {}", metadata.file(),
                    fmt::join(names, ", "), quote(name));
}

std::string hub_config(const GgufCheckpoint& checkpoint) {
  return ConfigWriter(checkpoint).write().dump(2);
}

}  // namespace kvscope
