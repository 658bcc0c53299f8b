#include "core/model/layer_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "core/model/quantized_rows.hpp"

namespace kvscope {

namespace {

// Models whose widened weights fit here are widened once; beyond, memory matters more than the
// repeated conversion.
constexpr std::int64_t kMostCopies = std::int64_t{1} << 30;

Kept kept_of(const ModelConfig& config, Kept copies) {
  const std::int64_t n_bytes = config.n_parameters() * (copies == Kept::as_bf16 ? 2 : 4);
  return n_bytes <= kMostCopies ? copies : Kept::as_stored;
}

// Collects the tensors of one checkpoint.
class Collector {
 public:
  Collector(const ModelConfig& config, const WeightFiles& files, Kept copies)
      : config_(config), files_(files), kept_(kept_of(config, copies)) {}

  Matrix matrix(const std::string& name, Index n_rows, Index n_cols) const {
    return rows(name, {0, n_rows}, n_rows, n_cols, kept_);
  }

  // Rows of the linear layer or embedding `name`.
  Matrix rows(const std::string& name, StoredRows part, Index n_rows, Index n_cols,
              Kept kept) const {
    return Matrix(linear_rows(files_, config_.quantization, name, part, n_cols), name + ".weight",
                  n_rows, n_cols, kept);
  }

  Tensor<float> vector(const std::string& name, Index n) const {
    return files_.get_float(name, {n});
  }

  LayerWeights layer(Index index) const {
    if (config_.plan.names == LayerPlan::Names::gpt_neox) return neox_layer(index);
    const std::string layer = fmt::format("model.layers.{}.", index);
    LayerWeights w;
    add_norms(layer, w);
    add_attention(index, layer + "self_attn.", w);
    if (config_.d_layer_input > 0) add_layer_input(layer, w);
    if (config_.plan.scales_output) w.output_scale = vector(layer + "layer_scalar", 1).data()[0];
    if (!config_.has_experts[static_cast<std::size_t>(index)]) {
      add_mlp(config_.ff_width(index), layer + "mlp.", w);
    } else if (config_.moe.is_clamped) {
      add_clamped_experts(layer + "mlp.", w.moe);
    } else {
      add_experts(layer + "mlp.", w.moe);
    }
    return w;
  }

  Tensor<float> norm(const std::string& name, Index n) const {
    Tensor<float> weight = vector(name + ".weight", n);
    if (config_.plan.norm_adds_one) {
      for (float& x : weight.flat()) x += 1.0f;
    }
    return weight;
  }

 private:
  // GPT-NeoX: one matrix of q, k and v, two of the MLP, norms with biases.
  LayerWeights neox_layer(Index index) const {
    const std::string layer = fmt::format("gpt_neox.layers.{}.", index);
    const Index d = config_.d_model;
    const Index d_qkv = 3 * config_.n_q * config_.d_head;
    LayerWeights w;
    const auto add_norm = [&](NormAt at, const std::string& name) {
      w.norms[static_cast<std::size_t>(at)] = norm(layer + name, d);
      w.norm_biases[static_cast<std::size_t>(at)] = vector(layer + name + ".bias", d);
    };
    add_norm(NormAt::attention_in, "input_layernorm");
    add_norm(NormAt::mlp_in, "post_attention_layernorm");
    w.qkv = matrix(layer + "attention.query_key_value", d_qkv, d);
    w.o = matrix(layer + "attention.dense", d, config_.n_q * config_.d_head);
    if (config_.qkv_bias) w.qkv_bias = vector(layer + "attention.query_key_value.bias", d_qkv);
    if (config_.o_bias) w.o_bias = vector(layer + "attention.dense.bias", d);
    w.up = matrix(layer + "mlp.dense_h_to_4h", config_.d_ff, d);
    w.up_bias = vector(layer + "mlp.dense_h_to_4h.bias", config_.d_ff);
    w.down = matrix(layer + "mlp.dense_4h_to_h", d, config_.d_ff);
    w.down_bias = vector(layer + "mlp.dense_4h_to_h.bias", d);
    return w;
  }

  void add_norms(const std::string& layer, LayerWeights& w) const {
    const bool has_both = config_.plan.norms == LayerPlan::Norms::both;
    // "post_attention_layernorm" is, in families without norms behind sublayers, the MLP's own.
    const std::array<std::string, 4> names = {
        "input_layernorm", "post_attention_layernorm",
        has_both ? "pre_feedforward_layernorm" : "post_attention_layernorm",
        "post_feedforward_layernorm"};
    for (std::size_t at = 0; at < names.size(); ++at) {
      if (!config_.plan.has_norm(static_cast<NormAt>(at))) continue;
      w.norms[at] = norm(layer + names[at], config_.d_model);
    }
  }

  void add_attention(Index layer, const std::string& prefix, LayerWeights& w) const {
    const LayerShape shape = config_.shape(layer);
    const bool has_k = shape.keys_of < 0;
    const bool has_v = has_k && !config_.has_keys_as_values(layer);
    const Index d = config_.d_model;
    const Index d_q = config_.n_q * shape.d_head;
    const Index d_kv = shape.n_kv * shape.d_head;
    if (config_.plan.fused_qkv) {
      const auto part = [&](Index begin, Index n) {
        return rows(prefix + "qkv_proj", {begin, d_q + 2 * d_kv}, n, d, kept_);
      };
      w.q = part(0, d_q);
      w.k = part(d_q, d_kv);
      w.v = part(d_q + d_kv, d_kv);
    } else {
      w.q = matrix(prefix + "q_proj", d_q, d);
      if (has_k) w.k = matrix(prefix + "k_proj", d_kv, d);
      if (has_v) w.v = matrix(prefix + "v_proj", d_kv, d);
    }
    if (!has_k) {  // stored all the same by some
      for (const char* name : {"k_proj.weight", "k_proj.bias", "k_norm.weight", "v_proj.weight",
                               "v_proj.bias", "v_norm.weight"})
        files_.pass_over(prefix + name);
    }
    w.o = matrix(prefix + "o_proj", d, d_q);
    if (config_.qkv_bias) {
      w.q_bias = vector(prefix + "q_proj.bias", d_q);
      if (has_k) w.k_bias = vector(prefix + "k_proj.bias", d_kv);
      if (has_v) w.v_bias = vector(prefix + "v_proj.bias", d_kv);
    }
    if (config_.o_bias) w.o_bias = vector(prefix + "o_proj.bias", d);
    if (config_.qk_norm) {
      const bool all = config_.plan.norms_all_heads;
      w.q_norm = norm(prefix + "q_norm", all ? d_q : shape.d_head);
      if (has_k) w.k_norm = norm(prefix + "k_norm", all ? d_kv : shape.d_head);
    }
    if (config_.has_sink_logits) w.sink_logits = vector(prefix + "sinks", config_.n_q);
  }

  void add_layer_input(const std::string& layer, LayerWeights& w) const {
    const Index d = config_.d_model;
    w.input_gate = matrix(layer + "per_layer_input_gate", config_.d_layer_input, d);
    w.input_projection = matrix(layer + "per_layer_projection", d, config_.d_layer_input);
    w.input_norm = norm(layer + "post_per_layer_input_norm", d);
  }

  void add_mlp(Index d_ff, const std::string& prefix, LayerWeights& w) const {
    const Index d = config_.d_model;
    if (config_.plan.fused_gate_up) {
      w.gate = rows(prefix + "gate_up_proj", {0, 2 * d_ff}, d_ff, d, kept_);
      w.up = rows(prefix + "gate_up_proj", {d_ff, 2 * d_ff}, d_ff, d, kept_);
    } else {
      w.gate = matrix(prefix + "gate_proj", d_ff, d);
      w.up = matrix(prefix + "up_proj", d_ff, d);
    }
    w.down = matrix(prefix + "down_proj", d, d_ff);
    if (config_.mlp_bias) {
      w.gate_bias = vector(prefix + "gate_proj.bias", d_ff);
      w.up_bias = vector(prefix + "up_proj.bias", d_ff);
      w.down_bias = vector(prefix + "down_proj.bias", d);
    }
  }

  // Experts are never widened at load: those that no token is routed to stay on disk.
  void add_experts(const std::string& prefix, MoeWeights& moe) const {
    const Index d = config_.d_model;
    const Index d_ff = config_.moe.d_ff;
    moe.router = matrix(prefix + "gate", config_.moe.n_experts, d);
    for (Index e = 0; e < config_.moe.n_experts; ++e) {
      const auto part = [&](const char* name, Index n_rows, Index n_cols) {
        return rows(fmt::format("{}experts.{}.{}", prefix, e, name), {0, n_rows}, n_rows, n_cols,
                    Kept::as_stored);
      };
      ExpertWeights expert;
      expert.gate = part("gate_proj", d_ff, d);
      expert.up = part("up_proj", d_ff, d);
      expert.down = part("down_proj", d, d_ff);
      moe.experts.push_back(std::move(expert));
    }
  }

  void add_clamped_experts(const std::string& prefix, MoeWeights& moe) const {
    const Index d = config_.d_model;
    const Index d_ff = config_.moe.d_ff;
    const Index n_experts = config_.moe.n_experts;
    moe.router = matrix(prefix + "router", n_experts, d);
    moe.router_bias = vector(prefix + "router.bias", n_experts);
    const std::string experts = prefix + "experts.";
    if (files_.contains(experts + "0.gate_proj.weight")) return add_split_experts(experts, moe);
    moe.gate_up_bias = Matrix(files_, experts + "gate_up_proj_bias", n_experts, 2 * d_ff, kept_);
    moe.down_bias = Matrix(files_, experts + "down_proj_bias", n_experts, d, kept_);
    const bool is_packed = files_.contains(experts + "gate_up_proj_blocks");
    for (Index e = 0; e < n_experts; ++e) {
      const auto part = [&](const char* name, Index n_rows, Index n_cols) {
        const ExpertSlice slice{e, n_experts};
        const auto open = is_packed ? mxfp4_rows : columns_as_rows;
        return Matrix(open(files_, experts + name, slice, n_rows, n_cols), experts + name, n_rows,
                      n_cols, Kept::as_stored);
      };
      ExpertWeights expert;
      expert.gate_up = part("gate_up_proj", 2 * d_ff, d);
      expert.down = part("down_proj", d, d_ff);
      moe.experts.push_back(std::move(expert));
    }
  }

  // The same where gate and up are stored apart, expert by expert (GGUF).
  void add_split_experts(const std::string& experts, MoeWeights& moe) const {
    const Index d = config_.d_model;
    const Index d_ff = config_.moe.d_ff;
    const Index n_experts = config_.moe.n_experts;
    const Tensor<float> gate = files_.get_float(experts + "gate_proj_bias", {n_experts, d_ff});
    const Tensor<float> up = files_.get_float(experts + "up_proj_bias", {n_experts, d_ff});
    auto both = Tensor<float>::uninitialized({n_experts, 2 * d_ff});
    for (Index i = 0; i < gate.count(); ++i) {
      both.data()[2 * i] = gate.data()[i];
      both.data()[2 * i + 1] = up.data()[i];
    }
    moe.gate_up_bias = Matrix(std::move(both));
    moe.down_bias = Matrix(files_.get_float(experts + "down_proj_bias", {n_experts, d}));
    for (Index e = 0; e < n_experts; ++e) {
      const std::string name = fmt::format("{}{}.", experts, e);
      ExpertWeights expert;
      expert.gate_up = Matrix(
          alternating_rows(files_, name + "gate_proj.weight", name + "up_proj.weight", 2 * d_ff, d),
          name, 2 * d_ff, d, Kept::as_stored);
      expert.down = Matrix(files_, name + "down_proj.weight", d, d_ff, Kept::as_stored);
      moe.experts.push_back(std::move(expert));
    }
  }

  const ModelConfig& config_;
  const WeightFiles& files_;
  Kept kept_;
};

}  // namespace

void refuse_quantization(const ModelConfig& config) {
  if (!config.quantization.refusal.empty()) throw ConfigError(config.quantization.refusal);
}

namespace {

// True for a tensor of a layer behind those of the configuration: who reads the first layers alone
// (a draft) leaves the others as they are.
bool is_of_later_layer(const std::string& name, Index n_layers) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t at = name.find(kLayers);
  if (at == std::string::npos) return false;
  const std::size_t begin = at + kLayers.size();
  const auto layer =
      number_from<Index>(std::string_view(name).substr(begin, name.find('.', begin) - begin));
  return layer && *layer >= n_layers;
}

// Tensors that nobody asked for are most often harmless (a copy of a tied head, tables that old
// versions saved). These would change every number: weights of LoRA beside the model's, and biases
// of layers, which belong to another model class.
void refuse_unread(const ModelConfig& config, const WeightFiles& files) {
  for (const std::string& name : files.unread()) {
    const bool is_layer = name.starts_with("model.layers.") ||
                          name.starts_with("gpt_neox.layers.") || name.starts_with("blk.");
    if (name.find("lora_") != std::string::npos) {
      throw FormatError(
          "tensor {}: expected none, found an adapter's weights beside the model's; "
          "merge_and_unload() of the Python package peft merges them",
          quote(name));
    }
    const bool is_mask = name.ends_with(".attention.bias") || name.ends_with(".masked_bias");
    if (is_layer && !is_mask && name.ends_with(".bias") &&
        !is_of_later_layer(name, config.n_layers)) {
      throw FormatError(
          "tensor {}: expected none (a {} model with this configuration "
          "has no such bias), found one",
          quote(name), enum_name(config.family));
    }
  }
}

// A head that is stored beside a tied embedding counts where it differs, as in transformers 5.
bool has_own_head(const ModelConfig& config, const WeightFiles& files, const std::string& embedding,
                  const std::string& head) {
  if (!config.tied_embeddings) return true;
  if (!files.contains(head + ".weight")) return false;
  const Shape shape{config.n_vocab, config.d_model};
  const StoredTensor one = files.get(embedding + ".weight", shape);
  const StoredTensor other = files.get(head + ".weight", shape);
  const auto n_bytes = static_cast<std::size_t>(stored_bytes(one.type, shape.count()));
  return one.type != other.type || std::memcmp(one.data, other.data, n_bytes) != 0;
}

}  // namespace

ModelWeights collect_weights(const ModelConfig& config, const WeightFiles& files, Kept copies) {
  refuse_quantization(config);
  const Collector collector(config, files, copies);
  ModelWeights weights;
  const bool is_neox = config.plan.names == LayerPlan::Names::gpt_neox;
  const std::string head = is_neox ? "embed_out" : "lm_head";
  std::string embedding = is_neox ? "gpt_neox.embed_in" : "model.embed_tokens";
  // Tied, and stored under the head's name alone.
  if (config.tied_embeddings && !files.contains(embedding + ".weight") &&
      files.contains(head + ".weight")) {
    embedding = head;
  }
  weights.embedding = collector.matrix(embedding, config.n_vocab, config.d_model);
  for (Index i = 0; i < config.n_layers; ++i) weights.layers.push_back(collector.layer(i));
  const std::string final_norm = is_neox ? "gpt_neox.final_layer_norm" : "model.norm";
  weights.final_norm = collector.norm(final_norm, config.d_model);
  if (config.plan.layer_norm) {
    weights.final_norm_bias = collector.vector(final_norm + ".bias", config.d_model);
  }
  if (config.d_layer_input > 0) {
    const Index n = config.n_layers * config.d_layer_input;
    // Of a vocabulary's rows few are read: they stay where they are.
    weights.layer_inputs = collector.rows("model.embed_tokens_per_layer", {0, config.n_layer_vocab},
                                          config.n_layer_vocab, n, Kept::as_stored);
    weights.layer_input_projection =
        collector.matrix("model.per_layer_model_projection", n, config.d_model);
    weights.layer_input_norm =
        collector.norm("model.per_layer_projection_norm", config.d_layer_input);
  }
  if (has_own_head(config, files, embedding, head)) {
    weights.lm_head = collector.matrix(head, config.n_vocab, config.d_model);
  }
  refuse_unread(config, files);
  return weights;
}

}  // namespace kvscope
