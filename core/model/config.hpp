// What a Hugging Face config.json says about a decoder-only transformer, checked and in our terms.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/enum_names.hpp"
#include "core/tensor/score_rule.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// The layer structures the runtime can compute; core/model/config_family.cpp has a row for each.
enum class ModelFamily {
  llama,
  mistral,
  qwen2,
  qwen3,
  qwen3_moe,
  smollm3,
  gpt_oss,
  gemma2,
  gemma3_text,
  gemma4_text,
  phi3,
  olmo2,
  gpt_neox,
};

/// True if the model_type of a config.json, or of the text inside it, is that of a family whose
/// layers have equal heads.
bool has_equal_layers(const nlohmann::json& config);

/// How rotary position embedding turns a position into angles: numbers, whatever rule gave them
/// (core/model/config_rope.cpp).
struct RopeConfig {
  std::vector<float> frequencies;  // [rotary_dim / 2] radians per position, one per pair
  double amplitude = 1.0;          // factor of the cosines and sines, hence of q and k
  std::string kind = "default";    // for display: the rule as the file names it
  double theta = 10000.0;          // likewise
  double factor = 1.0;             // likewise
};

/// The mixture-of-experts sublayers. n_experts = 0: the model has none.
struct MoeConfig {
  /// How the weights of a token's experts follow from the router's logits.
  enum class Weights {
    softmax_of_all,     // softmax over all experts; the largest are picked and keep their share
    softmax_of_picked,  // the same divided by their sum, which is the softmax over the picked ones
  };
  Index n_experts = 0;
  Index n_picked = 0;  // experts per token
  Index d_ff = 0;      // width of one expert
  Weights weights = Weights::softmax_of_all;
  /// gate and up interleaved in one matrix, with biases (router too), and the clamped SwiGLU
  /// (up + 1) * gate * sigmoid(alpha * gate), gate <= limit, |up| <= limit: gpt-oss. Otherwise
  /// every expert is a plain SwiGLU without biases.
  bool is_clamped = false;
  double swiglu_alpha = 1.702;
  double swiglu_limit = 7.0;
};

/// The norms of a layer, by where they stand: before and after a sublayer's function.
enum class NormAt { attention_in, attention_out, mlp_in, mlp_out };

/// How a model's layers are put together: what families differ in besides their shapes.
struct LayerPlan {
  enum class Norms {
    pre,   // x += f(norm(x))
    post,  // x += norm(f(x)): OLMo 2
    both,  // x += norm(f(norm(x))): Gemma
  };
  enum class Activation { silu, gelu_tanh, gelu };
  /// How a checkpoint calls its tensors, and which rows of a fused matrix are whose.
  enum class Names { llama, gpt_neox };
  Norms norms = Norms::pre;
  Activation activation = Activation::silu;
  bool norm_adds_one = false;  // norms multiply by 1 + weight: Gemma
  bool layer_norm = false;     // norms take the mean away and add a bias: GPT-NeoX
  bool is_parallel = false;    // x += attention(norm(x)) + mlp(norm(x)), of the same x: GPT-NeoX
  bool is_gated = true;        // the MLP is down(activation(gate) * up); else down(activation(up))
  bool norms_all_heads = false;  // QK-norm runs over all heads of a token together: OLMo 2
  bool fused_qkv = false;        // one stored matrix holds q, k and v: Phi-3
  /// One stored matrix holds head after head, each its q, k and v: GPT-NeoX.
  bool fused_by_head = false;
  bool fused_gate_up = false;  // one stored matrix holds gate and up: Phi-3
  Names names = Names::llama;
  bool norms_values = false;           // RMS norm without weights of every head's values: Gemma 4
  bool keys_are_values = false;        // layers without a window have no projection of v: it is k's
  bool wide_mlp_where_shared = false;  // twice d_ff in layers that attend to another one's keys
  bool scales_output = false;          // a number per layer, by which x is multiplied at its end
  double embedding_scale = 1.0;
  /// Attention scores become cap * tanh(score / cap); 0 = they stay: Gemma 2.
  double score_softcap = 0.0;
  double logit_softcap = 0.0;  // logits become cap * tanh(logits / cap); 0 = they stay

  bool has_norm(NormAt at) const {
    const bool is_out = at == NormAt::attention_out || at == NormAt::mlp_out;
    return norms == Norms::both || is_out == (norms == Norms::post);
  }
};

/// How a checkpoint of the hub stores the weights of its linear layers: quantization_config.
struct QuantizationConfig {
  enum class Kind { none, mxfp4, fp8, other };
  Kind kind = Kind::none;
  std::string method;    // quant_method; empty = plain floats
  std::string refusal;   // why the runtime does not compute such weights; empty = it does
  Index block_rows = 0;  // fp8: rows and columns that share a scale, 0 = unsaid
  Index block_cols = 0;  // likewise
};

/// What one layer's attention is made of.
struct LayerShape {
  Index n_kv = 0;
  Index d_head = 0;
  float score_scale = 1.0f;
  float score_cap = 0.0f;  // 0 = none; see ScoreRule
  /// The layer whose keys and values it attends to: an earlier one where layers share them; -1 its
  /// own. They are recorded with each layer.
  Index keys_of = -1;
  bool operator==(const LayerShape&) const = default;
  /// Equal but for whose the keys are.
  bool is_like(LayerShape other) const {
    other.keys_of = keys_of;
    return *this == other;
  }
  bool has_same_heads(const LayerShape& other) const {
    return n_kv == other.n_kv && d_head == other.d_head;
  }
  ScoreRule score_rule() const { return {score_scale, score_cap}; }
};

/// One model's shape and constants. Every field is checked by parse_model_config.
struct ModelConfig {
  ModelFamily family = ModelFamily::llama;
  Index n_layers = 0;
  Index n_q = 0;     // query heads, in every layer
  Index n_kv = 0;    // key/value heads; divides n_q
  Index d_head = 0;  // even
  /// Per layer, where they differ; n_kv, d_head and rope are then of those without a window. Empty:
  /// all layers as said here.
  std::vector<LayerShape> layer_shapes;
  Index d_model = 0;
  Index d_ff = 0;
  Index n_vocab = 0;
  Index max_positions = 0;  // longest context that config.json allows
  double rms_eps = 1e-6;    // of every norm, also where it takes the mean away
  LayerPlan plan;
  RopeConfig rope;
  std::optional<RopeConfig> local_rope;  // of layers with a window; empty = as the others
  Index rotary_dim = 0;                  // the first channels of a head, which `rope` turns; even
  double query_scale = 0;                // score_scale is query_scale^(-1/2); 0 = d_head
  bool tied_embeddings = false;
  bool qkv_bias = false;  // q, k and v projections add a bias
  bool o_bias = false;    // the output projection adds a bias
  bool mlp_bias = false;  // gate (where there is one), up and down projections add a bias
  bool qk_norm = false;   // RMSNorm over d_head on q and k before RoPE
  /// Per layer: how many positions a query sees, itself included; empty = all. Size n_layers.
  std::vector<std::optional<Index>> window;
  std::vector<bool> has_rope;     // per layer: q and k are rotated. Size n_layers
  std::vector<bool> has_experts;  // per layer: the MLP is a mixture of experts. Size n_layers
  MoeConfig moe;
  /// Channels of a token's embedding for each layer, which joins x behind the MLP (Gemma 4, after
  /// Gemma 3n); 0 = none.
  Index d_layer_input = 0;
  Index n_layer_vocab = 0;       // tokens that have such embeddings
  bool has_sink_logits = false;  // a learned logit per query head joins every softmax
  QuantizationConfig quantization;
  std::vector<std::int32_t> eos_ids;  // may be empty
  std::optional<std::int32_t> bos_id;
  /// Settings that nothing here reads and that may change numbers; empty = none. Names as the file
  /// has them.
  std::vector<std::string> unread;

  /// What rotates the layer's q and k, if has_rope.
  const RopeConfig& rope_of(Index layer) const {
    return local_rope && window[static_cast<std::size_t>(layer)] ? *local_rope : rope;
  }
  LayerShape shape(Index layer) const;
  /// Channels of keys and values that all layers store for one token.
  Index kv_width() const;
  /// Width of the layer's dense MLP.
  Index ff_width(Index layer) const;
  /// True if the layer's values are its keys before their norm.
  bool has_keys_as_values(Index layer) const {
    return plan.keys_are_values && !window[static_cast<std::size_t>(layer)];
  }
  /// Query heads per KV head, where layers do not differ.
  Index group() const { return n_q / n_kv; }
  /// The factor in front of q.k: 1 / sqrt(d_head), or of query_scale where there is one.
  float score_scale() const;
  /// Number of weights that these shapes imply (tied embeddings counted once).
  std::int64_t n_parameters() const;
  /// Those of them that one token uses: of the experts only the picked ones.
  std::int64_t n_active_parameters() const;
};

/// Reads config.json text in both styles in use (rope_theta + rope_scaling;
/// rope_parameters). `where` names the file in messages. Throws FormatError for text that is
/// not JSON or lacks a field, ConfigError for a model that the runtime does not compute (the
/// message lists what it does).
ModelConfig parse_model_config(std::string_view json_text, const std::string& where);

/// The text of `model`/config.json, or what it would say of the GGUF file that `model` is or holds
/// (core/model/gguf/gguf_checkpoint.hpp). Throws IoError if it cannot be read.
std::string model_config_text(const std::filesystem::path& model);

/// parse_model_config of that text.
ModelConfig load_model_config(const std::filesystem::path& model);

}  // namespace kvscope
