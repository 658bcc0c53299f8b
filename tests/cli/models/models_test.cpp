// Checkpoints of every family through the program, and checkpoints that it must refuse.
#include <sys/stat.h>

#include <cstdint>

#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"

namespace kvscope::test::models_test {

const fs::path kGolden = testing::source_dir() / "tests/golden";

// A copy of a golden checkpoint whose files may be changed.
fs::path copy_of(const char* name, const TempDir& dir) {
  const fs::path to = dir.path() / name;
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(kGolden / name)) {
    if (entry.path().extension() != ".h5") fs::copy(entry.path(), to / entry.path().filename());
  }
  return to;
}

void rewrite(const fs::path& file, const std::string& from, const std::string& to) {
  std::string text = read_file(file);
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  std::ofstream(file, std::ios::binary) << text;
}

RunResult record(const fs::path& model, const TempDir& dir) {
  const fs::path ids = dir.write("ids.json", "[5, 17, 3, 50, 49, 17, 8, 1, 44, 20, 7, 63, 9]");
  return kvscope_run({"record", "--model", model.string(), "--tokens", ids.string(), "--out",
                      dir.file("t.h5"), "--overwrite", "--chunk", "5", "--decode", "4"});
}

TEST_CASE("every family records and verifies, sinks, windows and experts included") {
  for (const char* name :
       {"llama2_mha", "llama3_bf16_sharded", "mistral_window", "qwen2", "qwen3", "qwen3_moe",
        "smollm3", "gpt_oss", "gpt_oss_mxfp4", "gemma2", "gemma3", "gemma4",
        "gemma4_keys_as_values", "phi3", "olmo2", "gpt_neox", "gpt_neox_serial"}) {
    INFO(name);
    const TempDir dir;
    const auto run = record(kGolden / name, dir);
    INFO(run.err);
    REQUIRE(run.code == 0);
    ran({"verify", dir.file("t.h5"), "--json"});
    const auto info = kvscope_run({"info", dir.file("t.h5"), "--json"}).json();
    CHECK(info.at("model").at("score_cap") == (std::string(name) == "gemma2" ? 3.0 : 0.0));
    CHECK(info.at("model").at("sinks") == std::string(name).starts_with("gpt_oss"));
    ran({"info", (kGolden / name).string()});
  }
}

TEST_CASE("quantised checkpoints and text towers record and verify") {
  for (const char* name : {"quantized/fp8_block", "quantized/fp8_tensor", "quantized/fp8_row",
                           "towers/gemma3", "towers/gemma4", "towers/mistral3",
                           "towers/qwen2_vl_flat", "towers/qwen2_5_vl", "towers/qwen3_vl"}) {
    INFO(name);
    const TempDir dir;
    const fs::path ids = dir.write("ids.json", "[5, 17, 3, 50, 9, 17, 8, 1, 44, 20, 7, 63, 9]");
    for (const char* matmul : {"f32", "bf16"}) {
      ran({"record", "--model", (kGolden / name).string(), "--tokens", ids.string(), "--out",
           dir.file("t.h5"), "--overwrite", "--matmul", matmul});
      ran({"verify", dir.file("t.h5"), "--json"});
    }
  }
}

TEST_CASE("info tells quantised checkpoints, also those that do not run") {
  const auto info_of = [](const fs::path& model) {
    return kvscope_run({"info", model.string(), "--json"}).json();
  };
  const auto fp8 = info_of(kGolden / "quantized/fp8_block");
  CHECK(fp8.at("quantization") == "fp8");
  CHECK(fp8.at("bytes_by_type").at("F8_E4M3") == 15360);
  CHECK(fp8.at("runs_here") == "yes");
  const TempDir dir;
  const fs::path other = copy_of("quantized/fp8_block", dir);
  rewrite(other / "config.json", "\"fp8\"", "\"bitsandbytes\"");
  CHECK_HAS(info_of(other).at("runs_here").get<std::string>(), "no: ", "dequantize()");
  const auto list =
      kvscope_run({"models", dir.path().string(), (kGolden / "quantized").string(), "--json"},
                  {.input = "",
                   .environment = {"HF_HUB_CACHE=" + dir.path().string(),
                                   "OLLAMA_MODELS=" + dir.path().string()}})
          .json();
  REQUIRE(list.size() == 4);
  CHECK(list[0].at("weights") == "bitsandbytes");
  CHECK(list[0].at("runs_here") == false);
  CHECK(list[1].at("weights") == "fp8");
  CHECK(list[1].at("runs_here") == true);
}

TEST_CASE("the option --device: words that there are not, and GPUs that there are not") {
  const TempDir dir;
  const fs::path ids = dir.write("ids.json", "[5, 17, 3]");
  const fs::path out = dir.path() / "t.h5";
  const auto record_with = [&](const std::vector<std::string>& more) {
    return kvscope_run(with(
        {"record", "--model", "draft", "--tokens", ids.string(), "--out", out.string()}, more));
  };
  for (const char* word : {"gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", ""}) {
    INFO(word);
    const auto run = record_with({"--device", word});
    CHECK(run.code == 2);
    CHECK_HAS(run.err, "expected cpu, cuda or cuda:N");
  }
  // On the CPU keys of a recording are f32; kernels of the CPU are not the GPU's.
  CHECK(record_with({"--kv-dtype", "bf16"}).code == 2);
  CHECK(record_with({"--device", "cuda:63", "--matmul", "bf16-portable"}).code == 2);
  // No machine has a 64th GPU, and most have none: one sentence, and no file is begun.
  const auto run = record_with({"--device", "cuda:63"});
  CHECK(run.code == 3);
  CHECK_HAS(run.err, "--device cuda:63: ");
  CHECK(std::ranges::count(run.err, '\n') == 1);
  CHECK_FALSE(fs::exists(out));
  CHECK_FALSE(fs::exists(out.string() + ".part"));
  CHECK(kvscope_run({"bench", "live", "--device", "cuda:63"}).code == 3);
  CHECK(kvscope_run({"simulate", "retrieval", "--selector", "full", "--device", "cuda:63"}).code ==
        3);
}

TEST_CASE("a driver that is too old ends with one sentence and 3, and nothing is begun") {
  const auto driver = testing::old_driver();
  if (!driver) SKIP("the CUDA kernels are not built here");
  const TempDir dir;
  const fs::path out = dir.path() / "t.h5";
  const fs::path asked = dir.path() / "asked";
  refused({"record", out.string(), "--max-tokens", "32", "--device", "cuda"}, 3,
          {"no device", "newer driver"},
          {"",
           {"LD_LIBRARY_PATH=" + driver->parent_path().string(),
            "KVSCOPE_OLD_DRIVER_ASKED=" + asked.string()}});
  CHECK(fs::exists(asked));
  CHECK_FALSE(fs::exists(out));
  CHECK_FALSE(fs::exists(out.string() + ".part"));
}

TEST_CASE("info of a mixture of experts says how many there are, and what a token uses") {
  const auto info = kvscope_run({"info", (kGolden / "gpt_oss_mxfp4").string(), "--json"}).json();
  CHECK(info.at("family") == "gpt_oss");
  CHECK(info.at("n_experts") == 4);
  CHECK(info.at("n_experts_per_token") == 2);
  CHECK(info.at("quantization") == "mxfp4");
  CHECK(info.at("rope_kind") == "yarn");
  CHECK(info.at("n_active_parameters") < info.at("n_parameters"));
  CHECK(info.at("window") == nlohmann::json({8, nullptr, 8}));
  const auto smol = kvscope_run({"info", (kGolden / "smollm3").string(), "--json"}).json();
  CHECK(smol.at("layers_without_rope") == nlohmann::json::array({3}));
}

TEST_CASE("routing is captured where there are experts, refused where there are none") {
  const TempDir dir;
  const fs::path ids = dir.write("ids.json", "[5, 17, 3]");
  const auto words = [&](const char* model) {
    return Words{"record",     "--model", (kGolden / model).string(), "--tokens",
                 ids.string(), "--out",   dir.file("t.h5"),           "--overwrite",
                 "--capture",  "routing"};
  };
  ran(words("qwen3_moe"));
  ran({"verify", dir.file("t.h5")});
  refused(words("qwen3"), 2, {"routing"});
}

// Refused in one sentence with exit code 3, and no file is left.
void check_refused(const fs::path& model, const TempDir& dir, const std::string& expected) {
  const auto run = record(model, dir);
  INFO(run.err);
  CHECK(run.code == 3);
  // The estimate may come first; what is wrong is one sentence, the last line.
  const std::size_t last = run.err.rfind('\n', run.err.size() - 2);
  const std::string sentence = last == std::string::npos ? run.err : run.err.substr(last + 1);
  CHECK(sentence.starts_with("kvscope: "));
  CHECK_HAS(sentence, expected);
  CHECK_FALSE(fs::exists(dir.path() / "t.h5"));
}

TEST_CASE("checkpoints that cannot be used end in a sentence and exit code 3") {
  const TempDir dir;
  struct Rewritten {
    const char *model, *file, *from, *to, *says;
  };
  const Rewritten cases[] = {
      {"qwen3_moe", "config.json", "\"qwen3_moe\"", "\"mixtral\"",
       "llama, mistral, qwen2, qwen3, qwen3_moe, smollm3, gpt_oss"},
      {"gpt_oss_mxfp4", "model.safetensors", "\"BF16\"", "\"I16\" ", "I16"},
      {"gpt_oss_mxfp4", "model.safetensors", "\"U8\"", "\"I8\"", "U8"},
      {"gpt_oss", "model.safetensors", "self_attn.sinks", "self_attn.sinkz", "self_attn.sinks"},
      {"gpt_oss_mxfp4", "config.json", "\"mxfp4\"", "\"bitsandbytes\"", "bitsandbytes"},
      {"gpt_oss_mxfp4", "config.json", "\"mxfp4\"", "\"compressed-tensors\"", "compressed-tensors"},
      {"gpt_oss_mxfp4", "config.json", "\"mxfp4\"", "\"hqq\"", "hqq"},
      {"quantized/fp8_row", "model.safetensors", "k_proj.weight_scale", "k_proj.weight_scalf",
       "k_proj.weight_scale"},
      {"qwen3", "config.json", "{", "{\"quantization_config\": {\"quant_method\": \"mxfp4\"}, ",
       "mxfp4"}};
  for (const Rewritten& one : cases) {
    DYNAMIC_SECTION(one.model << ": " << one.says) {
      const fs::path model = copy_of(one.model, dir);
      rewrite(model / one.file, one.from, one.to);
      check_refused(model, dir, one.says);
    }
  }
  SECTION("a missing shard") {
    const fs::path model = copy_of("llama3_bf16_sharded", dir);
    fs::remove(model / "model-00002-of-00003.safetensors");
    check_refused(model, dir, "model-00002-of-00003.safetensors is missing");
  }
  SECTION("a quantised file that is cut off") {
    const fs::path model = copy_of("quantized/fp8_block", dir);
    fs::resize_file(model / "model.safetensors", 9000);
    check_refused(model, dir, "model.safetensors");
  }
}

#ifndef __SANITIZE_ADDRESS__  // a sanitizer's shadow memory is not the program's
// A Qwen3-MoE checkpoint of zeros in bfloat16: one hole on disk, whatever its size.
fs::path hollow_checkpoint(const TempDir& dir) {
  const nlohmann::json config = {
      {"model_type", "qwen3_moe"},     {"hidden_size", 512},       {"num_hidden_layers", 4},
      {"num_attention_heads", 8},      {"num_key_value_heads", 2}, {"head_dim", 64},
      {"intermediate_size", 1024},     {"vocab_size", 320},        {"num_experts", 512},
      {"moe_intermediate_size", 1024}, {"num_experts_per_tok", 2}};
  nlohmann::json header;
  std::int64_t end = 0;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t size = 2;
    for (const std::int64_t n : shape) size *= n;
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {end, end + size}}};
    end += size;
  };
  add("model.embed_tokens.weight", {320, 512});
  add("lm_head.weight", {320, 512});
  add("model.norm.weight", {512});
  for (int layer = 0; layer < 4; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    add(prefix + "input_layernorm.weight", {512});
    add(prefix + "post_attention_layernorm.weight", {512});
    add(prefix + "self_attn.q_proj.weight", {512, 512});
    add(prefix + "self_attn.k_proj.weight", {128, 512});
    add(prefix + "self_attn.v_proj.weight", {128, 512});
    add(prefix + "self_attn.o_proj.weight", {512, 512});
    add(prefix + "self_attn.q_norm.weight", {64});
    add(prefix + "self_attn.k_norm.weight", {64});
    add(prefix + "mlp.gate.weight", {512, 512});
    for (int e = 0; e < 512; ++e) {
      const std::string expert = prefix + "mlp.experts." + std::to_string(e) + ".";
      add(expert + "gate_proj.weight", {1024, 512});
      add(expert + "up_proj.weight", {1024, 512});
      add(expert + "down_proj.weight", {512, 1024});
    }
  }
  const std::string json = header.dump();
  std::string front(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) front[i] = static_cast<char>(json.size() >> (8 * i));
  const fs::path model = dir.path() / "hollow";
  fs::create_directory(model);
  std::ofstream(model / "config.json") << config.dump();
  std::ofstream(model / "model.safetensors", std::ios::binary) << front << json;
  fs::resize_file(model / "model.safetensors", 8 + json.size() + static_cast<std::uintmax_t>(end));
  return model;
}

TEST_CASE("of six gigabytes of experts only the routed ones come into memory") {
  const TempDir dir;
  const fs::path model = hollow_checkpoint(dir);
  struct stat file {};
  REQUIRE(stat((model / "model.safetensors").c_str(), &file) == 0);
  REQUIRE(file.st_size > 6'000'000'000);
  if (file.st_blocks * 512 > 100'000'000) SKIP("the temporary folder stores holes");
  const auto run = record(model, dir);
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(run.max_rss_kib < 1024 * 1024);  // pages that the system reads ahead count
}
#endif

TEST_CASE("tokenize reads tokenizer.model and tekken.json, and says what is wrong with one") {
  const auto run = kvscope_run({"tokenize", "--prompt", "the ship", "--pieces", "--model",
                                (kGolden / "tokenizer/pieces_bpe.model").string()});
  INFO(run.err);
  CHECK_HAS(run.out, "\"<s>\"\n", "\t\" the\"\n");
  CHECK(kvscope_run(
            {"tokenize", "--prompt", "[INST]a", "--model", (kGolden / "tokenizer/tekken").string()})
            .out == "1 3 137\n");
  const TempDir dir;
  for (const auto& [name, text] : {std::pair("tokenizer.model", "version https://git-lfs"),
                                   std::pair("tekken.json", "{\"config\": 1}")}) {
    const fs::path folder = dir.path() / name;
    fs::create_directory(folder);
    std::ofstream(folder / name) << text;
    refused({"tokenize", "--prompt", "a", "--model", folder.string()}, 3, {name});
  }
}

TEST_CASE("tokenize --pieces shows each id with its text") {
  const auto run = ran({"tokenize", "--prompt", "the ship\n", "--pieces", "--model",
                        (kGolden / "tokenizer/sentencepiece.json").string()});
  CHECK_HAS(run.out, "1\t\"<s>\"\n", "\t\" the\"\n", "13\t\"\\n\"\n");
}

}  // namespace kvscope::test::models_test
