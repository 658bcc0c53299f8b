// kvscope cost --shape, run as a user runs it.
#include <tuple>

#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"

namespace kvscope::test::cost_shape_test {

/// Llama-3.1-8B's shape.
constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 4096,
  "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
  "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
  "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false})";

std::string config_in(const TempDir& dir, const std::string& name, const std::string& text) {
  const auto folder = dir.path() / name;
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << text;
  return (folder / "config.json").string();
}

TEST_CASE("cost --shape answers in a sentence, a table, JSON and a figure") {
  const TempDir dir;
  const std::string config = config_in(dir, "Llama-3.1-8B", kLlama);
  const std::string out = (dir.path() / "shape.json").string();
  const auto run = ran({"cost", "--shape", config, "--hardware", "h100-sxm", "--keys", "256",
                        "--context", "4k:256k", "--batch", "1,64", "--out", out});
  CHECK_HAS(run.out,
            "For Llama-3.1-8B on NVIDIA H100 SXM 80 GB in bf16, batch 1, quoka "
            "with 256 keys in prefill in chunks of 128 is faster than dense "
            "attention from ",
            " x at 128k.", "no room (", "+ beyond the 131072 tokens that config.json allows");
  // A folder is the same model; only its config.json is there.
  const auto json = kvscope_run({"cost", "--shape", (dir.path() / "Llama-3.1-8B").string(),
                                 "--hardware", "h100-sxm", "--keys", "256", "--context", "4k:256k",
                                 "--batch", "1,64", "--json"})
                        .json();
  CHECK(json.at("kind") == "cost-shape");
  CHECK(json.at("rows").size() == 14);
  CHECK_HAS(run.out, json.at("answers")[0].get<std::string>());
  for (const char* metric : {"", "call-speedup", "first-token"}) {
    std::vector<std::string> words = {
        "figure", "cost-map", out, "--out", (dir.path() / "figures").string(), "--overwrite"};
    if (*metric != '\0') words.insert(words.end(), {"--metric", metric});
    CHECK_HAS(ran(words).err, "Predicted, not measured");
  }
}

TEST_CASE("cost --shape with a recording's lists says what cost on the recording says") {
  const TempDir dir;
  const std::string trace = recording(96, 4);  // three chunks
  for (const auto& [phase, methods] : std::vector<std::pair<std::string, std::string>>{
           {"prefill", "quoka,recent,full"}, {"decode", "quest:page-size=4,oracle-topk,recent"}}) {
    const std::string out = (dir.path() / (phase + ".json")).string();
    const std::vector<std::string> same = {
        "--selector", methods,    "--budget",  "32",    "--phase", phase,  "--chunk", "32",
        "--hardware", "h100-sxm", "--context", "16384", "--batch", "1,16", "--json"};
    const auto measured = kvscope_run(with({"cost", trace, "--out", out}, same)).json();
    const auto run = ran(with({"cost", "--shape", "verifier", "--like", out}, same));
    int n = 0;
    const auto asked = run.json();
    for (const auto& row : asked.at("rows")) {
      for (const auto& other : measured.at("rows")) {
        if (other.at("extrapolated") == 0 || other.at("selector") != row.at("selector") ||
            other.at("batch") != row.at("batch"))
          continue;
        ++n;
        INFO(row.dump() << "\n" << other.dump());
        for (const char* name : {"union", "runs", "attend_us", "score_us", "topk_us",
                                 "predicted_us", "predicted_dense_us", "predicted_speedup",
                                 "call_us", "dense_call_us", "memory_share"})
          CHECK(row.at(name).get<double>() ==
                Approx(other.at(name).get<double>()).epsilon(0.02).margin(1e-9));
        if (other.at("break_even").is_number())
          CHECK(row.at("break_even").get<double>() ==
                Approx(other.at("break_even").get<double>()).epsilon(0.05));
      }
    }
    CHECK(n == 6);
    const auto text =
        kvscope_run({"cost", "--shape", "verifier", "--like", out, "--selector", "recent",
                     "--budget", "32", "--phase", phase, "--chunk", "32", "--hardware", "h200"});
    CHECK_HAS(text.out, "sizes of lists measured in " + out);
    refused({"cost", "--shape", "verifier", "--like", out, "--selector", "recent", "--budget", "48",
             "--phase", phase, "--hardware", "h200"},
            2, {"no lists of recent tokens=48"});
  }
}

TEST_CASE("cost --shape takes models that do not run here, by the layers that see everything") {
  const TempDir dir;
  // Qwen3-Next: every fourth layer; Gemma 4: other heads, and keys of earlier layers, by words.
  const std::string hybrid = config_in(dir, "hybrid", R"({"model_type": "qwen3_next",
      "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16,
      "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 1000, "intermediate_size": 512,
      "full_attention_interval": 4, "num_experts": 16, "num_experts_per_tok": 2,
      "moe_intermediate_size": 64})");
  const std::string shared = config_in(dir, "shared", R"({"model_type": "gemma4_text",
      "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
      "num_key_value_heads": 2, "num_global_key_value_heads": 1, "attention_k_eq_v": true,
      "head_dim": 64, "global_head_dim": 128, "intermediate_size": 1024, "vocab_size": 1000,
      "enable_moe_block": true, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 64,
      "sliding_window": 512, "num_kv_shared_layers": 1,
      "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                      "sliding_attention"]})");
  const Words same = {"--hardware", "h200", "--selector", "quest:dense-layers=0",
                      "--budget",   "256",  "--phase",    "decode",
                      "--context",  "32k",  "--question", "speedup"};
  CHECK_HAS(ran(with({"cost", "--shape", hybrid}, same)).out,
            "8 layers: 2 see all keys (16 query and 2 KV heads of 256 channels); 6 do not attend",
            "attention in the 2 of 8 layers that see everything");
  // Leading dense layers are those of the model, of which only the fourth and eighth attend.
  const auto speedup = [&](const std::string& method) {
    Words words = with({"cost", "--shape", hybrid, "--json"}, same);
    words[7] = method;
    return kvscope_run(words).json().at("rows")[0].at("predicted_speedup").get<double>();
  };
  CHECK(speedup("quest:dense-layers=3") == speedup("quest:dense-layers=0"));
  CHECK(speedup("quest:dense-layers=4") < speedup("quest:dense-layers=3"));
  CHECK_HAS(ran(with({"cost", "--shape", shared}, same)).out,
            "4 layers: 2 see all keys (8 query and 1 KV heads of 128 channels); 2 the last 512",
            "1 read an earlier layer's keys");
  CHECK_HAS(
      ran(with({"cost", "--shape", (testing::source_dir() / "tests/golden/gemma4").string()}, same))
          .out,  // per_layer_config
      "6 layers: 3 see all keys (4 query and 2 KV heads of 20 channels)");
}

TEST_CASE("cost --shape refuses in a sentence what it cannot answer") {
  const TempDir dir;
  const std::string config = config_in(dir, "llama", kLlama);
  CHECK_HAS(ran({"cost", "--shape", config, "--hardware", "h200", "--selector", "recent",
                 "--budget", "ratio=0.123411,ratio=0.123412"})
                .out,
            "recent ratio=0.123411", "recent ratio=0.123412");  // a map each
  const std::string lacking = config_in(dir, "lacking", R"({"model_type": "llama"})");
  const std::string family = config_in(dir, "family", R"({"model_type": "falcon"})");
  const std::string latent = config_in(dir, "latent", R"({"model_type": "deepseek_v3",
      "kv_lora_rank": 512, "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8})");
  const std::string places = config_in(dir, "places", R"({"model_type": "jamba2",
      "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8,
      "attn_layer_indices": [1, 9]})");
  const std::string no_lists = (dir.path() / "none.json").string();
  std::ofstream(no_lists) << R"({"kind": "cost-shape", "rows": []})";
  const auto of_shape = [&](const std::string& shape, const Words& more) {
    const bool has_card = std::ranges::find(more, "--hardware") != more.end();
    return with(with({"cost", "--shape", shape}, more),
                has_card ? Words{} : Words{"--hardware", "h200"});
  };
  const std::vector<std::tuple<Words, std::string, int>> cases = {
      {of_shape(config, {"--hardware", "H100-SMX"}), "Did you mean h100-sxm?", 2},
      {{"cost", "--shape", config}, "--hardware is missing", 2},
      {of_shape(lacking, {}), "expected an integer of at least 1, found nothing", 3},
      {of_shape(family, {}), "num_hidden_layers", 3},
      {of_shape(places, {}), "attn_layer_indices", 3},
      {of_shape(latent, {}), "one latent vector (MLA)", 3},
      {of_shape("nosuch.json", {}), "nosuch.json", 3},
      {of_shape("nosuch/model", {}), "fetch it: hf download nosuch/model", 3},
      {of_shape(config, {"--context", "1M:4k"}), "expected a range that ascends", 2},
      {of_shape(config, {"--context", "4x"}), "found \"4x\"", 2},
      {of_shape(config, {"--context", "1:2:3"}), "found \"1:2:3\"", 2},
      {of_shape(config, {"--context", "64"}), "at least the 128 queries of a call", 2},
      {of_shape(config, {"--batch", "0"}), "--batch", 2},
      {of_shape(config, {"--keys", "0"}), "--keys", 2},
      {of_shape(config, {"--keys", "8", "--budget", "8"}), "exclude each other", 2},
      {of_shape(config, {"--question", "when"}), "pays-off, speedup", 2},
      {of_shape(config, {"--question", "first-token", "--phase", "decode"}), "first-token", 2},
      {of_shape(config, {"--question", "tokens-per-second", "--phase", "prefill"}),
       "--phase decode", 2},
      {of_shape(config, {"--selector", "twilight", "--phase", "decode", "--budget", "p=0.9"}),
       "how many keys it keeps depends on the text", 2},
      {of_shape(config, {"--selector", "kascade", "--phase", "decode"}), "links layers", 2},
      {of_shape(config, {"--like", no_lists}), "found kind \"cost-shape\"", 3},
      {of_shape(config, {"--steps", "4"}), "--shape and --steps exclude", 2},
      {of_shape(config, {"--store", (dir.path() / "s").string()}), "has no items", 2},
      {{"cost", recording(96, 4), "--shape", config}, "TRACE and --shape exclude", 2}};
  for (const auto& [words, sentence, code] : cases) {
    const auto run = kvscope_run(words);
    INFO(sentence << " <- " << run.err);
    CHECK(run.code == code);
    CHECK_HAS(run.err, sentence);
  }
}

}  // namespace kvscope::test::cost_shape_test
