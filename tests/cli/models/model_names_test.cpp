// Models by the names that people type: GGUF files, the hub's cache, Ollama's store; and what is
// found instead of a model, with the way out.
#include "tests/cli/run_program.hpp"
#include "tests/support/gguf_from_hub.hpp"
#include "tests/support/places.hpp"
#include "tests/support/real_models.hpp"

namespace kvscope::test::model_names_test {

using testing::GgufBuilder;

const fs::path kGolden = testing::source_dir() / "tests/golden";

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

// A tokenizer of single bytes, so that texts can be recorded.
GgufBuilder with_tokenizer(GgufBuilder builder) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<float> scores(3, 0.0f);
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    tokens.emplace_back(text);
  }
  scores.resize(tokens.size(), 0.0f);
  return builder.string("tokenizer.ggml.model", "llama")
      .strings("tokenizer.ggml.tokens", tokens)
      .numbers("tokenizer.ggml.scores", scores)
      .string("tokenizer.chat_template", "{{ messages }}");
}

std::string model_bytes() {
  return with_tokenizer(testing::gguf_from_hub(kGolden / "llama3_gqa")).bytes();
}

RunResult record(const std::string& model, const TempDir& dir,
                 const std::vector<std::string>& environment = {}) {
  const fs::path ids = dir.write("ids.json", "[5, 17, 3, 250, 99]");
  return kvscope_run({"record", "--model", model, "--tokens", ids.string(), "--out",
                      dir.file("t.h5"), "--overwrite"},
                     {.input = "", .environment = environment});
}

void check_refused(const std::string& model, const TempDir& dir, const std::string& expected,
                   const std::vector<std::string>& environment = {}) {
  const auto run = record(model, dir, environment);
  INFO(run.err);
  CHECK(run.code == 3);
  CHECK(run.err_is_one_line());
  CHECK_HAS(run.err, expected);
}

TEST_CASE("a GGUF file and a folder with one record, tokenize and tell what they hold") {
  const TempDir dir;
  const fs::path file = dir.path() / "models/tiny.gguf";
  write(file, model_bytes());
  for (const fs::path& model : {file, file.parent_path()}) {
    const auto run = record(model.string(), dir);
    INFO(run.err);
    CHECK(run.code == 0);
  }
  const auto ids = kvscope_run({"tokenize", "--model", file.string(), "--prompt", "az"});
  CHECK(ids.out == "0 229 153 132 100 125\n");  // BOS, the word mark's three bytes, "a", "z"

  const auto info = kvscope_run({"info", file.string(), "--json"}).json();
  CHECK(info.at("what") == "GGUF file");
  CHECK(info.at("version") == 3);
  CHECK(info.at("family") == "llama");
  CHECK(info.at("runs_here") == "yes");
  CHECK(info.at("metadata").at("llama.block_count") == 4);
  CHECK(info.at("metadata").at("tokenizer.ggml.tokens") == "a list of 259 strings");
  CHECK(info.at("metadata").at("tokenizer.chat_template") == "{{ messages }}");
  CHECK(info.at("tensors_by_type").at("F32").get<int>() > 30);
}

TEST_CASE("info describes GGUF files that are not computed, with the reason") {
  const TempDir dir;
  const auto file =
      dir.write("other.gguf", GgufBuilder().string("general.architecture", "rwkv7").bytes());
  const auto info = kvscope_run({"info", file.string(), "--json"}).json();
  CHECK(info.at("metadata").at("general.architecture") == "rwkv7");
  CHECK_HAS(info.at("runs_here").get<std::string>(), "expected one of llama");
}

TEST_CASE("ORG/NAME is looked for in the hub's cache") {
  const TempDir dir;
  const fs::path cache = dir.path() / "hub";
  const fs::path model = cache / "models--kv--tiny";
  const std::vector<std::string> environment = {"HF_HUB_CACHE=" + cache.string()};
  check_refused("kv/tiny", dir, "fetch it: hf download kv/tiny", environment);
  check_refused("kv/tiny@v2", dir, "hf download kv/tiny --revision v2", environment);
  // A snapshot is a folder of links to blobs.
  write(model / "refs/main", "abc123\n");
  fs::create_directories(model / "snapshots/abc123");
  for (const char* name : {"config.json", "model.safetensors"})
    fs::create_symlink(kGolden / "qwen2" / name, model / "snapshots/abc123" / name);
  const auto run = record("kv/tiny", dir, environment);
  INFO(run.err);
  CHECK(run.code == 0);
  const auto info = kvscope_run({"info", dir.file("t.h5"), "--json"}).json();
  CHECK(info.dump().find("\"tiny\"") != std::string::npos);  // not the snapshot's name
  CHECK(record("kv/tiny@abc123", dir, environment).code == 0);
  check_refused("kv/tinny", dir, "Did you mean kv/tiny?", environment);
  // HF_HOME holds the cache in a folder of its own.
  CHECK(record("kv/tiny", dir, {"HF_HUB_CACHE=", "HF_HOME=" + dir.path().string()}).code == 0);
  write(model / "refs/main", "../../../../etc");
  check_refused("kv/tiny", dir, "hf download kv/tiny", environment);
}

TEST_CASE("ollama:NAME is looked for in Ollama's store") {
  const TempDir dir;
  const std::vector<std::string> environment = {"OLLAMA_MODELS=" + dir.path().string()};
  check_refused("ollama:tiny", dir, "fetch it: ollama pull tiny", environment);
  const std::string digest(64, 'a');
  const fs::path manifest = dir.path() / "manifests/registry.ollama.ai/library/tiny/latest";
  const auto write_manifest = [&](const std::string& type, const std::string& value) {
    write(manifest, R"({"layers": [{"mediaType": "application/vnd.ollama.image.license",
            "digest": "sha256:00"}, {"mediaType": "application/vnd.ollama.image.)" +
                        type + R"(", "digest": ")" + value + "\"}]}");
  };
  write_manifest("model", "sha256:" + digest);
  check_refused("ollama:tiny", dir, "fetch it again: ollama pull tiny:latest", environment);
  write(dir.path() / "blobs" / ("sha256-" + digest), model_bytes());
  for (const char* name : {"ollama:tiny", "ollama:tiny:latest", "ollama:library/tiny"}) {
    INFO(name);
    CHECK(record(name, dir, environment).code == 0);
  }
  write_manifest("model", "sha256:../../etc/passwd");
  check_refused("ollama:tiny", dir, "expected sha256: and 64 digits", environment);
  write_manifest("adapter", "sha256:" + digest);
  check_refused("ollama:tiny", dir, "found an adapter above another one", environment);
  write(manifest, "[");
  check_refused("ollama:tiny", dir, "latest", environment);
  check_refused("ollama:../../tiny", dir, "ollama pull", environment);
}

TEST_CASE("models lists what the machine has, and why something does not run") {
  const TempDir dir;
  const std::string root = dir.path().string();
  const std::vector<std::string> environment = {"HF_HUB_CACHE=" + root + "/hub",
                                                "OLLAMA_MODELS=" + root + "/ollama"};
  const auto list = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "models");
    return kvscope_run(words, {.input = "", .environment = environment});
  };
  const auto none = list({});
  CHECK(none.code == 0);
  CHECK_HAS(none.err, "hf download ORG/NAME");

  write(dir.path() / "hub/models--kv--tiny/refs/main", "c0");
  fs::create_directories(dir.path() / "hub/models--kv--tiny/snapshots");
  fs::create_directory_symlink(kGolden / "qwen2", dir.path() / "hub/models--kv--tiny/snapshots/c0");
  write(dir.path() / "files/a/good.gguf", model_bytes());
  write(dir.path() / "files/b/other.gguf",
        GgufBuilder().string("general.architecture", "mamba").bytes());
  write(dir.path() / "files/broken.gguf", "GGUF");
  const auto json = list({root + "/files", "--json"}).json();
  REQUIRE(json.size() == 4);
  CHECK(json[0].at("model") == "kv/tiny");
  CHECK(json[0].at("family") == "qwen2");
  CHECK(json[0].at("runs_here") == true);
  CHECK(json[0].at("max_positions") == 512);
  CHECK(json[1].at("runs_here") == true);
  CHECK_HAS(json[2].at("why_not").get<std::string>(), "found \"mamba\"");
  CHECK_HAS(json[3].at("why_not").get<std::string>(), "truncated");
  const auto table = list({root + "/files"});
  CHECK_HAS(table.out, "kv/tiny");
  CHECK(list({root + "/nowhere"}).code == 3);
}

TEST_CASE("what is no model says what it is and the way out") {
  const TempDir dir;
  const auto folder_with = [&](const char* name, const std::string& text = "{}") {
    const fs::path folder = dir.path() / name;
    write(folder / name, text);
    return folder.string();
  };
  check_refused(folder_with("adapter_config.json"), dir, "merge_and_unload()");
  check_refused(folder_with("pytorch_model.bin"), dir, "found PyTorch files (pytorch_model.bin)");
  check_refused(folder_with("consolidated.safetensors"), dir, "maker's own layout");
  check_refused(dir.write("m.safetensors", "x").string(), dir,
                "expected the folder that it lies in");
  check_refused(dir.write("m.bin", "x").string(), dir, "is a PyTorch file");
  check_refused(dir.write("m.txt", "x").string(), dir, "does not begin as GGUF does");
  check_refused(dir.write("m.gguf", "x").string(), dir, "expected a GGUF file");
  check_refused("no/such", dir, "hf download no/such");

  const fs::path foreign = dir.path() / "foreign";
  write(foreign / "model.safetensors", "x");
  write(foreign / "config.json", R"({"model_type": "falcon"})");
  check_refused(foreign.string(), dir, "Python recorder");
  write(foreign / "config.json", R"({"model_type": "own", "auto_map": {}})");
  check_refused(foreign.string(), dir, "Python code of its own");
  write(foreign / "config.json", R"({"model_type": "llava", "text_config": {}})");
  check_refused(foreign.string(), dir, "a model of texts and pictures, of which");
}

TEST_CASE("a tokenizer that is not needed blocks nothing") {
  const TempDir dir;
  const fs::path model = dir.path() / "model";
  fs::create_directory(model);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy(kGolden / "qwen2" / name, model / name);
  write(model / "vocab.json", "{}");
  const auto run = record(model.string(), dir);
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK_HAS(run.err, "no token texts in the trace", "found vocab.json");
  refused({"record", "--model", model.string(), "--out", dir.file("u.h5")}, 3,
          {"AutoTokenizer.from_pretrained"});
  write(model / "tokenizer.json", R"({"model": {"type": "Unigram"}})");
  CHECK(record(model.string(), dir).code == 0);
}

TEST_CASE("tensors that no layer reads are named or refused") {
  const TempDir dir;
  const std::vector<float> values(8, 0.5f);
  const auto with = [&](std::string_view name) {
    return dir.write(
        "m.gguf", testing::gguf_from_hub(kGolden / "llama3_gqa").tensor(name, {8}, values).bytes());
  };
  const auto run = record(with("extra.weight").string(), dir);
  CHECK(run.code == 0);
  CHECK_HAS(run.err, "settings or tensors that a llama model does not read here",
            "elsewhere: extra.weight");
  for (const char* name : {"blk.0.attn_gate.bias", "base.lora_A.weight"}) {
    CHECK_HAS(record(with(name).string(), dir).err, "expected none");
  }
}

#ifndef __SANITIZE_ADDRESS__  // a sanitizer's shadow memory is not the program's
TEST_CASE("loading a quantised file takes the weights as they are kept, and little more",
          "[slow]") {
  const fs::path folder = testing::real_models();
  if (folder.empty()) SKIP("the package with the model cannot be downloaded here");
  const long idle = kvscope_run({"version"}).max_rss_kib;  // the program itself
  for (const char* name : {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"}) {
    for (const auto& [matmul, n_bytes] : {std::pair("f32", 4), std::pair("bf16", 2)}) {
      INFO(name << " with --matmul " << matmul);
      const auto run = ran({"bench", "live", "--lengths", "4", "--repeat", "1", "--threads", "1",
                            "--matmul", matmul, "--model", (folder / name).string(), "--json"});
      const long kept = run.json().at("n_parameters").get<long>() * n_bytes / 1024;
      // Gemma's 262,144 words take 37 MiB while the hash is made, elsewhere more.
      CHECK(run.max_rss_kib - idle < kept + 96 * 1024);
    }
  }
}
#endif

}  // namespace kvscope::test::model_names_test
