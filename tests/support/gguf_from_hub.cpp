#include "tests/support/gguf_from_hub.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <utility>

#include "core/model/safetensors.hpp"
#include "tests/support/temp_dir.hpp"

namespace kvscope::testing {

namespace {

using nlohmann::json;

struct Values {
  std::vector<Index> shape;
  std::vector<float> at;  // widened; empty for packed bytes
  std::string bytes;
};

std::map<std::string, Values> read_tensors(const std::filesystem::path& folder) {
  std::map<std::string, Values> tensors;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".safetensors") continue;
    const std::string bytes = read_file(file.path());
    for (const TensorInFile& entry :
         parse_safetensors(std::as_bytes(std::span(bytes)), file.path().string())) {
      Values values{entry.shape, {}, {}};
      if (entry.type) {
        values.at.resize(static_cast<std::size_t>(entry.count));
        widen(*entry.type, entry.bytes.data(), values.at.data(), entry.count);
      } else {
        values.bytes.assign(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
      }
      tensors[entry.name] = std::move(values);
    }
  }
  return tensors;
}

class Converter {
 public:
  explicit Converter(const std::filesystem::path& folder)
      : config_(json::parse(read_file(folder / "config.json"))),
        type_(config_.at("model_type")),
        tensors_(read_tensors(folder)) {
    const std::map<std::string, std::string> names = {{"mistral", "llama"},
                                                      {"qwen3_moe", "qwen3moe"},
                                                      {"gpt_oss", "gpt-oss"},
                                                      {"gemma3_text", "gemma3"},
                                                      {"gpt_neox", "gptneox"}};
    arch_ = names.contains(type_) ? names.at(type_) : type_;
    n_heads_ = config_.at("num_attention_heads");
    n_kv_ = config_.value("num_key_value_heads", n_heads_);
    d_head_ = config_.value("head_dim", config_.at("hidden_size").get<Index>() / n_heads_);
  }

  GgufBuilder convert() {
    metadata();
    for (const auto& [name, values] : tensors_) tensor(name, values);
    for (Index layer = 0; layer < config_.at("num_hidden_layers"); ++layer) experts(layer);
    return builder_;
  }

 private:
  std::string key(const std::string& name) const { return arch_ + "." + name; }

  void count(const std::string& name, const char* field) {
    if (config_.contains(field) && !config_[field].is_null())
      builder_.u32(key(name), config_[field].get<std::uint32_t>());
  }

  void number(const std::string& name, const char* field) {
    if (config_.contains(field) && !config_[field].is_null())
      builder_.f32(key(name), config_[field].get<float>());
  }

  void metadata() {
    builder_.string("general.architecture", arch_).string("general.type", "model");
    count("block_count", "num_hidden_layers");
    count("context_length", "max_position_embeddings");
    count("embedding_length", "hidden_size");
    count("feed_forward_length", "intermediate_size");
    count("attention.head_count", "num_attention_heads");
    count("attention.head_count_kv", "num_key_value_heads");
    number("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    number("attention.layer_norm_epsilon", "layer_norm_eps");
    builder_.u32(key("attention.key_length"), static_cast<std::uint32_t>(d_head_));
    builder_.u32(key("attention.value_length"), static_cast<std::uint32_t>(d_head_));
    if (type_ != "qwen3" && type_ != "qwen3_moe")
      count("attention.sliding_window", "sliding_window");
    number("attn_logit_softcapping", "attn_logit_softcapping");
    number("final_logit_softcapping", "final_logit_softcapping");
    if (config_.contains("query_pre_attn_scalar")) {
      builder_.f32(key("attention.scale"),
                   1.0f / std::sqrt(config_["query_pre_attn_scalar"].get<float>()));
    }
    if (type_ == "gemma3_text" || type_ == "gemma2") window_pattern();
    if (type_ == "gpt_neox")
      builder_.boolean(key("use_parallel_residual"), config_.at("use_parallel_residual"));
    count("expert_count", "num_local_experts");
    count("expert_used_count", "num_experts_per_tok");
    if (type_ == "qwen3_moe") count("expert_feed_forward_length", "moe_intermediate_size");
    if (type_ == "gpt_oss") count("expert_feed_forward_length", "intermediate_size");
    rope();
    builder_.u32("tokenizer.ggml.bos_token_id", config_.at("bos_token_id"));
    builder_.u32("tokenizer.ggml.eos_token_id", config_.at("eos_token_id"));
  }

  void window_pattern() {
    std::string list = raw(std::uint32_t{7}) + raw(std::uint64_t{config_["layer_types"].size()});
    for (const json& one : config_["layer_types"])
      list += raw(std::uint8_t{one == "sliding_attention"});
    builder_.field(key("attention.sliding_window_pattern"), 9, list);
  }

  void rope() {
    json rope = json::object();
    for (const char* group : {"rope_scaling", "rope_parameters"}) {
      if (config_.contains(group) && config_[group].is_object()) rope = config_[group];
    }
    if (rope.contains("full_attention")) {
      builder_.f32(key("rope.freq_base_swa"), rope["sliding_attention"]["rope_theta"].get<float>());
      rope = rope["full_attention"];
    }
    const double theta = rope.contains("rope_theta") ? rope["rope_theta"].get<double>()
                                                     : config_.value("rope_theta", 10000.0);
    builder_.f32(key("rope.freq_base"), static_cast<float>(theta));
    const double rotated = rope.value("partial_rotary_factor", 1.0) * static_cast<double>(d_head_);
    builder_.u32(key("rope.dimension_count"), static_cast<std::uint32_t>(rotated));
    const std::string kind = rope.value("rope_type", "default");
    if (kind == "llama3") return llama3_factors(rope, theta);
    if (kind == "default") return;
    builder_.string(key("rope.scaling.type"), kind);
    builder_.f32(key("rope.scaling.factor"), rope["factor"].get<float>());
    if (rope.contains("original_max_position_embeddings")) {
      builder_.u32(key("rope.scaling.original_context_length"),
                   rope["original_max_position_embeddings"].get<std::uint32_t>());
    }
  }

  void llama3_factors(const json& rope, double theta) {
    const double factor = rope["factor"], low = rope["low_freq_factor"];
    const double high = rope["high_freq_factor"];
    const double original = rope["original_max_position_embeddings"];
    std::vector<float> factors;
    for (Index i = 0; i < d_head_ / 2; ++i) {
      const double frequency =
          std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(d_head_));
      const double length = 2.0 * std::numbers::pi / frequency;
      const double smooth = (original / length - low) / (high - low);
      double divided = 1.0 / ((1.0 - smooth) / factor + smooth);
      if (length < original / high) divided = 1.0;
      if (length > original / low) divided = factor;
      factors.push_back(static_cast<float>(divided));
    }
    builder_.tensor("rope_freqs.weight", {d_head_ / 2}, factors);
  }

  // ---- tensors

  static std::string replaced(std::string name) {
    const std::vector<std::pair<std::string, std::string>> pairs = {
        {"model.embed_tokens", "token_embd"},
        {"gpt_neox.embed_in", "token_embd"},
        {"model.norm", "output_norm"},
        {"gpt_neox.final_layer_norm", "output_norm"},
        {"lm_head", "output"},
        {"embed_out", "output"},
        {"model.layers", "blk"},
        {"gpt_neox.layers", "blk"},
        {"input_layernorm", "attn_norm"},
        {"pre_feedforward_layernorm", "ffn_norm"},
        {"post_feedforward_layernorm", "post_ffw_norm"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.qkv_proj", "attn_qkv"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"self_attn.sinks", "attn_sinks.weight"},
        {"attention.query_key_value", "attn_qkv"},
        {"attention.dense", "attn_output"},
        {"mlp.gate_up_proj", "ffn_up"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"mlp.dense_h_to_4h", "ffn_up"},
        {"mlp.dense_4h_to_h", "ffn_down"},
        {"mlp.router", "ffn_gate_inp"},
        {"mlp.gate.", "ffn_gate_inp."}};
    for (const auto& [from, to] : pairs) {
      if (const std::size_t at = name.find(from); at != std::string::npos)
        name.replace(at, from.size(), to);
    }
    return name;
  }

  void tensor(const std::string& name, const Values& values) {
    if (name.find(".experts.") != std::string::npos) return;
    std::string to = replaced(name);
    const bool is_post =
        type_ == "gemma2" || type_ == "gemma3_text" || type_ == "olmo2" || type_ == "gpt_oss";
    if (const std::size_t at = to.find("post_attention_layernorm"); at != std::string::npos)
      to.replace(at, 24, is_post ? "post_attention_norm" : "ffn_norm");
    std::vector<float> out = values.at;
    const bool turns = type_ == "llama" || type_ == "mistral" || type_ == "smollm3";
    if (turns && to.find("attn_q.") != std::string::npos) out = with_pairs(values, n_heads_);
    if (turns && to.find("attn_k.") != std::string::npos) out = with_pairs(values, n_kv_);
    if (type_ == "gpt_neox" && to.find("attn_qkv") != std::string::npos) out = by_part(values);
    if (type_.starts_with("gemma") && to.ends_with("norm.weight")) {
      for (float& x : out) x += 1.0f;
    }
    builder_.tensor(to, values.shape, out);
  }

  // First and second halves of every head become pairs.
  std::vector<float> with_pairs(const Values& values, Index n_heads) const {
    const Index n_rows = values.shape[0];
    const Index width = static_cast<Index>(values.at.size()) / n_rows;
    const Index half = n_rows / n_heads / 2;
    std::vector<float> out;
    for (Index head = 0; head < n_heads; ++head)
      for (Index i = 0; i < half; ++i)
        for (Index which = 0; which < 2; ++which)
          for (Index c = 0; c < width; ++c) {
            const Index row = head * 2 * half + which * half + i;
            out.push_back(values.at[row * width + c]);
          }
    return out;
  }

  // Each head's q, k and v become all q, all k, all v.
  std::vector<float> by_part(const Values& values) const {
    const Index n_rows = values.shape[0];
    const Index width = static_cast<Index>(values.at.size()) / n_rows;
    std::vector<float> out;
    for (Index which = 0; which < 3; ++which)
      for (Index head = 0; head < n_heads_; ++head)
        for (Index i = 0; i < d_head_; ++i)
          for (Index c = 0; c < width; ++c) {
            const Index row = head * 3 * d_head_ + which * d_head_ + i;
            out.push_back(values.at[row * width + c]);
          }
    return out;
  }

  // ---- experts: all of a layer in one tensor

  void experts(Index layer) {
    const std::string hub = fmt::format("model.layers.{}.mlp.experts.", layer);
    const std::string block = fmt::format("blk.{}.ffn_", layer);
    if (tensors_.contains(hub + "0.gate_proj.weight")) return stack(hub, block);
    if (tensors_.contains(hub + "gate_up_proj")) return split(hub, block);
    if (tensors_.contains(hub + "gate_up_proj_blocks")) return split_packed(hub, block);
  }

  void stack(const std::string& hub, const std::string& block) {
    for (const char* part : {"gate", "up", "down"}) {
      std::vector<float> all;
      std::vector<Index> shape;
      Index n = 0;
      for (; tensors_.contains(fmt::format("{}{}.{}_proj.weight", hub, n, part)); ++n) {
        const Values& one = tensors_.at(fmt::format("{}{}.{}_proj.weight", hub, n, part));
        shape = one.shape;
        all.insert(all.end(), one.at.begin(), one.at.end());
      }
      shape.insert(shape.begin(), n);
      builder_.tensor(fmt::format("{}{}_exps.weight", block, part), shape, all);
    }
  }

  // The columns `first`, `first` + step, ... of each expert's matrix, as rows.
  static std::vector<float> columns(const Values& values, Index first, Index step) {
    const Index n_rows = values.shape[1], n_cols = values.shape[2];
    std::vector<float> out;
    for (Index e = 0; e < values.shape[0]; ++e)
      for (Index c = first; c < n_cols; c += step)
        for (Index r = 0; r < n_rows; ++r) out.push_back(values.at[(e * n_rows + r) * n_cols + c]);
    return out;
  }

  void biases(const std::string& hub, const std::string& block) {
    const Values& both = tensors_.at(hub + "gate_up_proj_bias");
    const Index width = both.shape[1] / 2;
    for (Index which = 0; which < 2; ++which) {
      std::vector<float> out;
      for (std::size_t i = static_cast<std::size_t>(which); i < both.at.size(); i += 2)
        out.push_back(both.at[i]);
      builder_.tensor(block + (which == 0 ? "gate" : "up") + "_exps.bias", {both.shape[0], width},
                      out);
    }
    const Values& down = tensors_.at(hub + "down_proj_bias");
    builder_.tensor(block + "down_exps.bias", down.shape, down.at);
  }

  void split(const std::string& hub, const std::string& block) {
    biases(hub, block);
    const Values& both = tensors_.at(hub + "gate_up_proj");  // [n_experts, d_model, 2 d_ff]
    const std::vector<Index> shape = {both.shape[0], both.shape[2] / 2, both.shape[1]};
    builder_.tensor(block + "gate_exps.weight", shape, columns(both, 0, 2));
    builder_.tensor(block + "up_exps.weight", shape, columns(both, 1, 2));
    const Values& down = tensors_.at(hub + "down_proj");
    builder_.tensor(block + "down_exps.weight", {down.shape[0], down.shape[2], down.shape[1]},
                    columns(down, 0, 1));
  }

  // Rows `first`, `first` + step, ... of packed matrices: a scale in front of each block, low
  // halves of bytes first.
  std::string packed(const std::string& name, Index first, Index step) const {
    const Values& blocks = tensors_.at(name + "_blocks");  // [n_experts, n_rows, n_blocks, 16]
    const Values& scales = tensors_.at(name + "_scales");
    std::string out;
    for (Index e = 0; e < blocks.shape[0]; ++e)
      for (Index r = first; r < blocks.shape[1]; r += step)
        for (Index b = 0; b < blocks.shape[2]; ++b) {
          const auto at = static_cast<std::size_t>((e * blocks.shape[1] + r) * blocks.shape[2] + b);
          out += scales.bytes[at];
          int values[32];
          for (std::size_t i = 0; i < 16; ++i) {
            const auto byte = static_cast<unsigned char>(blocks.bytes[at * 16 + i]);
            values[2 * i] = byte & 15;
            values[2 * i + 1] = byte >> 4;
          }
          for (std::size_t i = 0; i < 16; ++i)
            out += static_cast<char>(values[i] | values[i + 16] << 4);
        }
    return out;
  }

  void split_packed(const std::string& hub, const std::string& block) {
    biases(hub, block);
    constexpr std::uint32_t kMxfp4 = 39;
    const auto shape = [&](const std::string& name, Index step) -> std::vector<Index> {
      const Values& blocks = tensors_.at(name + "_blocks");
      return {blocks.shape[0], blocks.shape[1] / step, blocks.shape[2] * 32};
    };
    const std::string both = hub + "gate_up_proj";
    builder_.raw_tensor(block + "gate_exps.weight", kMxfp4, shape(both, 2), packed(both, 0, 2));
    builder_.raw_tensor(block + "up_exps.weight", kMxfp4, shape(both, 2), packed(both, 1, 2));
    const std::string down = hub + "down_proj";
    builder_.raw_tensor(block + "down_exps.weight", kMxfp4, shape(down, 1), packed(down, 0, 1));
  }

  json config_;
  std::string type_;
  std::string arch_;
  std::map<std::string, Values> tensors_;
  Index n_heads_ = 0, n_kv_ = 0, d_head_ = 0;
  GgufBuilder builder_;
};

}  // namespace

GgufBuilder gguf_from_hub(const std::filesystem::path& folder) {
  return Converter(folder).convert();
}

}  // namespace kvscope::testing
