// Theorem B.1 of one head: equal to the command line's analysis.
#include "gui/model/bounds/theorem_view.hpp"
#include "core/trace/result.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>

#include "tests/gui_model/job_context.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::gui::test::theorem_view_test {

using Catch::Matchers::ContainsSubstring;
using kvscope::test::planted_trace;
using kvscope::test::PlantOptions;

MemoryTrace small_trace() {
  PlantOptions plant{.n_tokens = 80, .sink = 2.0};
  plant.key_scale = 0.001;  // short keys: the printed bound fails
  return planted_trace(plant);
}

TheoremRequest small_request() {
  return TheoremRequest{.layer = 1, .q_head = 2};
}

TheoremRows small_rows() {
  TestJob job;
  return theorem_rows(small_trace(), small_request(), job.context);
}

/// Same bits: NaN equals NaN.
bool same(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), b.size_bytes()) == 0;
}

TEST_CASE("theorem view: one head holds what the analysis says of it in the whole trace",
          "[theorem_view]") {
  const MemoryTrace trace = small_trace();
  TheoremRequest request = small_request();
  request.options.star = GENERATE(StarKey::argmax, StarKey::random, StarKey::first);
  request.options.rows = GENERATE(80, 13);
  TestJob job;
  const TheoremRows rows = theorem_rows(trace, request, job.context);
  MemoryResult whole;
  const auto summary = analyze_theorem_b1(trace, request.options, {whole, job.pool});
  const std::size_t n = rows.n_rows();
  REQUIRE(n == static_cast<std::size_t>(request.options.rows));
  const std::size_t at = (1 * 4 + 2) * n;  // layer 1 of 2, head 2 of 4
  const auto part = [&](const char* name) { return whole.values<float>(name).subspan(at, n); };
  CHECK(same(rows.cos, part("cos")));
  CHECK(same(rows.weight, part("weight")));
  CHECK(same(rows.cos_mean_query, part("cos_mean_query")));
  CHECK(same(rows.column(TheoremBound::printed).bound, part("bounds/printed")));
  CHECK(same(rows.column(TheoremBound::worst).bound, part("bounds/worst")));
  CHECK(same(rows.column(TheoremBound::main_exact).bound, part("main_text/exact")));
  CHECK(rows.query.back() == 79);
  CHECK(rows.n_stated == static_cast<Index>(n) - 1);  // position 0 sees itself only
}

TEST_CASE("theorem view: marked rows are those that are counted", "[theorem_view]") {
  const TheoremRows rows = small_rows();
  for (std::size_t b = 0; b < kTheoremBounds; ++b) {
    const auto bound = static_cast<TheoremBound>(b);
    const TheoremColumn& column = rows.column(bound);
    CHECK(std::count(column.violated.begin(), column.violated.end(), 1) == column.violations);
    for (std::size_t row = 0; row < rows.n_rows(); ++row) {
      const double gap = double{column.bound[row]} - double{rows.measured(bound)[row]};
      const bool is_wrong = (is_upper(bound) ? -gap : gap) > 1e-6;
      if (is_wrong) CHECK(column.violated[row] == 1);
    }
    if (must_hold(bound)) CHECK(column.violations == 0);
  }
  CHECK(rows.column(TheoremBound::printed).violations > 0);
}

TEST_CASE("theorem view: a trace of single keys makes no statement", "[theorem_view]") {
  TestJob job;
  const MemoryTrace trace = planted_trace(PlantOptions{.n_tokens = 1, .chunk = 1});
  const TheoremRows rows = theorem_rows(trace, small_request(), job.context);
  CHECK(rows.n_stated == 0);
  CHECK_THROWS_WITH(theorem_plot(rows, {TheoremBound::jensen}, TheoremColour::weight),
                    ContainsSubstring("one key only"));
}

TEST_CASE("theorem view: cache keys name every option", "[theorem_view]") {
  const TheoremRequest request = small_request();
  TheoremRequest other = request;
  other.options.rank = 2;
  CHECK(other.key() != request.key());
  other = request;
  other.options.star = StarKey::first;
  CHECK(other.key() != request.key());
  other = request;
  other.q_head = 1;
  CHECK(other.key() != request.key());
}

}  // namespace kvscope::gui::test::theorem_view_test
