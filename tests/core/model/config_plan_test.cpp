// What config.json says of models of texts and pictures, and of Gemma 3; how other families differ
// in their layers shows in the numbers of parity_test.cpp.
#include <nlohmann/json.hpp>

#include "core/model/config.hpp"
#include "core/model/weights.hpp"
#include "support/golden.hpp"
#include "tests/support/places.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::config_plan_test {

using nlohmann::json;

json small(const char* family) {
  return {{"model_type", family},     {"hidden_size", 64},        {"num_hidden_layers", 4},
          {"num_attention_heads", 8}, {"intermediate_size", 160}, {"vocab_size", 320}};
}

ModelConfig parse(const json& config) {
  return parse_model_config(config.dump(), "config.json");
}

// `config` with one field changed must be refused in a sentence that holds `message`.
void check_refused(json config, const std::string& field, const json& value,
                   const std::string& message) {
  config[field] = value;
  CAPTURE(field, value.dump());
  try {
    parse(config);
    FAIL("nothing was refused");
  } catch (const ConfigError& error) {
    CHECK(std::string(error.what()).find(message) != std::string::npos);
  }
}

TEST_CASE("models of texts and pictures: the part of text") {
  // As Gemma 3 4B writes it: what the config class assumes is left out.
  const json gemma = {{"model_type", "gemma3"},
                      {"eos_token_id", {1, 106}},
                      {"vision_config", {{"hidden_size", 1152}}},
                      {"text_config",
                       {{"model_type", "gemma3_text"},
                        {"hidden_size", 2560},
                        {"intermediate_size", 10240},
                        {"num_hidden_layers", 34},
                        {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                        {"sliding_window", 1024}}}};
  const ModelConfig config = parse(gemma);
  CHECK(config.family == ModelFamily::gemma3_text);
  CHECK(config.d_model == 2560);
  CHECK(config.n_layers == 34);
  CHECK(config.n_q == 8);
  CHECK(config.n_kv == 4);
  CHECK(config.d_head == 256);
  CHECK(config.n_vocab == 262208);
  CHECK(config.tied_embeddings);
  CHECK(config.eos_ids == std::vector<std::int32_t>{1, 106});
  CHECK(config.rope.kind == "linear");
  CHECK(config.local_rope->kind == "default");

  json mistral = {{"model_type", "mistral3"}, {"text_config", small("mistral")}};
  mistral["text_config"]["num_key_value_heads"] = 2;
  mistral["text_config"]["tie_word_embeddings"] = false;
  CHECK(parse(mistral).family == ModelFamily::mistral);
  CHECK(parse(mistral).tied_embeddings);  // the whole model's default: the part says nothing
  mistral["tie_word_embeddings"] = false;
  CHECK_FALSE(parse(mistral).tied_embeddings);
  check_refused({{"model_type", "other"}, {"text_config", small("mistral")}}, "model_type", "llava",
                "found \"llava\"");
}

TEST_CASE("Qwen-VL: the part of text, flat or in a field, with one position") {
  // As Qwen2.5-VL 7B is published: no text_config, three positions.
  json flat = {{"model_type", "qwen2_5_vl"},
               {"hidden_size", 3584},
               {"num_hidden_layers", 28},
               {"num_attention_heads", 28},
               {"num_key_value_heads", 4},
               {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}},
               {"vision_config", {{"hidden_size", 1280}}}};
  const ModelConfig config = parse(flat);
  CHECK(config.family == ModelFamily::qwen2);
  CHECK(config.d_model == 3584);
  CHECK(config.d_ff == 29568);  // not said: transformers' config class
  CHECK(config.rms_eps == 1e-5);
  CHECK(config.rope.kind == "default");
  CHECK(config.rope.theta == 1e6);
  CHECK(config.qkv_bias);
  CHECK_FALSE(config.tied_embeddings);
  CHECK(config.eos_ids == std::vector<std::int32_t>{151645});
  json nested = {{"model_type", "qwen2_vl"}, {"tie_word_embeddings", false}};
  nested["text_config"] = {{"model_type", "qwen2_vl_text"}, {"tie_word_embeddings", true}};
  CHECK(parse(nested).tied_embeddings);  // older files have it in the part
  json third = {{"model_type", "qwen3_vl"}};
  third["text_config"] = {{"model_type", "qwen3_vl_text"},
                          {"rope_parameters", {{"rope_type", "mrope"}, {"rope_theta", 5e6}}}};
  CHECK(parse(third).family == ModelFamily::qwen3);
  CHECK(parse(third).rope.theta == 5e6);
  CHECK(parse(third).qk_norm);
}

// As Gemma 4 E2B is published.
json gemma4() {
  return {{"model_type", "gemma4_text"},    {"hidden_size", 1536},
          {"num_hidden_layers", 35},        {"num_attention_heads", 8},
          {"num_key_value_heads", 1},       {"head_dim", 256},
          {"global_head_dim", 512},         {"intermediate_size", 6144},
          {"vocab_size", 262144},           {"num_kv_shared_layers", 20},
          {"use_double_wide_mlp", true},    {"use_bidirectional_attention", nullptr},
          {"final_logit_softcapping", 30.0}};
}

TEST_CASE("Gemma 4: layers of two shapes, the last of them with the keys of others") {
  json said = gemma4();
  const ModelConfig config = parse(said);
  CHECK(config.unread.empty());
  REQUIRE(config.layer_shapes.size() == 35);
  CHECK(config.shape(0) == LayerShape{1, 256, 1.0f, 0.0f, -1});
  CHECK(config.shape(5) == LayerShape{1, 512, 1.0f, 0.0f, -1});
  CHECK(config.shape(15) == LayerShape{1, 256, 1.0f, 0.0f, 14});
  CHECK(config.shape(17) == LayerShape{1, 512, 1.0f, 0.0f, 11});
  CHECK_FALSE(config.window[34]);  // the last one sees everything, whatever the period says
  CHECK(config.ff_width(15) == 12288);
  CHECK(config.rope.frequencies[63] > 0.0f);
  CHECK(config.rope.frequencies[64] == 0.0f);
  CHECK(config.plan.logit_softcap == 30.0);

  // What transformers writes since 5.20 says the same.
  json written = said;
  written.erase("global_head_dim");
  for (const int layer : {5, 11, 17, 23, 29, 34})
    written["per_layer_config"][std::to_string(layer)]["head_dim"] = 512;
  CHECK(parse(written).layer_shapes == config.layer_shapes);
  written["per_layer_config"].erase("11");
  check_refused(written, "hidden_size", 1536,
                "expected equal heads in all layers without a window");

  written["per_layer_config"] = nullptr;  // is there, so that all layers are alike
  CHECK(parse(written).shape(5).d_head == 256);

  check_refused(said, "enable_moe_block", true, "the Python recorder takes such models");
  check_refused(said, "global_head_dim", 511, "an even number of channels");
  check_refused(said, "num_kv_shared_layers", 33, "expected a layer with keys of its own");
  check_refused(said, "vocab_size_per_layer_input", 8, "expected vocab_size = 262144 at least");
  check_refused(said, "use_bidirectional_attention", "all", "only causal attention");
  said["use_bidirectional_attention"] = "vision";           // texts stay causal
  said["rope_theta"] = said["rope_local_base_freq"] = 500;  // settings stand in groups alone
  CHECK(parse(said).rope.frequencies == config.rope.frequencies);
  CHECK(parse(said).unread.size() == 2);
  said["tie_word_embeddings"] = false;  // says nothing inside a model of pictures
  CHECK(parse({{"model_type", "gemma4"}, {"text_config", said}}).tied_embeddings);
  for (const char* name : {"gemma4", "gemma4_keys_as_values"}) {
    const auto folder = golden_dir() / name;
    CHECK(load_model_config(folder).n_parameters() == WeightFiles::open(folder).n_parameters());
  }
}

TEST_CASE("Gemma 3: two rotary settings, windows, scales") {
  json config = small("gemma3_text");
  config["num_key_value_heads"] = 4;
  config["head_dim"] = 16;
  const ModelConfig plain = parse(config);
  CHECK(plain.rope.theta == 1e6);
  REQUIRE(plain.local_rope);
  CHECK(plain.local_rope->theta == 1e4);
  CHECK(plain.window == std::vector<std::optional<Index>>(4, 4096));  // the sixth would be full
  CHECK(plain.tied_embeddings);
  CHECK(plain.qk_norm);
  CHECK(plain.score_scale() == 1.0f / 16.0f);

  config["sliding_window_pattern"] = 2;
  config["sliding_window"] = 7;
  CHECK(parse(config).window ==
        std::vector<std::optional<Index>>{7, std::nullopt, 7, std::nullopt});
  config["query_pre_attn_scalar"] = 64;
  CHECK(parse(config).score_scale() == 0.125f);
  config["rope_theta"] = 5e5;
  config["rope_local_base_freq"] = 2e4;
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  const ModelConfig published = parse(config);  // as the hub's files have it
  CHECK(published.rope.kind == "linear");
  CHECK(published.rope.theta == 5e5);
  CHECK(published.local_rope->kind == "default");
  CHECK(published.local_rope->theta == 2e4);
  config["rope_parameters"] = {{"full_attention", {{"rope_theta", 7e5}}},
                               {"sliding_attention", {{"rope_theta", 3e4}}}};
  CHECK(parse(config).rope.theta == 7e5);
  CHECK(parse(config).local_rope->theta == 3e4);
  config["rope_parameters"] = {{"rope_type", "default"}};
  CHECK_THROWS_AS(parse(config), ConfigError);
  config.erase("rope_parameters");
  check_refused(config, "hidden_activation", "gelu", "gelu_pytorch_tanh");
  check_refused(config, "use_bidirectional_attention", true, "causal");
  check_refused(config, "is_causal", false, "causal");
}

}  // namespace kvscope::test::config_plan_test
