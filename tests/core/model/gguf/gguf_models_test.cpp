// Every family from a GGUF file, against Hugging Face transformers and against the same model in
// the hub's format.
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/model/transformer.hpp"
#include "support/golden.hpp"
#include "tests/support/gguf_from_hub.hpp"
#include "tests/support/model_capture.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gguf_models_test {

using testing::GgufBuilder;

Transformer load(const TempDir& dir, const GgufBuilder& builder) {
  return Transformer::load(dir.write("model.gguf", builder.bytes()));
}

TEST_CASE("a GGUF file gives the numbers of transformers and of the hub's files") {
  const std::string name =
      GENERATE("llama2_mha", "llama3_gqa", "llama3_bf16_sharded", "mistral_window", "qwen2",
               "qwen3", "qwen3_moe", "smollm3", "gpt_oss", "gpt_oss_mxfp4", "gemma2", "gemma3",
               "phi3", "olmo2", "gpt_neox", "gpt_neox_serial");
  INFO(name);
  const auto folder = test::golden_dir() / name;
  const auto tokens = test::read_golden_tokens(folder / "golden.h5");
  const TempDir dir;
  const Transformer model = load(dir, testing::gguf_from_hub(folder));
  CHECK(model.weights().unread().empty());
  const test::Capture found = test::run(model, tokens, /*chunk=*/0, /*n_threads=*/2);
  CHECK(test::max_abs_difference(found.logits.view(),
                                 test::read_golden(folder / "golden.h5", "/logits").view()) < 4e-4);

  // Gemma's norms are stored with 1 added, its scale as a root: equal within rounding only.
  const Transformer hub = Transformer::load(folder);
  const test::Capture expected = test::run(hub, tokens, /*chunk=*/0, /*n_threads=*/2);
  if (name.starts_with("gemma")) {
    CHECK(test::max_abs_difference(found.logits.view(), expected.logits.view()) < 1e-4);
  } else if (name.starts_with("llama3")) {  // factors of RoPE in f32
    CHECK(test::max_abs_difference(found.logits.view(), expected.logits.view()) < 2e-4);
  } else {
    test::check_same_bits(found, expected);
  }
  CHECK(model.config().n_parameters() == hub.config().n_parameters());
  CHECK(model.config().bos_id == hub.config().bos_id);
  CHECK(model.config().eos_ids == hub.config().eos_ids);
}

TEST_CASE("large models are widened row by row: the same bits as widened at once") {
  // Matrix decides by its argument; here both ways on the permuted rows of q.
  const TempDir dir;
  const auto path =
      dir.write("model.gguf", testing::gguf_from_hub(test::golden_dir() / "llama3_gqa").bytes());
  const WeightFiles files = WeightFiles::open(path);
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  const Matrix wide(files, name, 128, 64, Kept::as_f32);
  const Matrix stored(files, name, 128, 64, Kept::as_stored);
  const WeightFiles hub = WeightFiles::open(test::golden_dir() / "llama3_gqa");
  const Tensor<float> expected = hub.get_float(name, {128, 64});
  std::vector<float> scratch(128 * 80);
  for (const Matrix* matrix : {&wide, &stored}) {
    for (Index row = 0; row < 128; ++row) {
      Index stride = 0;
      const float* values = matrix->rows(row, row + 1, scratch.data(), stride);
      CHECK(std::equal(values, values + 64, expected.data() + row * 64));
    }
    CHECK(matrix->stored_bf16(0) == nullptr);
  }
}

TEST_CASE("the parts of a split file are found from any of them") {
  const TempDir dir;
  const float one = 1.0f;
  const auto part = [&](std::uint32_t no, std::string_view name) {
    GgufBuilder builder;
    if (no == 0) builder.string("general.architecture", "llama");
    builder.u32("split.no", no).u32("split.count", 2);
    return builder.tensor(name, {1}, {&one, 1}).bytes();
  };
  const auto first = dir.write("m-00001-of-00002.gguf", part(0, "a"));
  CHECK_SAYS_AS(IoError, GgufCheckpoint(first), "m-00002-of-00002.gguf is missing");
  const auto second = dir.write("m-00002-of-00002.gguf", part(1, "b"));
  for (const auto& path : {first, second, gguf_file_of(dir.path()).value()}) {
    const GgufCheckpoint both(path);
    CHECK(both.n_files() == 2);
    CHECK(both.find("a") != nullptr);
    CHECK(both.find("b") != nullptr);
    CHECK(both.metadata().has("general.architecture"));
  }
  dir.write("m-00002-of-00002.gguf", part(0, "b"));
  CHECK_SAYS_AS(FormatError, GgufCheckpoint(first), "expected 1, as the file's name says");
  dir.write("other.gguf", part(0, "a"));
  CHECK_SAYS_AS(FormatError, gguf_file_of(dir.path()), "m-00001-of-00002.gguf, other.gguf");
}

TEST_CASE("what a GGUF file holds and kvscope does not compute is named") {
  const TempDir dir;
  const auto refused = [&](const GgufBuilder& builder, const std::string& message) {
    CHECK_SAYS_AS(Error, load(dir, builder), message);
  };
  const auto base = [] {
    return GgufBuilder()
        .u32("llama.block_count", 1)
        .u32("llama.embedding_length", 32)
        .u32("llama.attention.head_count", 2)
        .u32("llama.feed_forward_length", 32)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-6f);
  };
  const std::vector<float> embedding(32 * 32, 0.5f);
  refused(GgufBuilder().string("general.architecture", "rwkv7"),
          "general.architecture (" + dir.file("model.gguf") +
              "): expected one of llama, qwen2, qwen3, qwen3moe, smollm3, gpt-oss, gemma2, gemma3, "
              "phi3, olmo2, gptneox, found \"rwkv7\"");
  refused(GgufBuilder().string("general.architecture", "llama").string("general.type", "adapter"),
          "expected \"model\" (a language model by itself), found the string \"adapter\"");
  refused(base().string("general.architecture", "llama"), "\"token_embd.weight\"");
  refused(base()
              .string("general.architecture", "llama")
              .u32("llama.expert_count", 8)
              .tensor("token_embd.weight", {32, 32}, embedding),
          "expected no experts in a llama model, found 8");
  refused(base()
              .string("general.architecture", "llama")
              .tensor("rope_freqs.weight", {8}, std::vector<float>{1, 2, 3, 0, 2, 3, 1, 2})
              .tensor("token_embd.weight", {32, 32}, embedding),
          "expected positive numbers, found 0");
  // IQ2_XXS in the place of the embedding: 256 values in 66 bytes.
  refused(base()
              .string("general.architecture", "llama")
              .raw_tensor("token_embd.weight", 16, {32, 256}, std::string(32 * 66, '\1')),
          "found");
  refused(GgufBuilder()
              .string("general.architecture", "llama")
              .u32("llama.block_count", 1)
              .u32("llama.embedding_length", 256)
              .u32("llama.attention.head_count", 2)
              .u32("llama.feed_forward_length", 32)
              .f32("llama.attention.layer_norm_rms_epsilon", 1e-6f)
              .raw_tensor("token_embd.weight", 16, {32, 256}, std::string(32 * 66, '\1')),
          "tensor \"model.embed_tokens.weight\": expected a type of F32, F16, BF16, Q4_0, Q4_1, "
          "Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS or MXFP4, found "
          "\"IQ2_XXS\" (model.gguf)");
}

}  // namespace kvscope::gguf_models_test
