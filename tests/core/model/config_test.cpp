// config.json of published and made-up models: what is read, what is refused, by name.
#include "core/model/config.hpp"

#include <map>
#include <nlohmann/json.hpp>

#include "core/model/layer_weights.hpp"
#include "tests/support/places.hpp"
#include "tests/support/test.hpp"

namespace kvscope::config_test {

using nlohmann::json;

const std::filesystem::path kConfigs = testing::source_dir() / "tests/golden/configs";

json small(const char* family) {
  return {{"model_type", family},     {"hidden_size", 64},        {"num_hidden_layers", 4},
          {"num_attention_heads", 8}, {"intermediate_size", 160}, {"vocab_size", 320}};
}

ModelConfig parse(const json& config) {
  return parse_model_config(config.dump(), "config.json");
}

// `config` with one field changed must be refused with an error of type E that names the field and
// the file.
template <class E>
void check_refused(json config, const std::string& field, const json& value,
                   const std::string& message) {
  config[field] = value;
  CAPTURE(field, value.dump());
  CHECK_SAYS_AS(E, parse(config), field, "config.json", message);
}

TEST_CASE("published configs give the published numbers of parameters") {
  const std::map<std::string, std::int64_t> expected = {
      {"Llama-2-7b-hf", 6738415616},
      {"Llama-3.1-70B", 70553706496},
      {"Llama-3.1-8B-Instruct", 8030261248},
      {"Llama-3.2-1B-Instruct", 1235814400},
      {"Llama-3.2-3B-Instruct", 3212749824},
      {"Qwen2.5-0.5B-Instruct", 494032768},
      {"Qwen2.5-7B-Instruct", 7615616512},
      {"Qwen3-0.6B-base-think-sft", 596049920},
      {"Qwen3-30B-A3B-Instruct-2507", 30532122624},
      {"Qwen3-32B", 32762123264},
      {"Qwen3-8B", 8190735360},
      {"Qwen3-Embedding-0.6B", 595776512},
      {"SmolLM3-3B", 3075098624},
      {"TinyLlama-1.1B-Chat-v1.0", 1100048384},
  };
  for (const auto& [name, n_parameters] : expected) {
    CAPTURE(name);
    const ModelConfig config =
        parse_model_config(testing::read_file(kConfigs / (name + ".config.json")), name);
    CHECK(config.n_parameters() == n_parameters);
    CHECK(config.window ==
          std::vector<std::optional<Index>>(static_cast<std::size_t>(config.n_layers)));
  }
}

TEST_CASE("gpt-oss configs: parameters, alternating windows, sinks and YaRN") {
  struct Published {
    const char* name;
    Index n_layers;
    Index n_experts;
    std::int64_t n_parameters;
    std::int64_t n_active;
  };
  // gpt-oss's model card: 20.9 and 116.8 billion, of which a token uses 3.6 and 5.1; the latter do
  // not count the 0.58 billion of the input embedding.
  for (const Published& p :
       {Published{"gpt-oss-20b", 24, 32, 20914757184, 4187440704},
        Published{"gpt-oss-120b.derived", 36, 128, 116829156672, 5711982912}}) {
    CAPTURE(p.name);
    const ModelConfig config = parse_model_config(
        testing::read_file(kConfigs / (std::string(p.name) + ".config.json")), p.name);
    CHECK(config.family == ModelFamily::gpt_oss);
    CHECK(config.n_layers == p.n_layers);
    CHECK(config.moe.n_experts == p.n_experts);
    CHECK(config.moe.n_picked == 4);
    CHECK(config.moe.d_ff == 2880);
    CHECK(config.moe.is_clamped);
    CHECK(config.moe.swiglu_alpha == 1.702);
    CHECK(config.moe.swiglu_limit == 7.0);
    CHECK(config.moe.weights == MoeConfig::Weights::softmax_of_picked);
    CHECK(config.n_parameters() == p.n_parameters);
    CHECK(config.n_active_parameters() == p.n_active);
    CHECK(config.has_sink_logits);
    CHECK(config.qkv_bias);
    CHECK(config.o_bias);
    CHECK(config.window[0] == 128);
    CHECK_FALSE(config.window[1]);
    CHECK(config.rope.kind == "yarn");
    CHECK(config.rope.factor == 32.0);
    CHECK(std::abs(config.rope.amplitude - 1.3465735902799727) < 1e-12);  // 0.1 ln 32 + 1
    CHECK(config.quantization.method == "gptq");
  }
}

TEST_CASE("Qwen3-MoE and SmolLM3 configs: experts, and layers without RoPE") {
  const ModelConfig qwen = parse_model_config(
      testing::read_file(kConfigs / "Qwen3-30B-A3B-Instruct-2507.config.json"), "Qwen3-30B-A3B");
  CHECK(qwen.moe.n_experts == 128);
  CHECK(qwen.moe.n_picked == 8);
  CHECK(qwen.moe.d_ff == 768);
  CHECK(qwen.moe.weights == MoeConfig::Weights::softmax_of_picked);  // norm_topk_prob
  CHECK_FALSE(qwen.moe.is_clamped);
  CHECK(qwen.has_experts == std::vector<bool>(48, true));
  CHECK(qwen.n_active_parameters() == 3353032704);  // "A3B"
  const ModelConfig smol =
      parse_model_config(testing::read_file(kConfigs / "SmolLM3-3B.config.json"), "SmolLM3-3B");
  for (std::size_t i = 0; i < 36; ++i) CHECK(smol.has_rope[i] == (i % 4 != 3));
  CHECK(smol.n_active_parameters() == smol.n_parameters());
}

json small_moe() {
  json config = small("qwen3_moe");
  config["num_experts"] = 8;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = 48;
  return config;
}

json small_gpt_oss() {
  json config = small("gpt_oss");
  config["num_local_experts"] = 4;
  config["num_experts_per_tok"] = 2;
  return config;
}

TEST_CASE("which layers have experts, and what their fields must be") {
  CHECK(parse(small_moe()).has_experts == std::vector<bool>(4, true));
  CHECK(parse(small_moe()).moe.weights == MoeConfig::Weights::softmax_of_all);
  CHECK(parse(small("llama")).has_experts == std::vector<bool>(4, false));
  json config = small_moe();
  config["decoder_sparse_step"] = 2;
  CHECK(parse(config).has_experts == std::vector<bool>{false, true, false, true});
  config["mlp_only_layers"] = {3};
  CHECK(parse(config).has_experts == std::vector<bool>{false, true, false, false});
  check_refused<FormatError>(small_moe(), "mlp_only_layers", json::array({4}),
                             "layers from 0 to 3");
  check_refused<FormatError>(small_moe(), "mlp_only_layers", json::array({-1}), "layers from 0");
  check_refused<FormatError>(small_moe(), "num_experts", 0, "expected an integer");
  check_refused<ConfigError>(small_moe(), "num_experts", 1 << 20, "expected at most");
  check_refused<ConfigError>(small_moe(), "num_experts_per_tok", 9, "at most the 8 experts");
  check_refused<ConfigError>(small_moe(), "num_local_experts", 9, "num_experts = 8");
  check_refused<ConfigError>(small_moe(), "moe_intermediate_size", 1 << 22, "over all experts");
  for (const char* field : {"num_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
    config = small_moe();
    config.erase(field);
    CAPTURE(field);
    CHECK_THROWS_AS(parse(config), FormatError);
  }
  config = small_moe();
  config.erase("num_experts");
  config["num_local_experts"] = 8;
  CHECK(parse(config).moe.n_experts == 8);
}

TEST_CASE("layers without RoPE, given as a list or by an interval") {
  json config = small("smollm3");
  CHECK(parse(config).has_rope == std::vector<bool>{true, true, true, false});
  CHECK(parse(config).tied_embeddings);
  CHECK(parse(config).rope.theta == 2000000.0);
  config["no_rope_layer_interval"] = 2;
  CHECK(parse(config).has_rope == std::vector<bool>{true, false, true, false});
  config["no_rope_layers"] = {0, 1, 1, 1, 0};  // longer than the model is allowed
  CHECK(parse(config).has_rope == std::vector<bool>{false, true, true, true});
  config["use_sliding_window"] = true;
  config["sliding_window"] = 12;  // transformers slides in the layers without RoPE
  CHECK(parse(config).window[0] == 12);
  CHECK_FALSE(parse(config).window[1]);
  check_refused<FormatError>(small("smollm3"), "no_rope_layers", json::array({1, 0}), "at least");
  check_refused<FormatError>(small("smollm3"), "no_rope_layers", json::array({1, 0, 2, 1}),
                             "0 (no RoPE) or 1");
}

TEST_CASE("gpt-oss windows: alternating unless layer_types says otherwise") {
  using Windows = std::vector<std::optional<Index>>;
  json config = small_gpt_oss();
  CHECK(parse(config).window == Windows{128, std::nullopt, 128, std::nullopt});
  config["sliding_window"] = 8;
  config["layer_types"] = {"full_attention", "full_attention", "sliding_attention",
                           "full_attention"};
  CHECK(parse(config).window == Windows{std::nullopt, std::nullopt, 8, std::nullopt});
  config["sliding_window"] = nullptr;
  CHECK_THROWS_AS(parse(config), ConfigError);
  json moe = small_moe();  // slides everywhere, as in transformers, or nowhere
  moe["sliding_window"] = 8;
  CHECK(parse(moe).window == Windows(4));
  moe["use_sliding_window"] = true;
  CHECK(parse(moe).window == Windows(4, 8));
}

TEST_CASE("absent fields get the defaults of transformers") {
  const ModelConfig llama = parse(small("llama"));
  CHECK(llama.n_kv == 8);
  CHECK(llama.d_head == 8);
  CHECK(llama.rms_eps == 1e-6);
  CHECK(llama.rope.kind == "default");
  CHECK(llama.rope.theta == 10000.0);
  CHECK(llama.max_positions == 2048);
  CHECK_FALSE(llama.tied_embeddings);
  CHECK(llama.bos_id == 1);
  CHECK(llama.eos_ids == std::vector<std::int32_t>{2});
  CHECK_FALSE(llama.window[0]);

  CHECK(parse(small("mistral")).window[3] == 4096);
  json qwen3 = small("qwen3");
  qwen3["num_key_value_heads"] = nullptr;
  CHECK(parse(qwen3).d_head == 128);
  CHECK(parse(qwen3).n_kv == 8);
  CHECK(parse(qwen3).eos_ids.empty());
  CHECK_FALSE(parse(qwen3).bos_id);
  qwen3["head_dim"] = nullptr;
  CHECK(parse(qwen3).d_head == 8);
}

TEST_CASE("rotary settings that are none are refused in both styles") {
  for (const char* group : {"rope_scaling", "rope_parameters"}) {
    for (const json& broken :
         {json{{"type", "linear"}}, json{{"type", "linear"}, {"factor", "2"}},
          json{{"rope_type", "linear"}, {"factor", 0.0}}, json{{"rope_type", 3}},
          json{{"type", "llama3"}, {"factor", 8.0}}, json("linear")}) {
      json config = small("llama");
      config[group] = broken;
      CAPTURE(group, broken.dump());
      CHECK_THROWS_AS(parse(config), FormatError);
    }
  }
}

TEST_CASE("sliding windows") {
  using Windows = std::vector<std::optional<Index>>;
  const Windows none(4);
  json mistral = small("mistral");
  mistral["sliding_window"] = 12;
  CHECK(parse(mistral).window == Windows(4, 12));
  mistral["sliding_window"] = nullptr;
  CHECK(parse(mistral).window == none);

  for (const char* family : {"qwen2", "qwen3"}) {
    CAPTURE(family);
    json qwen = small(family);
    qwen["num_key_value_heads"] = 2;
    qwen["sliding_window"] = 12;
    qwen["max_window_layers"] = 1;
    CHECK(parse(qwen).window == none);
    qwen["use_sliding_window"] = true;
    CHECK(parse(qwen).window == Windows{std::nullopt, 12, 12, 12});
    qwen["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "sliding_attention"};
    CHECK(parse(qwen).window == Windows{12, std::nullopt, std::nullopt, 12});
    qwen["use_sliding_window"] = false;
    CHECK_THROWS_AS(parse(qwen), ConfigError);
    qwen["layer_types"] = json::array({"full_attention"});
    CHECK_THROWS_AS(parse(qwen), FormatError);
    qwen["layer_types"] = {"full_attention", "full_attention", "full_attention",
                           "chunked_attention"};
    CHECK_THROWS_AS(parse(qwen), ConfigError);
    json zero = small(family);
    zero["use_sliding_window"] = true;
    zero["num_key_value_heads"] = 8;
    check_refused<FormatError>(zero, "sliding_window", 0, "expected an integer");
  }
  const json full(4, "full_attention"), sliding(4, "sliding_attention");
  json llama = small("llama");
  llama["layer_types"] = full;
  CHECK(parse(llama).window == none);
  llama["layer_types"] = sliding;
  CHECK_THROWS_AS(parse(llama), ConfigError);
  mistral["layer_types"] = full;
  CHECK(parse(mistral).window == none);
  mistral["sliding_window"] = 12;
  CHECK_THROWS_AS(parse(mistral), ConfigError);
  mistral["layer_types"] = sliding;
  CHECK(parse(mistral).window == Windows(4, 12));
}

TEST_CASE("token ids") {
  json config = small("llama");
  config["eos_token_id"] = {3, 4};
  config["bos_token_id"] = nullptr;
  CHECK(parse(config).eos_ids == std::vector<std::int32_t>{3, 4});
  CHECK_FALSE(parse(config).bos_id);
  config["eos_token_id"] = nullptr;
  CHECK(parse(config).eos_ids.empty());
  for (const json& broken :
       {json(-1), json("2"), json(1.5), json(4294967296), json::array({nullptr})}) {
    check_refused<FormatError>(small("llama"), "eos_token_id", broken, "expected a token id");
  }
  check_refused<FormatError>(small("llama"), "bos_token_id", json::array({1}),
                             "expected a token id");
}

TEST_CASE("missing, ill-typed and out-of-range fields name themselves") {
  for (const char* field : {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
                            "intermediate_size", "vocab_size"}) {
    json config = small("llama");
    config.erase(field);
    CAPTURE(field);
    CHECK_SAYS_AS(FormatError, parse(config), field, "found nothing");
  }
  for (const char* field :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
        "vocab_size", "head_dim", "num_key_value_heads", "max_position_embeddings"}) {
    for (const json& broken : {json(0), json(-4), json("64"), json(64.0), json(true),
                               json::array({64}), json(18446744073709551615u)}) {
      check_refused<FormatError>(small("llama"), field, broken, "expected an integer");
    }
    check_refused<ConfigError>(small("llama"), field, std::int64_t{1} << 40, "expected at most");
    check_refused<ConfigError>(small("llama"), field, std::numeric_limits<std::int64_t>::max(),
                               "expected at most");
  }
  check_refused<FormatError>(small("llama"), "rms_norm_eps", "1e-6", "expected a number");
  check_refused<FormatError>(small("llama"), "rms_norm_eps", -1.0, "expected a number");
  check_refused<FormatError>(small("llama"), "tie_word_embeddings", 1, "expected true or false");
  check_refused<FormatError>(small("llama"), "attention_bias", "no", "expected true or false");
  for (const char* text :
       {"", "{", "[]", "null", "{\"model_type\":\"llama\",\"model_type\":\"llama\"}"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_model_config(text, "config.json"), FormatError);
  }
}

TEST_CASE("models that are not computed are refused") {
  check_refused<ConfigError>(small("llama"), "num_key_value_heads", 3, "divisor");
  check_refused<ConfigError>(small("llama"), "num_key_value_heads", 16, "divisor");
  check_refused<ConfigError>(small("llama"), "head_dim", 7, "even");
  check_refused<ConfigError>(small("llama"), "hidden_size", 68, "multiple of num_attention_heads");
  check_refused<ConfigError>(small("llama"), "hidden_act", "gelu", "silu");
  check_refused<ConfigError>(small("llama"), "model_type", "gemma3",
                             "llama, mistral, qwen2, qwen3, qwen3_moe, smollm3, gpt_oss");
  json wide = small("llama");
  wide["num_attention_heads"] = 4096;
  wide["num_key_value_heads"] = 4096;
  check_refused<ConfigError>(wide, "head_dim", 4096, "over all heads");
}

TEST_CASE("quantization_config: how weights are stored") {
  using Kind = QuantizationConfig::Kind;
  json config = small("llama");
  CHECK(parse(config).quantization.method.empty());
  CHECK(parse(config).quantization.kind == Kind::none);
  const auto read = [&](const json& settings) {
    config["quantization_config"] = settings;
    CHECK(parse(config).n_parameters() == parse(small("llama")).n_parameters());
    CHECK_NOTHROW(refuse_quantization(parse(config)));
    return parse(config).quantization;
  };
  const auto fp8 = read({{"quant_method", "fp8"}, {"weight_block_size", {128, 64}}});
  CHECK(fp8.kind == Kind::fp8);
  CHECK(fp8.block_rows == 128);
  CHECK(fp8.block_cols == 64);
  CHECK(read({{"quant_method", "fp8"}, {"weight_block_size", nullptr}}).block_rows == 0);
  CHECK(read({{"quant_method", "fbgemm_fp8"}}).kind == Kind::fp8);
  json oss = small_gpt_oss();
  oss["quantization_config"] = {{"quant_method", "mxfp4"}};
  CHECK_NOTHROW(refuse_quantization(parse(oss)));
  CHECK(parse(oss).quantization.kind == Kind::mxfp4);
}

TEST_CASE("quantised checkpoints that are not computed: the shape is read, the way out is told") {
  json config = small("llama");
  const auto refused = [&](const json& settings, const std::string& message) {
    config["quantization_config"] = settings;
    CAPTURE(settings.dump());
    CHECK(parse(config).n_parameters() == parse(small("llama")).n_parameters());
    CHECK_SAYS_AS(ConfigError, refuse_quantization(parse(config)), message, "quantization_config");
  };
  refused({{"quant_method", "bitsandbytes"}}, "dequantize().save_pretrained(OUT)");
  refused({{"quant_method", "compressed-tensors"}}, "run_compressed=False");
  refused({{"quant_method", "hqq"}}, "quantised by \"hqq\"; the same model in safetensors");
  refused({{"quant_method", "mxfp4"}}, "mxfp4 in gpt_oss models");
  refused({{"bits", 4}}, "quantised by a method that it does not name");
  refused({{"quant_method", "gptq"}, {"bits", 4}}, "the base model at the hub");
  refused({{"quant_method", "awq"}, {"version", "gemm"}}, "or in GGUF");
  refused({{"quant_method", "fp8"}, {"fmt", "e5m2"}}, "expected \"e4m3\"");
  for (const json& broken :
       {json("awq"), json({{"quant_method", "fp8"}, {"weight_block_size", {0, 128}}}),
        json({{"quant_method", "fp8"}, {"weight_block_size", {128}}})}) {
    config["quantization_config"] = broken;
    CHECK_THROWS_AS(parse(config), FormatError);
  }
}

}  // namespace kvscope::config_test
