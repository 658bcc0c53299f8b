// LoRA adapters as the Python package peft saves them, against peft's own merging
// (tests/golden/make_adapters.py), and folders that are broken.
#include "core/model/adapter.hpp"

#include <memory>
#include <nlohmann/json.hpp>

#include "core/model/model_hash.hpp"
#include "core/model/transformer.hpp"
#include "support/golden.hpp"
#include "tests/support/gguf_from_hub.hpp"
#include "tests/support/model_capture.hpp"
#include "tests/support/safetensors_builder.hpp"
#include "tests/support/test.hpp"

namespace kvscope::adapter_test {

using nlohmann::json;
using testing::SafetensorsBuilder;

test::Capture logits_of(const fs::path& model, const std::vector<TokenId>& tokens,
                        const BackendFactory& backend = make_lane_backend,
                        Kept copies = Kept::as_f32) {
  return test::run(Transformer::load(model, backend, copies), tokens, /*chunk=*/0, 2);
}

TEST_CASE("an adapter's folder gives the logits of the model that peft merges") {
  const std::string name = GENERATE("plain", "patterns", "dora", "embedding");
  INFO(name);
  const fs::path folder = test::golden_dir() / "adapters" / name;
  CHECK(is_adapter(folder));
  CHECK(fs::equivalent(base_of(folder), test::golden_dir() / "llama2_mha"));
  const auto tokens = test::read_golden_tokens(folder / "golden.h5");
  const Transformer model = Transformer::load(folder);
  CHECK(model.weights().unread().empty());
  const auto expected = test::read_golden(folder / "golden.h5", "/logits");
  const test::Capture found = test::run(model, tokens, /*chunk=*/0, /*n_threads=*/2);
  CHECK(test::max_abs_difference(found.logits.view(), expected.view()) < 4e-4);
  // It is no copy of its base, and says so.
  const fs::path base = test::golden_dir() / "llama2_mha";
  CHECK(test::max_abs_difference(logits_of(base, tokens).logits.view(), expected.view()) > 0.1);
  CHECK(model_hash(folder) != model_hash(base));
}

// A folder with one module's weights, beside the model that it changes.
struct Case {
  std::shared_ptr<TempDir> dir = std::make_shared<TempDir>();
  json config = {{"peft_type", "LORA"},
                 {"r", 2},
                 {"lora_alpha", 4},
                 {"target_modules", {"q_proj"}},
                 {"bias", "none"}};
  Index rank = 2;
  std::string prefix = "base_model.model.";
  std::string module = "model.layers.0.self_attn.q_proj";
  std::string base = (test::golden_dir() / "llama2_mha").string();
  Index n_rows = 64;

  fs::path write() const {
    json text = config;
    if (!base.empty()) text["base_model_name_or_path"] = base;
    dir->write("adapter_config.json", text.dump());
    const std::vector<float> values(static_cast<std::size_t>(rank * std::max<Index>(64, n_rows)),
                                    0.25f);
    const std::span<const float> all(values);
    dir->write("adapter_model.safetensors",
               SafetensorsBuilder()
                   .add(prefix + module + ".lora_A.weight", DType::f32, {rank, 64},
                        all.first(static_cast<std::size_t>(rank * 64)))
                   .add(prefix + module + ".lora_B.weight", DType::f32, {n_rows, rank},
                        all.first(static_cast<std::size_t>(rank * n_rows)))
                   .bytes());
    return dir->path();
  }
};

void check_refused(const Case& one, const std::string& message) {
  const fs::path folder = one.write();
  CHECK_SAYS_AS(Error, Transformer::load(folder), message);
}

TEST_CASE("a merged weight is W + s B A, over files of any kind") {
  const Case one;
  const fs::path folder = one.write();
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  const WeightFiles base = WeightFiles::open(one.base);
  const Tensor<float> w = base.get_float(name, {64, 64});
  const std::vector<TokenId> tokens = {3, 17, 250, 8, 99};
  // The same change written into the model's own weights.
  const WeightFiles files = WeightFiles::open(folder);
  const auto rows = files.adapter()->adapt(stored_rows(files, name, {0, 64}, 64),
                                           "model.layers.0.self_attn.q_proj", {0, 64}, 64);
  std::vector<float> found(64 * 64);
  rows->widen(0, 64, found.data(), 64);
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i] == w.data()[i] + 2.0f * 0.25f * 0.25f + 2.0f * 0.25f * 0.25f);  // rank 2
  }
  // From GGUF, whose rows of q lie otherwise, the same bits.
  Case other;
  const TempDir dir;
  other.base = dir.write("base.gguf", testing::gguf_from_hub(one.base).bytes()).string();
  test::check_same_bits(logits_of(other.write(), tokens), logits_of(folder, tokens));
  // Kept in bf16: the bits of rounding what is kept in f32.
  const auto halves = lane_backend({Matmul::bf16_portable, DType::f32});
  test::check_same_bits(logits_of(folder, tokens, halves, Kept::as_bf16),
                        logits_of(folder, tokens, halves, Kept::as_f32));
}

TEST_CASE("adapters that are not computed are refused in a sentence") {
  const auto with = [](const char* field, const json& value) {
    Case one;
    one.config[field] = value;
    return one;
  };
  check_refused(with("peft_type", "IA3"), "peft_type (");
  check_refused(with("bias", "lora_only"), "merge_and_unload()");
  for (const char* field : {"lora_bias", "use_qalora"}) check_refused(with(field, true), field);
  check_refused(with("target_parameters", {"mlp.experts"}), "target_parameters");
  check_refused(with("trainable_token_indices", {1, 2}), "trainable_token_indices");
  check_refused(with("init_lora_weights", "pissa"), "leaves the model's weights alone");
  check_refused(with("r", 3), "expected weights of rank 3 for \"model.layers.0.self_attn.q_proj\"");
  check_refused(with("rank_pattern", {{"q_proj", 5}}), "expected weights of rank 5");
  check_refused(with("rank_pattern", {{"q_(proj", 5}}), "rank_pattern.\"q_(proj\"");
  check_refused(with("alpha_pattern", {{"layers\\.0\\..*", "x"}}), "expected a positive number");
  check_refused(with("target_modules", {"v_proj"}), "found weights for \"model.layers.0");
  check_refused(with("target_modules", ".*v_proj"), "found weights for \"model.layers.0");
  check_refused(with("target_modules", 5), "target_modules");
  check_refused(with("use_dora", true), "lora_magnitude_vector");
  CHECK_NOTHROW(Transformer::load(with("target_modules", "all-linear").write()));
  CHECK_NOTHROW(Transformer::load(with("target_modules", ".*\\.q_proj").write()));
}

TEST_CASE("adapters that do not fit their model are refused in a sentence") {
  Case one;
  SECTION("another shape") {
    one.n_rows = 32;
    check_refused(one, "lora_B.weight\": expected shape [64, 2], found [32, 2]");
  }
  SECTION("no such layer") {
    one.module = "model.layers.9.self_attn.q_proj";
    check_refused(one, "an adapter's change of what a llama model");
  }
  SECTION("foreign names") {
    one.prefix = "transformer.";
    check_refused(one, "expected names that begin with base_model.model.");
  }
  SECTION("a head that is the embedding") {
    one.base = (test::golden_dir() / "llama3_gqa").string();
    one.module = "lm_head";
    one.n_rows = 256;
    one.config["target_modules"] = {"lm_head"};
    check_refused(one, "which are one matrix in this model");
  }
  SECTION("no name of a model") {
    one.base.clear();
    check_refused(one, "base_model_name_or_path");
  }
  SECTION("a model that is not there") {
    one.base = "nobody/nothing";
    check_refused(one, "hf download nobody/nothing");
  }
  SECTION("an adapter above an adapter") {
    one.base = (test::golden_dir() / "adapters/plain").string();
    check_refused(one, "an adapter above another is not read");
  }
  SECTION("itself") {
    one.base = ".";
    check_refused(one, "an adapter above another is not read");
  }
  SECTION("weights cut off") {
    const fs::path folder = one.write();
    fs::resize_file(folder / "adapter_model.safetensors", 300);
    CHECK_THROWS_AS(Transformer::load(folder), FormatError);
    fs::remove(folder / "adapter_model.safetensors");
    CHECK_SAYS_AS(IoError, Transformer::load(folder), "expected adapter_model.safetensors");
  }
  SECTION("settings that are no JSON") {
    const fs::path folder = one.write();
    one.dir->write("adapter_config.json", "{");
    CHECK_THROWS_AS(Transformer::load(folder), FormatError);
  }
}

}  // namespace kvscope::adapter_test
