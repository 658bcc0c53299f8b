#include "core/model/config.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace kvscope {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using nlohmann::json;

const std::filesystem::path kConfigs =
    std::filesystem::path(KVSCOPE_SOURCE_DIR) / "tests/golden/configs";

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
  CHECK_THROWS_MATCHES(
      parse(config), E,
      MessageMatches(ContainsSubstring(field) && ContainsSubstring("config.json") &&
                     ContainsSubstring(message)));
}

TEST_CASE("published configs give the published numbers of parameters", "[config]") {
  const std::map<std::string, std::int64_t> expected = {
      {"Llama-2-7b-hf", 6738415616},
      {"Llama-3.1-70B", 70553706496},
      {"Llama-3.1-8B-Instruct", 8030261248},
      {"Llama-3.2-1B-Instruct", 1235814400},
      {"Llama-3.2-3B-Instruct", 3212749824},
      {"Qwen2.5-0.5B-Instruct", 494032768},
      {"Qwen2.5-7B-Instruct", 7615616512},
      {"Qwen3-0.6B-base-think-sft", 596049920},
      {"Qwen3-32B", 32762123264},
      {"Qwen3-8B", 8190735360},
      {"Qwen3-Embedding-0.6B", 595776512},
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

TEST_CASE("other architectures are refused with the list of what is computed", "[config]") {
  for (const char* name :
       {"Mixtral-8x7B-v0.1", "Phi-mini-MoE-instruct", "Qwen3-30B-A3B-Instruct-2507", "SmolLM3-3B",
        "gpt-oss-20b", "gpt-oss-120b.derived"}) {
    CAPTURE(name);
    const std::string text = testing::read_file(kConfigs / (std::string(name) + ".config.json"));
    CHECK_THROWS_MATCHES(parse_model_config(text, name), ConfigError,
                         MessageMatches(ContainsSubstring("llama, mistral, qwen2, qwen3")));
  }
}

TEST_CASE("fields of a published config", "[config]") {
  const ModelConfig config = parse_model_config(
      testing::read_file(kConfigs / "Llama-3.1-8B-Instruct.config.json"), "Llama-3.1-8B");
  CHECK(config.family == ModelFamily::llama);
  CHECK(config.n_layers == 32);
  CHECK(config.n_q == 32);
  CHECK(config.n_kv == 8);
  CHECK(config.group() == 4);
  CHECK(config.d_head == 128);
  CHECK(config.d_model == 4096);
  CHECK(config.d_ff == 14336);
  CHECK(config.n_vocab == 128256);
  CHECK(config.max_positions == 131072);
  CHECK(config.rms_eps == 1e-5);
  CHECK(config.rope.kind == RopeConfig::Kind::llama3);
  CHECK(config.rope.theta == 500000.0);
  CHECK(config.rope.factor == 8.0);
  CHECK(config.rope.low_freq_factor == 1.0);
  CHECK(config.rope.high_freq_factor == 4.0);
  CHECK(config.rope.original_max_positions == 8192);
  CHECK_FALSE(config.tied_embeddings);
  CHECK(config.eos_ids == std::vector<std::int32_t>{128001, 128008, 128009});
  CHECK(config.bos_id == 128000);
  CHECK(config.score_scale() == static_cast<float>(1.0 / std::sqrt(128.0)));
}

TEST_CASE("absent fields get the defaults of transformers", "[config]") {
  const ModelConfig llama = parse(small("llama"));
  CHECK(llama.n_kv == 8);
  CHECK(llama.d_head == 8);
  CHECK(llama.rms_eps == 1e-6);
  CHECK(llama.rope.kind == RopeConfig::Kind::plain);
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

TEST_CASE("biases and norms of each family", "[config]") {
  for (bool on : {false, true}) {
    json config = small("llama");
    config["attention_bias"] = on;
    config["mlp_bias"] = on;
    const ModelConfig llama = parse(config);
    CHECK(llama.qkv_bias == on);
    CHECK(llama.o_bias == on);
    CHECK(llama.mlp_bias == on);
    CHECK_FALSE(llama.qk_norm);
    config["model_type"] = "qwen3";
    config["num_key_value_heads"] = 4;
    const ModelConfig qwen3 = parse(config);
    CHECK(qwen3.qkv_bias == on);
    CHECK(qwen3.o_bias == on);
    CHECK_FALSE(qwen3.mlp_bias);
    CHECK(qwen3.qk_norm);
    config["model_type"] = "qwen2";
    const ModelConfig qwen2 = parse(config);
    CHECK(qwen2.qkv_bias);
    CHECK_FALSE(qwen2.o_bias);
    CHECK_FALSE(qwen2.qk_norm);
    config["model_type"] = "mistral";
    CHECK_FALSE(parse(config).qkv_bias);
  }
}

TEST_CASE("every bias and norm counts in n_parameters", "[config]") {
  json config = small("llama");
  config["num_key_value_heads"] = 2;
  // Widths: d_model 64, q 64, kv 16, d_ff 160; 4 layers.
  const std::int64_t layer = 64 * 64 + 2 * 64 * 16 + 64 * 64 + 3 * 64 * 160 + 2 * 64;
  const std::int64_t plain = 2 * 320 * 64 + 4 * layer + 64;
  CHECK(parse(config).n_parameters() == plain);
  config["tie_word_embeddings"] = true;
  CHECK(parse(config).n_parameters() == plain - 320 * 64);
  config["tie_word_embeddings"] = false;
  config["attention_bias"] = true;
  CHECK(parse(config).n_parameters() == plain + 4 * (64 + 2 * 16 + 64));
  config["attention_bias"] = false;
  config["mlp_bias"] = true;
  CHECK(parse(config).n_parameters() == plain + 4 * (2 * 160 + 64));
  config["model_type"] = "qwen3";
  config["head_dim"] = 8;
  CHECK(parse(config).n_parameters() == plain + 4 * 2 * 8);
}

TEST_CASE("rotary settings in both styles", "[config]") {
  const json llama3 = {{"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 32}};
  for (const char* group : {"rope_scaling", "rope_parameters"}) {
    for (const char* type : {"rope_type", "type"}) {
      CAPTURE(group, type);
      json config = small("llama");
      config["rope_theta"] = 500000;
      config[group] = llama3;
      config[group][type] = "llama3";
      const RopeConfig rope = parse(config).rope;
      CHECK(rope.kind == RopeConfig::Kind::llama3);
      CHECK(rope.theta == 500000.0);
      CHECK(rope.original_max_positions == 32);
      config[group] = {{type, "linear"}, {"factor", 2}};
      CHECK(parse(config).rope.kind == RopeConfig::Kind::linear);
      CHECK(parse(config).rope.factor == 2.0);
      config[group] = {{type, "default"}, {"rope_theta", 1e6}};
      CHECK(parse(config).rope.kind == RopeConfig::Kind::plain);
      CHECK(parse(config).rope.theta == 1e6);
      for (const char* other : {"yarn", "dynamic", "longrope", "mrope", ""}) {
        config[group] = {{type, other}, {"factor", 2.0}};
        CHECK_THROWS_MATCHES(parse(config), ConfigError,
                             MessageMatches(ContainsSubstring("default, linear, llama3")));
      }
      for (const json& broken : {json{{type, "linear"}}, json{{type, "linear"}, {"factor", "2"}},
                                 json{{type, "linear"}, {"factor", 0.0}}, json{{type, 3}},
                                 json{{type, "llama3"}, {"factor", 8.0}}, json("linear")}) {
        config[group] = broken;
        CAPTURE(broken.dump());
        CHECK_THROWS_AS(parse(config), FormatError);
      }
    }
  }
  json config = small("llama");
  config["rope_scaling"] = llama3;
  config["rope_scaling"]["rope_type"] = "llama3";
  config["rope_scaling"]["high_freq_factor"] = 1.0;
  CHECK_THROWS_AS(parse(config), ConfigError);
  config["rope_scaling"] = nullptr;
  config["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}}}};
  CHECK_THROWS_AS(parse(config), ConfigError);
  check_refused<ConfigError>(small("llama"), "partial_rotary_factor", 0.5, "expected 1");
  check_refused<FormatError>(small("llama"), "rope_theta", 0.0, "expected a number");
}

TEST_CASE("sliding windows", "[config]") {
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

TEST_CASE("token ids", "[config]") {
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

TEST_CASE("missing, ill-typed and out-of-range fields name themselves", "[config]") {
  for (const char* field : {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
                            "intermediate_size", "vocab_size"}) {
    json config = small("llama");
    config.erase(field);
    CAPTURE(field);
    CHECK_THROWS_MATCHES(
        parse(config), FormatError,
        MessageMatches(ContainsSubstring(field) && ContainsSubstring("found nothing")));
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

TEST_CASE("models that are not computed are refused", "[config]") {
  check_refused<ConfigError>(small("llama"), "num_key_value_heads", 3, "divisor");
  check_refused<ConfigError>(small("llama"), "num_key_value_heads", 16, "divisor");
  check_refused<ConfigError>(small("llama"), "head_dim", 7, "even");
  check_refused<ConfigError>(small("llama"), "hidden_size", 68, "multiple of num_attention_heads");
  check_refused<ConfigError>(small("llama"), "hidden_act", "gelu", "silu");
  check_refused<ConfigError>(small("llama"), "quantization_config", json{{"bits", 4}}, "quantised");
  check_refused<ConfigError>(small("llama"), "model_type", "gemma3",
                             "llama, mistral, qwen2, qwen3");
  json wide = small("llama");
  wide["num_attention_heads"] = 4096;
  wide["num_key_value_heads"] = 4096;
  check_refused<ConfigError>(wide, "head_dim", 4096, "over all heads");
}

TEST_CASE("config.json of a folder", "[config]") {
  const testing::TempDir dir;
  CHECK_THROWS_AS(load_model_config(dir.path()), IoError);
  dir.write("config.json", "");
  CHECK_THROWS_AS(load_model_config(dir.path()), FormatError);
  dir.write("config.json", small("qwen3").dump());
  CHECK_THROWS_AS(load_model_config(dir.path()), ConfigError);  // 32 KV heads for 8 query heads
  dir.write("config.json", small("llama").dump());
  CHECK(load_model_config(dir.path()).n_layers == 4);
}

TEST_CASE("names of families and rotary kinds", "[config]") {
  CHECK(name_of(ModelFamily::qwen2) == "qwen2");
  CHECK(name_of(RopeConfig::Kind::plain) == "default");
  CHECK(name_of(RopeConfig::Kind::llama3) == "llama3");
}

}  // namespace
}  // namespace kvscope
