// How far a recorded log-sum-exp may be from the recomputed one: what rounding explains, no more.

#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/verify.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::verify_tolerance_test {

/// The problems of a trace in f32 of which one log-sum-exp is off by this much.
std::vector<std::string> problems_with(float error) {
  SyntheticTrace trace = make_trace(Plan{});
  trace.layers[1].lse(2, 11) += error;
  const TempFolder folder;
  write_all(trace, *create_trace(folder / "t.h5", {}));
  ThreadPool pool(2);
  return verify_trace(folder / "t.h5", {.n_rows = 1000, .seed = 3}, pool).problems;
}

TEST_CASE("of a log-sum-exp in f32, a ten-thousandth of a nat is rounding and three are none") {
  CHECK(problems_with(0.5e-4f).empty());
  for (const float error : {3e-4f, -3e-4f}) {
    const auto problems = problems_with(error);
    REQUIRE(problems.size() == 1);
    CHECK_HAS(problems.front(), "/layers/1: query head 2, row 11: lse is");
  }
}

}  // namespace kvscope::test::verify_tolerance_test
