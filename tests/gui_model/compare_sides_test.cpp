// What is compared with what, from the session; and the CSV of a real comparison.
#include "gui/model/compare/compare_sides.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "analysis/base/read_table.hpp"
#include "gui/model/compare/compare_figures.hpp"
#include "tests/gui_model/job_context.hpp"
#include "tests/gui_model/trace_files.hpp"

namespace kvscope::gui::test::compare_sides_test {

using Catch::Matchers::ContainsSubstring;

CompareOptions comparing(CompareWhat what) {
  return CompareOptions{.what = what};
}

TEST_CASE("what cannot be compared is a sentence with the next step") {
  const TempFolder folder;
  Bench bench;
  Plan plan;
  bench.open(write_trace(folder / "t.h5", make_trace(plan)));
  Session& session = bench.session();
  const auto problem = [&](const char* selector, const char* other) {
    session.select("test", [&](Selection& s) {
      s.query = 10;
      s.selector = selector;
      s.other = other;
    });
    return compare_sides(session, comparing(CompareWhat::methods)).problem;
  };
  CHECK_THAT(problem("quoka", "specattn"), ContainsSubstring("choose a decoded position"));
  session.select("test", [](Selection& s) { s.layer = 1; });
  CHECK_THAT(problem("quoka", "oracle-topk"), ContainsSubstring("sliding window"));
  plan.layers = {0, 2};
  Bench other;
  other.open(write_trace(folder / "a.h5", make_trace(plan)));
  other.open(write_trace(folder / "b.h5", make_trace({}, /*seed=*/2)));
  other.session().set_second(1);
  REQUIRE(other.session().second());
  const auto traces = compare_sides(other.session(), comparing(CompareWhat::traces));
  CHECK_THAT(traces.problem, ContainsSubstring("tokens"));
}

TEST_CASE("two traces: the head at the same depth, or one of its own") {
  CHECK(matching_index(3, 8, 8, {0, 1, 2, 3, 4, 5, 6, 7}) == 3);
  CHECK(matching_index(7, 8, 4, {0, 1, 2, 3}) == 3);
  CHECK(matching_index(4, 9, 5, {0, 1, 2, 3, 4}) == 2);
  CHECK(matching_index(3, 8, 8, {0, 7}) == 0);
  CHECK(matching_index(0, 1, 4, {2, 3}) == 2);

  const TempFolder folder;
  Bench bench;
  bench.open(write_trace(folder / "a.h5", make_trace({})));
  bench.open(write_trace(folder / "b.h5", make_trace({})));
  Session& session = bench.session();
  session.set_second(1);
  session.select("test", [](Selection& s) {
    s.layer = 2;
    s.query = 12;
  });
  CompareOptions options = comparing(CompareWhat::traces);
  CompareSides sides = compare_sides(session, options);
  CHECK(sides.problem.empty());
  CHECK(sides.b.request.layer == 2);
  options.own_head = true;
  options.other_layer = 1;
  sides = compare_sides(session, options);
  CHECK(sides.b.request.layer == 1);
  CHECK_THAT(sides.b.label, ContainsSubstring("b.h5, layer 1"));
  options.other_layer = 99;
  CHECK_THAT(compare_sides(session, options).problem, ContainsSubstring("holds no layer 99"));
}

TEST_CASE("the CSV holds the numbers of the map") {
  const TempFolder folder;
  Bench bench;
  TestJob job;
  bench.open(write_trace(folder / "t.h5", make_trace({})));
  Session& session = bench.session();
  session.select("test", [](Selection& s) {
    s.query = 20;
    s.key = 7;
    s.selector = "quoka";
    s.other = "streamingllm";
  });
  session.set_parameters("test", [](Parameters& p) {
    p.budget = 6;
    p.chunk = 8;
    p.n_queries = 4;
  });
  const CompareSides sides = compare_sides(session, comparing(CompareWhat::methods));
  REQUIRE(sides.problem.empty());
  const TraceSource& trace = bench.document()->source();
  const KeptRows a = kept_rows(trace, nullptr, sides.a.request, job.context);
  const KeptRows b = kept_rows(trace, nullptr, sides.b.request, job.context);
  const KeptComparison c = compare_kept(a, b, std::nullopt, Phase::prefill, 8, {8, 4}, job.context);

  const Table csv = table_from_csv(compare_maps_csv(c), "maps.csv");
  const auto cell = c.cell_of(20, 0);
  REQUIRE(cell);
  bool found = false;
  for (std::size_t row = 0; row < csv.n_rows(); ++row) {
    const bool is_cell =
        csv.numbers("query_begin")[row] == 16.0 && csv.numbers("key_begin")[row] == 0.0;
    if (!is_cell) continue;
    found = true;
    CHECK(static_cast<float>(csv.numbers("share_a")[row]) == c.share_a[*cell]);
    CHECK(static_cast<float>(csv.numbers("difference")[row]) == c.difference[*cell]);
  }
  CHECK(found);
}

}  // namespace kvscope::gui::test::compare_sides_test
