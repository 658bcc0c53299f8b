#include "traces/verify_lse.hpp"

#include <random>

#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/verify.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::verify_lse_test {

VerifyReport written_and_verified(const SyntheticTrace& trace, VerifyOptions options = {}) {
  const TempFolder folder;
  write_all(trace, *create_trace(folder / "t.h5", {}));
  ThreadPool pool(2);
  return verify_trace(folder / "t.h5", options, pool);
}

/// q and k as the model had them, in 16 bits: nothing is rounded when they are stored.
SyntheticTrace of_the_models_own_bits(DType dtype) {
  Plan plan;
  plan.dtype = dtype;
  return make_trace(plan);
}

/// An f32 model stored in 16 bits: lse is of the numbers before rounding.
SyntheticTrace rounded_when_stored(DType dtype, std::uint64_t seed = 1) {
  SyntheticTrace trace = make_trace(Plan{}, seed);
  trace.info.dtype = dtype;
  return trace;
}

TEST_CASE("an lse of other keys is seen although it is within what rounding may do") {
  SyntheticTrace trace = of_the_models_own_bits(DType::bf16);
  trace.layers[2].lse(1, 22) += 0.01f;
  trace.layers[1].lse(3, 23) -= 0.004f;
  const VerifyReport report = written_and_verified(trace);
  REQUIRE(report.problems.size() == 2);
  CHECK_HAS(report.problems[1], "/layers/2: query head 1, row 22: lse is", "no rounding");
  CHECK_HAS(report.problems[0], "/layers/1: query head 3, row 23: lse is");
  CHECK(report.max_lse_error < 0.0101);
  // The same rows every time.
  CHECK(written_and_verified(trace).problems == report.problems);
}

TEST_CASE("sinks and windows belong to what the keys give") {
  SyntheticTrace trace = of_the_models_own_bits(DType::bf16);
  for (Index i = 0; i < trace.info.n_layers; ++i) {
    for (Index h = 0; h < trace.info.n_q; ++h) {
      const double sink_logit = 0.5 * static_cast<double>(h);
      trace.info.sink_logits.push_back(static_cast<float>(sink_logit));
      auto& layer = trace.layers[i];
      for (Index t = 0; t < trace.info.n_tokens; ++t) {
        const double lse = layer.lse(h, t);
        layer.lse(h, t) = static_cast<float>(std::log(std::exp(lse) + std::exp(sink_logit)));
      }
    }
  }
  CHECK(written_and_verified(trace).ok);
  trace.info.window[1] = 5;  // was 6
  CHECK_FALSE(written_and_verified(trace).ok);
}

TEST_CASE("rounding to the storage type is no contradiction") {
  const DType dtype = GENERATE(DType::f16, DType::bf16);
  const auto seed = static_cast<std::uint64_t>(GENERATE(1, 2, 3, 4));
  const VerifyReport report = written_and_verified(rounded_when_stored(dtype, seed));
  CHECK(report.ok);
  CHECK(report.max_lse_error > (dtype == DType::f16 ? 2e-4 : 2e-3));
}

TEST_CASE("a trace of few rows is no evidence") {
  SyntheticTrace trace = of_the_models_own_bits(DType::bf16);
  trace.layers[0].lse(0, 23) += 0.01f;
  CHECK(written_and_verified(trace, {.n_rows = 3}).ok);
  CHECK_FALSE(written_and_verified(trace, {.n_rows = 6}).ok);
}

TEST_CASE("the standard deviation of rounding is what many roundings give") {
  const DType dtype = GENERATE(DType::f16, DType::bf16);
  constexpr Index kKeys = 12;
  constexpr Index kDims = 16;
  constexpr double kScale = 0.25;
  std::mt19937_64 rng(5);
  std::normal_distribution<float> normal;
  const auto lse_of = [&](std::span<const float> q, TensorView<const float> keys,
                          std::vector<double>* prob, bool is_stored) {
    double sum = 0;
    std::vector<double> weight;
    for (Index j = 2; j < kKeys; ++j) {
      double score = 0;
      for (Index c = 0; c < kDims; ++c) {
        const float a = q[c];
        const float b = keys(j, c);
        score += is_stored ? static_cast<double>(stored(dtype, a)) * stored(dtype, b)
                           : static_cast<double>(a) * b;
      }
      weight.push_back(std::exp(kScale * score));
      sum += weight.back();
    }
    if (prob != nullptr) {
      for (const double w : weight) prob->push_back(w / sum);
    }
    return std::log(sum);
  };
  // The ratio of what happens to what is expected has variance 1 over many draws.
  double squares = 0;
  constexpr int kDraws = 400;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<float> q(kDims);
    for (float& x : q) x = normal(rng);
    Tensor<float> keys({kKeys, kDims});
    for (float& x : keys.flat()) x = normal(rng);
    std::vector<double> prob;
    const double exact = lse_of(q, keys.view(), &prob, /*is_stored=*/false);
    const double found = lse_of(q, keys.view(), nullptr, /*is_stored=*/true);
    const auto seen = keys.view().range(0, 2, kKeys);
    const double expected =
        rounding_of_lse(q, seen, rounding_variances(seen, dtype).view(), prob, kScale, dtype);
    squares += (found - exact) * (found - exact) / (expected * expected);
  }
  CHECK(squares / kDraws > 0.8);
  CHECK(squares / kDraws < 1.2);
}

TEST_CASE("an element's rounding is half a unit in its last place, evenly spread") {
  const DType dtype = GENERATE(DType::bf16, DType::f16);
  const int bits = dtype == DType::f16 ? 11 : 8;
  const int least = dtype == DType::f16 ? -14 : -126;
  std::vector<float> all = {0.0F, -0.0F, 1.0F, -2.0F, 1.5F, 0.1F, -3e4F, 1e-4F, 7e-6F, 1e-12F};
  for (int e = -20; e < 16; ++e) {
    all.push_back(std::ldexp(1.0F, e));
    all.push_back(std::nextafter(std::ldexp(1.0F, e), 0.0F));
  }
  const TensorView<const float> x(all.data(), {2, static_cast<Index>(all.size()) / 2});
  const Tensor<float> found = rounding_variances(x, dtype);
  for (std::size_t i = 0; i < all.size(); ++i) {
    double expected = 0.0;
    if (all[i] != 0.0F) {
      const double u = std::ldexp(1.0, std::max(std::ilogb(all[i]), least) - bits);
      expected = u * u / 3;
    }
    CHECK_THAT(static_cast<double>(found.data()[i]), Catch::Matchers::WithinRel(expected, 1e-6));
  }
}

}  // namespace kvscope::test::verify_lse_test
