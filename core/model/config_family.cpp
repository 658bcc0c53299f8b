// What each family takes for granted: one row of a table per model_type.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "core/base/enum_names.hpp"
#include "core/base/error.hpp"
#include "core/model/config_fields.hpp"

namespace kvscope {

namespace {

FamilyTraits llama() {
  FamilyTraits t{ModelFamily::llama};
  t.max_positions = 2048;
  t.bos_id = 1;
  t.eos_id = 2;
  t.attention_bias = FamilyTraits::Bias::if_said;
  t.reads_mlp_bias = true;
  return t;
}

FamilyTraits mistral() {
  FamilyTraits t{ModelFamily::mistral};
  t.n_kv = 8;
  t.window = 4096;
  t.sliding = FamilyTraits::Sliding::everywhere;
  t.max_positions = 131072;
  t.bos_id = 1;
  t.eos_id = 2;
  return t;
}

FamilyTraits qwen2() {
  FamilyTraits t{ModelFamily::qwen2};
  t.n_kv = 32;
  t.window = 4096;
  t.sliding = FamilyTraits::Sliding::late_layers;
  t.window_needs_flag = true;
  t.max_positions = 32768;
  t.attention_bias = FamilyTraits::Bias::qkv;
  return t;
}

FamilyTraits qwen3() {
  FamilyTraits t{ModelFamily::qwen3};
  t.n_kv = 32;
  t.d_head = 128;
  t.window = 4096;
  t.sliding = FamilyTraits::Sliding::late_layers;
  t.window_needs_flag = true;
  t.max_positions = 32768;
  t.attention_bias = FamilyTraits::Bias::if_said;
  t.qk_norm = true;
  return t;
}

FamilyTraits qwen3_moe() {
  FamilyTraits t = qwen3();
  t.family = ModelFamily::qwen3_moe;
  t.n_kv = 4;
  t.d_head.reset();
  t.sliding = FamilyTraits::Sliding::everywhere;
  t.experts = FamilyTraits::Experts::some_layers;
  return t;
}

FamilyTraits smollm3() {
  FamilyTraits t{ModelFamily::smollm3};
  t.n_kv = 4;
  t.sliding = FamilyTraits::Sliding::layers_without_rope;
  t.window_needs_flag = true;
  t.max_positions = 32768;
  t.bos_id = 128000;
  t.eos_id = 128001;
  t.rope.theta = 2000000.0;
  t.tied_embeddings = true;
  t.attention_bias = FamilyTraits::Bias::if_said;
  t.reads_mlp_bias = true;
  t.reads_layers_without_rope = true;
  return t;
}

FamilyTraits gpt_oss() {
  FamilyTraits t{ModelFamily::gpt_oss};
  t.n_kv = 8;
  t.d_head = 64;
  t.window = 128;
  t.sliding = FamilyTraits::Sliding::all_but_every;
  t.sliding_period = 2;
  t.max_positions = 131072;
  t.rope.kind = "yarn";
  t.rope.theta = 150000.0;
  t.rope.factor = 32.0;
  t.rope.original_positions = 4096;
  t.rope.truncate = false;
  t.rope.amplitude = yarn_amplitude(t.rope.factor);
  t.rms_eps = 1e-5;
  t.attention_bias = FamilyTraits::Bias::unless_said;
  t.has_sink_logits = true;
  t.experts = FamilyTraits::Experts::clamped;
  return t;
}

// Gemma 2 (arXiv 2408.00118): soft caps on scores and logits, every second layer with a window.
FamilyTraits gemma2() {
  FamilyTraits t{ModelFamily::gemma2};
  t.n_kv = 4;
  t.d_head = 256;
  t.window = 4096;
  t.sliding = FamilyTraits::Sliding::all_but_every;
  t.sliding_period = 2;
  t.max_positions = 8192;
  t.bos_id = 2;
  t.eos_id = 1;
  t.rope.theta = 10000.0;
  t.tied_embeddings = true;
  t.attention_bias = FamilyTraits::Bias::if_said;
  t.score_softcap = 50.0;
  t.logit_softcap = 30.0;
  t.query_scale = 256.0;
  t.scales_embeddings = true;
  t.activation_field = "hidden_activation";
  t.plan.norms = LayerPlan::Norms::both;
  t.plan.activation = LayerPlan::Activation::gelu_tanh;
  t.plan.norm_adds_one = true;
  return t;
}

// Gemma 3's text models (arXiv 2503.19786): QK-norm in place of the score cap, five layers of six
// with a window.
FamilyTraits gemma3_text() {
  FamilyTraits t = gemma2();
  t.family = ModelFamily::gemma3_text;
  t.sliding_period = 6;
  t.sliding_period_field = "sliding_window_pattern";
  t.max_positions = 131072;
  t.rope.theta = 1000000.0;
  t.local_rope_theta = 10000.0;
  t.score_softcap.reset();  // transformers keeps the setting and does not apply it
  t.logit_softcap = 0.0;
  t.qk_norm = true;
  return t;
}

// Gemma 4's text models: QK-norm and no scale, values with a norm, wider heads without a window, of
// which a part of the pairs turns; the last layers attend to the keys of earlier ones.
FamilyTraits gemma4_text() {
  FamilyTraits t = gemma3_text();
  t.family = ModelFamily::gemma4_text;
  t.sliding = FamilyTraits::Sliding::all_but_every_and_last;
  t.sliding_period_field = "";
  t.window = 512;
  t.rope.kind = "proportional";
  t.rope.proportion = 0.25;
  t.reads_layer_shapes = true;
  t.query_scale.reset();
  t.plan.norm_adds_one = false;
  t.plan.norms_values = true;
  t.plan.scales_output = true;
  return t;
}

FamilyTraits phi3() {
  FamilyTraits t{ModelFamily::phi3};
  t.sliding = FamilyTraits::Sliding::everywhere;
  t.max_positions = 4096;
  t.bos_id = 1;
  t.eos_id = 32000;
  t.rms_eps = 1e-5;
  t.partial_rotary = true;
  t.plan.fused_qkv = true;
  t.plan.fused_gate_up = true;
  return t;
}

// OLMo 2 (arXiv 2501.00656, section 3.2): norms behind the sublayers, QK-norm over all heads.
FamilyTraits olmo2() {
  FamilyTraits t{ModelFamily::olmo2};
  t.max_positions = 2048;
  t.eos_id = 50279;
  t.rms_eps = 1e-5;
  t.attention_bias = FamilyTraits::Bias::if_said;
  t.qk_norm = true;
  t.plan.norms = LayerPlan::Norms::post;
  t.plan.norms_all_heads = true;
  return t;
}

// GPT-NeoX (arXiv 2204.06745, section 2.1) and Pythia (arXiv 2304.01373).
FamilyTraits gpt_neox() {
  FamilyTraits t{ModelFamily::gpt_neox};
  t.max_positions = 2048;
  t.bos_id = 0;
  t.eos_id = 2;
  t.rms_eps = 1e-5;
  t.norm_eps_field = "layer_norm_eps";
  t.partial_rotary = true;
  t.rotary_factor = 0.25;
  t.rotary_factor_field = "rotary_pct";
  t.rope_theta_field = "rotary_emb_base";
  t.attention_bias = FamilyTraits::Bias::unless_said;
  t.has_mlp_bias = true;
  t.reads_parallel_residual = true;
  t.plan.activation = LayerPlan::Activation::gelu;
  t.plan.layer_norm = true;
  t.plan.is_gated = false;
  t.plan.fused_by_head = true;
  t.plan.names = LayerPlan::Names::gpt_neox;
  return t;
}

// In the order of ModelFamily.
const std::array<FamilyTraits, 13>& table() {
  static const std::array<FamilyTraits, 13> rows = {
      llama(),  mistral(),     qwen2(),       qwen3(), qwen3_moe(), smollm3(), gpt_oss(),
      gemma2(), gemma3_text(), gemma4_text(), phi3(),  olmo2(),     gpt_neox()};
  return rows;
}

}  // namespace

const FamilyTraits& traits_of(ModelFamily family) {
  return table()[static_cast<std::size_t>(family)];
}

const FamilyTraits& read_family(const JsonObject& json) {
  const std::string& type = json.string("model_type");
  if (const auto family = enum_from_name<ModelFamily>(type)) return traits_of(*family);
  throw ConfigError("{}: expected one of {}, found {}", json.name_of("model_type"),
                    fmt::join(EnumNames<ModelFamily>::value, ", "), quote(type));
}

bool has_equal_layers(const nlohmann::json& config) {
  const nlohmann::json text = text_part(config);
  const auto type = text.is_object() ? text.find("model_type") : text.end();
  if (type == text.end() || !type->is_string()) return false;
  const auto family = enum_from_name<ModelFamily>(type->get<std::string>());
  return family && !traits_of(*family).reads_layer_shapes;
}

}  // namespace kvscope
