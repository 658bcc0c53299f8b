// Quantised checkpoints of the hub against NumPy's reading of the stored numbers and transformers'
// logits (tests/golden/make_quantized.py), and files that are broken.
#include <nlohmann/json.hpp>

#include "core/model/quantized_rows.hpp"
#include "core/model/transformer.hpp"
#include "core/tensor/dtype.hpp"
#include "support/golden.hpp"
#include "tests/support/model_capture.hpp"
#include "tests/support/safetensors_builder.hpp"
#include "tests/support/test.hpp"

namespace kvscope::quantized_models_test {

using testing::SafetensorsBuilder;

double rms(TensorView<const float> values) {
  double sum = 0.0;
  for (Index r = 0; r < values.dim(0); ++r) {
    for (Index c = 0; c < values.dim(1); ++c) sum += double{values(r, c)} * double{values(r, c)};
  }
  return std::sqrt(sum / static_cast<double>(values.dim(0) * values.dim(1)));
}

std::string any_kind() {
  return GENERATE("fp8_block", "fp8_tensor", "fp8_row");
}

TEST_CASE("quantised checkpoints give the weights of their formulas and transformers' logits") {
  const std::string name = any_kind();
  INFO(name);
  const auto folder = test::golden_dir() / "quantized" / name;
  const ModelConfig config = load_model_config(folder);
  const WeightFiles files = WeightFiles::open(folder);
  const std::string layer = "model.layers.0.";
  struct Module {
    std::string name;
    Index n_rows, n_cols;
  };
  for (const auto& [module, n_rows, n_cols] :
       {Module{"self_attn.q_proj", 32, 32}, Module{"self_attn.k_proj", 16, 32},
        Module{"mlp.up_proj", 48, 32}, Module{"mlp.down_proj", 32, 48}}) {
    INFO(module);
    const auto rows = linear_rows(files, config.quantization, layer + module, {0, n_rows}, n_cols);
    const Tensor<float> expected =
        test::read_golden(folder / "golden.h5", "/weights/" + layer + module);
    const Matrix copy(linear_rows(files, config.quantization, layer + module, {0, n_rows}, n_cols),
                      module, n_rows, n_cols, Kept::as_f32);
    Index stride = 0;
    const float* values = copy.rows(0, n_rows, nullptr, stride);
    CHECK(std::equal(values, values + n_rows * n_cols, expected.data()));
    // Some rows of a part that begins further down, as fused matrices are read.
    const auto part = linear_rows(files, config.quantization, layer + module, {5, n_rows}, n_cols);
    std::vector<float> some(static_cast<std::size_t>(3 * (n_cols + 1)));
    part->widen(2, 5, some.data(), n_cols + 1);
    for (Index r = 0; r < 3; ++r) {
      const float* row = some.data() + r * (n_cols + 1);
      CHECK(std::equal(row, row + n_cols, expected.data() + (7 + r) * n_cols));
    }
  }

  const auto tokens = test::read_golden_tokens(folder / "golden.h5");
  const Transformer model = Transformer::load(folder);
  CHECK(model.weights().unread().empty());
  const test::Capture found = test::run(model, tokens, /*chunk=*/0, /*n_threads=*/2);
  const Tensor<float> expected = test::read_golden(folder / "golden.h5", "/logits");
  CHECK(test::max_abs_difference(found.logits.view(), expected.view()) <
        2e-4 * rms(expected.view()));
}

TEST_CASE("a copy in bf16 gives the bits of rounding while multiplying") {
  const std::string name = any_kind();
  for (const Matmul matmul : {Matmul::bf16_portable, Matmul::bf16_avx512, Matmul::bf16_amx}) {
    if (!is_available(matmul)) continue;
    INFO(name << " with " << enum_name(matmul));
    const auto folder = test::golden_dir() / "quantized" / name;
    const auto tokens = test::read_golden_tokens(folder / "golden.h5");
    const auto backend = lane_backend({matmul, DType::f32});
    const Transformer rounding = Transformer::load(folder, backend, Kept::as_stored);
    const test::Capture expected = test::run(rounding, tokens, /*chunk=*/0, /*n_threads=*/2);
    for (const Kept kept : {Kept::as_f32, Kept::as_bf16}) {
      const Transformer model = Transformer::load(folder, backend, kept);
      test::check_same_bits(test::run(model, tokens, /*chunk=*/5, /*n_threads=*/2), expected);
    }
  }
}

// ---- broken files

void check_refused(const SafetensorsBuilder& builder, const QuantizationConfig& config,
                   const std::string& message) {
  const TempDir dir;
  dir.write("model.safetensors", builder.bytes());
  const WeightFiles files = WeightFiles::open(dir.path());
  const auto open = [&] {
    const Matrix matrix(linear_rows(files, config, "a", {0, 16}, 16), "a.weight", 16, 16,
                        Kept::as_f32);
  };
  CHECK_SAYS_AS(FormatError, open(), message);
}

TEST_CASE("FP8: scales that are missing or do not fit, values that are none") {
  const std::string ones(256, '\x38');
  const auto weight = [&] {
    return SafetensorsBuilder().add_raw("a.weight", "F8_E4M3", {16, 16}, ones);
  };
  QuantizationConfig config{.kind = QuantizationConfig::Kind::fp8};
  check_refused(weight(), config, "weight_scale, found neither");
  const std::vector<float> scales(256, 1.0f);
  check_refused(weight().add("a.weight_scale_inv", DType::f32, {2, 2}, {scales.data(), 4}), config,
                "expected one scale or 16 (one per row; there is no weight_block_size");
  check_refused(weight().add("a.weight_scale", DType::f32, {3}, {scales.data(), 3}), config,
                "found shape [3]");
  config.block_rows = config.block_cols = 8;
  check_refused(weight().add("a.weight_scale_inv", DType::f32, {2, 3}, {scales.data(), 6}), config,
                "expected shape [2, 2], found [2, 3]");
  check_refused(weight().add_raw("a.weight_scale_inv", "F8_E5M2", {2, 2}, "1234"), config,
                "expected dtype F32, F16 or BF16, found \"F8_E5M2\"");
  const float infinite = INFINITY;
  check_refused(weight().add("a.weight_scale", DType::f32, {1}, {&infinite, 1}), config,
                "expected finite values");
  std::string with_nan = ones;
  with_nan[17] = '\x7f';
  check_refused(SafetensorsBuilder()
                    .add_raw("a.weight", "F8_E4M3", {16, 16}, with_nan)
                    .add("a.weight_scale", DType::f32, {1}, {scales.data(), 1}),
                config, "expected finite values, found nan at element 17 (model.safetensors)");
  check_refused(SafetensorsBuilder()
                    .add_raw("a.weight", "F8_E5M2", {16, 16}, ones)
                    .add("a.weight_scale", DType::f32, {1}, {scales.data(), 1}),
                config, "found \"F8_E5M2\"");
  check_refused(SafetensorsBuilder()
                    .add_raw("a.weight", "F8_E4M3", {16, 8}, ones.substr(128))
                    .add("a.weight_scale", DType::f32, {1}, {scales.data(), 1}),
                config, "expected shape [16, 16], found [16, 8]");
}

}  // namespace kvscope::quantized_models_test
