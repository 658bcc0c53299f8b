// The parts of reading a config.json that have files of their own; used by config.cpp, and by
// gguf/gguf_config.cpp for its settings of rotation.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_reader.hpp"
#include "core/model/config.hpp"

namespace kvscope {

/// The rule by which a file says RopeConfig's numbers.
struct RopeSettings {
  std::string kind = "default";  // or linear, llama3, yarn, proportional
  double theta = 10000.0;
  double factor = 1.0;            // all others
  double proportion = 1.0;        // proportional: of the pairs, the first ones, which are turned
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  double original_positions = 0;  // llama3, yarn: context length before scaling
  double beta_fast = 32.0;        // yarn: pairs that turn more often than this are kept
  double beta_slow = 1.0;         // yarn: pairs that turn less often than this are stretched
  bool truncate = true;           // yarn: the ramp between them begins and ends at whole pairs
  double amplitude = 1.0;
  std::vector<float> divisors;  // of the unscaled frequencies [rotary_dim / 2]; empty = 1
};

/// YaRN's factor of cosines and sines, 0.1 m ln(factor) + 1 (arXiv 2309.00071, section 3.4).
double yarn_amplitude(double factor, double m = 1.0);

/// Their numbers for rotary_dim rotated channels. In float, as Hugging Face transformers computes
/// them, so that long contexts rotate by the same rounded angles: default theta^(-2i/d); linear
/// divides by the factor; llama3 divides long wavelengths (more than original_positions /
/// low_freq_factor), keeps short ones and blends between; yarn does so by the number of turns
/// within the original context; proportional (Gemma 4) divides by the factor.
RopeConfig rope_from(const RopeSettings& settings, Index rotary_dim);

/// One family: how its layers are built, which fields of config.json it reads, and what its config
/// class in Hugging Face transformers assumes for those left out (a config.json leaves out what its
/// writer's version took for granted).
struct FamilyTraits {
  /// Which layers have the sliding window where layer_types does not say it.
  enum class Sliding {
    never,
    everywhere,   // whatever layer_types says
    late_layers,  // from max_window_layers on
    layers_without_rope,
    all_but_every,           // all but every sliding_period-th
    all_but_every_and_last,  // the same, and the last one sees everything in any case
  };
  enum class Bias {
    none,
    qkv,          // q, k and v, always
    if_said,      // all four projections if attention_bias is true
    unless_said,  // all four unless attention_bias is false
  };
  enum class Experts {
    none,
    some_layers,  // Qwen3-MoE: plain SwiGLU experts, dense layers among them
    clamped,      // gpt-oss: see MoeConfig::is_clamped
  };

  ModelFamily family = ModelFamily::llama;
  std::optional<Index> n_kv;    // empty: as many as query heads
  std::optional<Index> d_head;  // empty: d_model / n_q
  Index max_positions = 0;
  std::optional<std::int32_t> bos_id;
  std::optional<std::int32_t> eos_id;
  double rms_eps = 1e-6;
  std::string_view norm_eps_field = "rms_norm_eps";
  bool tied_embeddings = false;

  Sliding sliding = Sliding::never;
  std::optional<Index> window;            // sliding_window
  bool window_needs_flag = false;         // use_sliding_window has to be true
  Index sliding_period = 0;               // all_but_every
  std::string_view sliding_period_field;  // a field that overrides it, if there is one

  RopeSettings rope;                       // where config.json has no settings
  std::optional<double> local_rope_theta;  // layers with a window have settings of their own
  bool reads_layer_shapes = false;         // layers without a window have heads of their own
  bool partial_rotary = false;             // partial_rotary_factor is read
  double rotary_factor = 1.0;              // where it is not said
  std::string_view rotary_factor_field =
      "partial_rotary_factor";                       // beside those in groups of settings
  std::string_view rope_theta_field = "rope_theta";  // likewise
  bool reads_layers_without_rope = false;            // no_rope_layers

  Bias attention_bias = Bias::none;
  bool reads_mlp_bias = false;
  bool has_mlp_bias = false;             // always
  bool reads_parallel_residual = false;  // use_parallel_residual; true unless said
  bool qk_norm = false;
  bool has_sink_logits = false;
  std::optional<double> query_scale;  // query_pre_attn_scalar is read
  bool scales_embeddings = false;     // by sqrt(d_model)
  /// attn_logit_softcapping, where it is not said; empty = the family does not read it.
  std::optional<double> score_softcap;
  std::optional<double> logit_softcap;  // final_logit_softcapping, likewise
  Experts experts = Experts::none;
  std::string_view activation_field = "hidden_act";
  LayerPlan plan;
};

const FamilyTraits& traits_of(ModelFamily family);

/// The family that model_type names. Throws ConfigError with the list of those there are.
const FamilyTraits& read_family(const JsonObject& json);

/// The part of a config.json that describes the model of text in a model of texts and pictures
/// (Gemma 3, Mistral 3, Qwen-VL), completed by what stands around it; any other config.json as it
/// is.
nlohmann::json text_part(nlohmann::json root);

/// Far above any model that exists; the number of parameters that they allow fits 64 bits:
/// n_layers * 4 * d_model * (d_ff of all experts) < 2^57.
inline constexpr Index kMaxLayers = 1 << 11;
inline constexpr Index kMaxHeads = 1 << 12;
inline constexpr Index kMaxHeadDim = 1 << 12;
inline constexpr Index kMaxWidth = 1 << 20;  // d_model, n_q * d_head
inline constexpr Index kMaxFfWidth = 1 << 22;
inline constexpr Index kMaxExperts = 1 << 12;
inline constexpr Index kMaxExpertsWidth = 1 << 24;  // n_experts * d_ff of one
inline constexpr Index kMaxVocab = 1 << 24;
inline constexpr Index kMaxPositions = Index{1} << 30;

/// A positive count. What is no count at all is broken (FormatError); what is beyond `most` is not
/// computed (ConfigError).
Index read_count(const JsonObject& json, const std::string& field, Index most);

/// Same. Absent: `absent`. JSON null: `null_value`. These differ in the config classes.
Index read_count_or(const JsonObject& json, const std::string& field, Index most, Index absent,
                    Index null_value);

/// Fills config.rotary_dim, rope and local_rope from both styles (rope_theta + rope_scaling;
/// rope_parameters). Needs layer_shapes, window and max_positions.
void read_rope(const JsonObject& json, const FamilyTraits& traits, ModelConfig& config);

/// Fills config.layer_shapes, and with it n_kv and d_head: Gemma 4. Needs read_sizes' and window.
void read_layer_shapes(const JsonObject& json, ModelConfig& config);

/// Fills config.has_rope: which layers rotate q and k (SmolLM3 leaves some out). Needs n_layers.
void read_rope_layers(const JsonObject& json, const FamilyTraits& traits, ModelConfig& config);

/// quantization_config, if there is one. What cannot be computed is not refused here but told:
/// QuantizationConfig::refusal.
QuantizationConfig read_quantization(const JsonObject& json, ModelFamily family);

/// Fills config.moe and config.has_experts. Needs n_layers and d_ff.
void read_moe(const JsonObject& json, const FamilyTraits& traits, ModelConfig& config);

}  // namespace kvscope
