// A log-sum-exp of other keys is told apart from one that only missed their rounding.
#include "traces/verify_lse.hpp"

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
  trace.info.window[1] = 6;
  trace.info.sink_logits[1] += 0.1f;
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

}  // namespace kvscope::test::verify_lse_test
