// By what numbers models rotate q and k, whatever spelling a file has for them; and that what
// nothing reads is told.
#include <nlohmann/json.hpp>

#include "core/base/whole_file.hpp"
#include "core/model/config.hpp"
#include "core/model/gguf/gguf_weights.hpp"
#include "core/model/layer_weights.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/places.hpp"
#include "tests/support/safetensors_builder.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::positions_test {

using nlohmann::json;
using testing::GgufBuilder;

TEST_CASE("hub settings: the frequencies and amplitudes of transformers, or a refusal") {
  const json golden =
      json::parse(read_whole_file(testing::source_dir() / "tests/golden/positions.json", 1 << 20));
  for (const json& row : golden["cases"]) {
    CAPTURE(row["config"].dump());
    const std::string text = row["config"].dump();
    if (row["layers"] == "refused") {
      CHECK_THROWS_AS(parse_model_config(text, "config.json"), Error);
      continue;
    }
    const ModelConfig config = parse_model_config(text, "config.json");
    for (std::size_t i = 0; i < 2; ++i) {
      const RopeConfig& found = config.rope_of(i == 0 ? 0 : 5);
      const auto expected = row["layers"][i]["frequencies"].get<std::vector<double>>();
      REQUIRE(found.frequencies.size() == expected.size());
      for (std::size_t pair = 0; pair < expected.size(); ++pair)
        CHECK(found.frequencies[pair] == Approx(expected[pair]).epsilon(1e-6));
      CHECK(found.amplitude == Approx(row["layers"][i]["amplitude"].get<double>()).epsilon(1e-6));
    }
  }
}

// A model of 6 layers with heads of 16 channels.
GgufBuilder gguf(const std::string& arch) {
  return GgufBuilder()
      .string("general.architecture", arch)
      .u32(arch + ".block_count", 6)
      .u32(arch + ".context_length", 512)
      .u32(arch + ".embedding_length", 64)
      .u32(arch + ".feed_forward_length", 32)
      .u32(arch + ".attention.head_count", 4)
      .f32(arch + ".attention.layer_norm_rms_epsilon", 1e-6f)
      .tensor("token_embd.weight", {32, 64}, std::vector<float>(32 * 64, 0.5f));
}

ModelConfig read(const GgufBuilder& builder) {
  const std::string bytes = builder.bytes();
  const GgufCheckpoint checkpoint(std::as_bytes(std::span(bytes)), "model.gguf");
  return parse_model_config(hub_config(checkpoint), "model.gguf");
}

// llama.cpp's rule for one pair: the divisor, then linear scaling or YaRN's ramp.
double frequency(std::size_t i, double base, double divisor, const std::string& type, double factor,
                 double original) {
  const double plain = std::pow(base, -static_cast<double>(i) / 8.0) / divisor;
  if (type == "none") return plain;
  if (type != "yarn") return plain / factor;
  const auto pair_that_turns = [&](double n) {
    return 16.0 * std::log(original / (n * 2.0 * M_PI)) / (2.0 * std::log(base));
  };
  const double low = std::max(0.0, std::floor(pair_that_turns(32.0)));
  const double high = std::min(15.0, std::ceil(pair_that_turns(1.0)));
  const double at = (static_cast<double>(i) - low) / std::max(0.001, high - low);
  const double ramp = std::clamp(at, 0.0, 1.0);
  return plain / factor * ramp + plain * (1.0 - ramp);
}

TEST_CASE("GGUF settings: llama.cpp's frequencies and amplitudes, in any combination") {
  const std::string type = GENERATE("", "none", "linear", "yarn");
  const double factor = GENERATE(0.0, 0.5, 1.0, 4.0);  // 0: unset
  const bool is_old_key = GENERATE(false, true);
  const double attn_factor = GENERATE(0.0, 1.0, 0.5);  // 0: absent
  const double divisor = GENERATE(0.0, 1.0, 3.0);      // of rope_freqs.weight; 0: absent
  const std::string arch = GENERATE("llama", "phi3", "qwen3");
  CAPTURE(type, factor, is_old_key, attn_factor, divisor, arch);
  GgufBuilder builder = gguf(arch);
  builder.f32(arch + ".rope.freq_base", 1e6f);
  builder.u32(arch + ".rope.scaling.original_context_length", 64);
  if (!type.empty()) builder.string(arch + ".rope.scaling.type", type);
  const auto key = arch + (is_old_key ? ".rope.scale_linear" : ".rope.scaling.factor");
  builder.f32(key, static_cast<float>(factor));
  if (attn_factor > 0) {
    builder.f32(arch + ".rope.scaling.attn_factor", static_cast<float>(attn_factor));
  }
  if (divisor > 0) {
    builder.tensor("rope_freqs.weight", {8}, std::vector<float>(8, static_cast<float>(divisor)));
  }
  const RopeConfig rope = read(builder).rope;
  const double scale = factor == 0.0 ? 1.0 : factor;
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(rope.frequencies[i] ==
          Approx(frequency(i, 1e6, std::max(divisor, divisor == 0.0 ? 1.0 : divisor), type, scale,
                           64.0))
              .epsilon(1e-5));
  }
  const double yarn = type == "yarn" && scale > 1.0 ? 1.0 + 0.1 * std::log(scale) : 1.0;
  CHECK(rope.amplitude == Approx(yarn * (attn_factor == 0.0 ? 1.0 : attn_factor)));
}

TEST_CASE("GGUF Gemma 3: both bases in both spellings; scaling is of full attention alone") {
  const bool is_ollama = GENERATE(false, true);
  GgufBuilder builder = gguf("gemma3");
  builder.u32("gemma3.attention.sliding_window", 16)
      .f32(is_ollama ? "gemma3.rope.global.freq_base" : "gemma3.rope.freq_base", 1e6f)
      .f32(is_ollama ? "gemma3.rope.local.freq_base" : "gemma3.rope.freq_base_swa", 2e4f)
      .string("gemma3.rope.scaling.type", "linear")
      .f32("gemma3.rope.scaling.factor", 8.0f)
      .f32("gemma3.rope.scaling.attn_factor", 0.5f);
  const ModelConfig config = read(builder);
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(config.rope_of(0).frequencies[i] ==
          Approx(frequency(i, 2e4, 1, "none", 1, 0)).epsilon(1e-5));
    CHECK(config.rope_of(5).frequencies[i] ==
          Approx(frequency(i, 1e6, 1, "linear", 8, 0)).epsilon(1e-5));
  }
  CHECK(config.rope_of(0).amplitude == 0.5);
  CHECK(config.rope_of(5).amplitude == 0.5);
  CHECK(config.unread.empty());
  CHECK(read(gguf("gemma3")).window == std::vector<std::optional<Index>>(6));  // says no window
}

TEST_CASE("GGUF settings that are not computed are refused by name") {
  const auto with = [](auto change) {
    GgufBuilder builder = gguf("llama");
    change(builder);
    return builder;
  };
  const std::vector<float> eight(8, 2.0f);
  CHECK_SAYS_AS(ConfigError,
                read(with([](auto& b) { b.string("llama.rope.scaling.type", "longrope"); })),
                "llama.rope.scaling.type", "longrope");
  for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"})
    CHECK_SAYS_AS(ConfigError, read(with([&](auto& b) { b.tensor(name, {8}, eight); })), name);
  CHECK_SAYS_AS(FormatError,
                read(with([](auto& b) { b.boolean("llama.attention.causal", false); })),
                "llama.attention.causal");
  CHECK_SAYS_AS(FormatError, read(GgufBuilder(gguf("llama")).f32("llama.rope.scaling.factor", -1)),
                "llama.rope.scaling.factor");
}

TEST_CASE("settings that nothing reads are told by name, harmless ones are not") {
  GgufBuilder builder = gguf("llama");
  builder.f32("llama.rope.scaling.yarn_ext_factor", 0.5f)
      .u32("llama.vocab_size", 32)
      .f32("llama.attn_logit_softcapping", 30.0f)
      .boolean("llama.rope.scaling.finetuned", true)
      .boolean("llama.some_switch", false);
  CHECK(read(builder).unread == std::vector<std::string>{"llama.attn_logit_softcapping",
                                                         "llama.rope.scaling.yarn_ext_factor"});

  json config = {
      {"model_type", "qwen3"},    {"hidden_size", 64},           {"num_hidden_layers", 2},
      {"num_attention_heads", 4}, {"num_key_value_heads", 2},    {"vocab_size", 32},
      {"intermediate_size", 32},  {"torch_dtype", "bfloat16"},   {"use_cache", true},
      {"pad_token_id", 3},        {"transformers_version", "5"}, {"_name_or_path", "x"},
      {"sliding_window", 4096}};
  CHECK(parse_model_config(config.dump(), "config.json").unread.empty());
  config["residual_multiplier"] = 0.5;
  config["attn_logit_softcapping"] = 50.0;
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"beta_fast", 8}};
  config["rope_parameters"] = {{"rope_theta", 1e6}};
  CHECK(parse_model_config(config.dump(), "config.json").unread ==
        std::vector<std::string>{"attn_logit_softcapping", "residual_multiplier", "rope_parameters",
                                 "rope_scaling.beta_fast"});
}

TEST_CASE("head and embedding: a stored head of a tied model counts where it differs") {
  // as transformers 5 decides it
  struct Row {
    bool has_embedding, has_head, is_other, is_tied;
    bool has_own_head;  // expected
  };
  for (const Row& row : {Row{true, true, false, true, false}, Row{true, true, true, true, true},
                         Row{true, false, false, true, false}, Row{false, true, true, true, false},
                         Row{true, true, false, false, true}, Row{true, true, true, false, true}}) {
    for (const std::string prefix : {"model.", ""}) {  // and of a bare model
      CAPTURE(row.has_embedding, row.has_head, row.is_other, row.is_tied, prefix);
      const json text = {{"model_type", "llama"},
                         {"hidden_size", 8},
                         {"num_hidden_layers", 1},
                         {"num_attention_heads", 2},
                         {"vocab_size", 4},
                         {"intermediate_size", 4},
                         {"tie_word_embeddings", row.is_tied}};
      testing::SafetensorsBuilder builder;
      const auto add = [&](const std::string& name, std::vector<Index> shape, float value) {
        const Index n = shape[0] * (shape.size() == 2 ? shape[1] : 1);
        builder.add(name, DType::f32, shape,
                    std::vector<float>(static_cast<std::size_t>(n), value));
      };
      if (row.has_embedding) add(prefix + "embed_tokens.weight", {4, 8}, 1.0f);
      if (row.has_head) add("lm_head.weight", {4, 8}, row.is_other ? 2.0f : 1.0f);
      add(prefix + "norm.weight", {8}, 1.0f);
      for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
        add(prefix + "layers.0." + norm + ".weight", {8}, 1.0f);
      for (const char* part : {"q", "k", "v", "o"})
        add(prefix + "layers.0.self_attn." + part + "_proj.weight", {8, 8}, 1.0f);
      for (const char* part : {"gate", "up"})
        add(prefix + "layers.0.mlp." + part + "_proj.weight", {4, 8}, 1.0f);
      add(prefix + "layers.0.mlp.down_proj.weight", {8, 4}, 1.0f);
      const TempDir dir;
      dir.write("model.safetensors", builder.bytes());
      const WeightFiles files = WeightFiles::open(dir.path());
      const ModelWeights weights =
          collect_weights(parse_model_config(text.dump(), "config.json"), files);
      CHECK((weights.lm_head.n_rows() > 0) == row.has_own_head);
      Index stride = 0;
      std::vector<float> scratch(24);
      CHECK(weights.embedding.rows(0, 1, scratch.data(), stride)[0] ==
            (row.has_embedding ? 1.0f : 2.0f));
      CHECK(files.unread().empty());
    }
  }
}

}  // namespace kvscope::test::positions_test
