#include "core/model/gguf/gguf_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

// One part of a layer or of the model: its name in GGUF files and at the hub.
struct NamePair {
  std::string_view gguf;
  std::string_view hub;
};

// The hub's name of `part`, empty if there is none.
template <std::size_t N>
std::string_view hub_part(const std::array<NamePair, N>& pairs, std::string_view part) {
  for (const NamePair& pair : pairs) {
    if (pair.gguf == part) return pair.hub;
  }
  return {};
}

constexpr std::array<NamePair, 3> kHubModel = {
    {{"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}}};

constexpr std::array<NamePair, 12> kHubLayer = {{{"attn_norm", "input_layernorm"},
                                                 {"attn_q", "self_attn.q_proj"},
                                                 {"attn_k", "self_attn.k_proj"},
                                                 {"attn_v", "self_attn.v_proj"},
                                                 {"attn_qkv", "self_attn.qkv_proj"},
                                                 {"attn_output", "self_attn.o_proj"},
                                                 {"attn_q_norm", "self_attn.q_norm"},
                                                 {"attn_k_norm", "self_attn.k_norm"},
                                                 {"ffn_gate", "mlp.gate_proj"},
                                                 {"ffn_up", "mlp.up_proj"},
                                                 {"ffn_down", "mlp.down_proj"},
                                                 {"post_ffw_norm", "post_feedforward_layernorm"}}};

constexpr std::array<NamePair, 3> kNeoxModel = {{{"token_embd", "gpt_neox.embed_in"},
                                                 {"output_norm", "gpt_neox.final_layer_norm"},
                                                 {"output", "embed_out"}}};

constexpr std::array<NamePair, 6> kNeoxLayer = {{{"attn_norm", "input_layernorm"},
                                                 {"ffn_norm", "post_attention_layernorm"},
                                                 {"attn_qkv", "attention.query_key_value"},
                                                 {"attn_output", "attention.dense"},
                                                 {"ffn_up", "mlp.dense_h_to_4h"},
                                                 {"ffn_down", "mlp.dense_4h_to_h"}}};

constexpr std::array<NamePair, 3> kHubExperts = {
    {{"ffn_gate_exps", "gate_proj"}, {"ffn_up_exps", "up_proj"}, {"ffn_down_exps", "down_proj"}}};

// "blk.7.attn_q.weight" taken apart.
struct TensorName {
  std::optional<Index> layer;
  std::string_view part;  // "attn_q"
  std::string_view kind;  // "weight", "bias"; may be empty
};

TensorName take_name_apart(std::string_view name) {
  TensorName result;
  if (name.starts_with("blk.")) {
    const std::size_t dot = name.find('.', 4);
    if (dot != std::string_view::npos) {
      result.layer = number_from<Index>(name.substr(4, dot - 4));
      name.remove_prefix(dot + 1);
    }
  }
  const std::size_t dot = name.rfind('.');
  result.part = name.substr(0, dot);
  if (dot != std::string_view::npos) result.kind = name.substr(dot + 1);
  return result;
}

class Renamer {
 public:
  Renamer(const ModelConfig& config, WeightEntries& entries)
      : config_(config), family_(config.family), entries_(entries) {}

  void add(const TensorInFile& tensor, const std::string& file) {
    const TensorName name = take_name_apart(tensor.name);
    WeightEntry entry{tensor, file};
    if (name.layer && !hub_part(kHubExperts, name.part).empty() && config_.moe.n_experts > 0) {
      return add_experts(tensor, name, entry);
    }
    set_order(name, entry);
    if (config_.plan.norm_adds_one && name.part.ends_with("_norm")) entry.added = 1.0f;
    put(hub_name(tensor, name), std::move(entry));
  }

 private:
  bool is_neox() const { return config_.plan.names == LayerPlan::Names::gpt_neox; }

  std::string hub_name(const TensorInFile& tensor, const TensorName& name) const {
    if (!name.layer) {
      const std::string_view part =
          is_neox() ? hub_part(kNeoxModel, name.part) : hub_part(kHubModel, name.part);
      return part.empty() ? tensor.name : fmt::format("{}.{}", part, name.kind);
    }
    const std::string_view part = layer_part(name.part);
    if (part.empty()) return tensor.name;
    const std::string layer =
        fmt::format("{}.layers.{}.{}", is_neox() ? "gpt_neox" : "model", *name.layer, part);
    return name.part == "attn_sinks" ? layer : fmt::format("{}.{}", layer, name.kind);
  }

  std::string_view layer_part(std::string_view part) const {
    if (is_neox()) return hub_part(kNeoxLayer, part);
    const bool is_gemma = config_.plan.norms == LayerPlan::Norms::both;
    if (part == "ffn_norm") {
      return is_gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    }
    if (part == "post_attention_norm") return "post_attention_layernorm";
    if (part == "attn_sinks") return "self_attn.sinks";
    if (part == "ffn_gate_inp") return config_.moe.is_clamped ? "mlp.router" : "mlp.gate";
    if (part == "ffn_up" && config_.plan.fused_gate_up) return "mlp.gate_up_proj";
    return hub_part(kHubLayer, part);
  }

  // See RowOrder. SmolLM3 is converted as Llama is.
  void set_order(const TensorName& name, WeightEntry& entry) const {
    const bool turns_pairs = family_ == ModelFamily::llama || family_ == ModelFamily::mistral ||
                             family_ == ModelFamily::smollm3;
    if (turns_pairs && (name.part == "attn_q" || name.part == "attn_k")) {
      entry.order = {2, config_.d_head / 2, 1};
    }
    if (is_neox() && name.part == "attn_qkv") entry.order = {config_.n_q, 3, config_.d_head};
    const Index span = entry.order.n_outer * entry.order.n_inner * entry.order.unit;
    if (entry.shape.front() % span != 0) {
      throw FormatError("tensor {} ({}): expected a multiple of {} rows, found {}",
                        quote(name.part), entry.file, span, entry.shape.front());
    }
  }

  // One tensor [n_experts, rows, cols] becomes one per expert; biases [n_experts, rows] stay whole.
  void add_experts(const TensorInFile& tensor, const TensorName& name, const WeightEntry& whole) {
    const std::string experts = fmt::format("model.layers.{}.mlp.experts.", *name.layer);
    const std::string_view part = hub_part(kHubExperts, name.part);
    if (name.kind == "bias") return put(fmt::format("{}{}_bias", experts, part), whole);
    if (tensor.shape.size() != 3 || tensor.shape.front() != config_.moe.n_experts || !tensor.type) {
      return put(tensor.name, whole);  // refused as missing where it is needed
    }
    const std::size_t n_bytes = tensor.bytes.size() / static_cast<std::size_t>(tensor.shape[0]);
    for (Index e = 0; e < tensor.shape[0]; ++e) {
      WeightEntry one = whole;
      one.shape = {tensor.shape[1], tensor.shape[2]};
      one.count = tensor.shape[1] * tensor.shape[2];
      one.bytes = tensor.bytes.subspan(static_cast<std::size_t>(e) * n_bytes, n_bytes);
      put(fmt::format("{}{}.{}.weight", experts, e, part), std::move(one));
    }
  }

  void put(std::string name, WeightEntry entry) {
    const auto [it, is_new] = entries_.try_emplace(std::move(name), std::move(entry));
    if (!is_new)
      throw FormatError("tensor {} is given twice ({})", quote(it->first), it->second.file);
  }

  const ModelConfig& config_;
  ModelFamily family_;
  WeightEntries& entries_;
};

}  // namespace

WeightEntries hub_weights(const GgufCheckpoint& checkpoint) {
  const ModelConfig config = parse_model_config(hub_config(checkpoint), checkpoint.file());
  WeightEntries entries;
  Renamer renamer(config, entries);
  checkpoint.for_each_tensor(
      [&](const TensorInFile& tensor, const std::string& file) { renamer.add(tensor, file); });
  // What the config was made of is no weight.
  entries.erase("rope_freqs.weight");
  return entries;
}

std::string readable_gguf_types() {
  std::vector<std::string_view> names;
  for (int i = 0; i + 1 < kNumStoredTypes; ++i)
    names.push_back(name_of(static_cast<StoredType>(i)));
  return fmt::format("{} or {}", fmt::join(names, ", "),
                     name_of(static_cast<StoredType>(kNumStoredTypes - 1)));
}

}  // namespace kvscope
