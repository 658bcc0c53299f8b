// The check of recorded numbers: norms against sums by hand, NaN and Inf found where they are.
#include "gui/model/traces/data_check.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <thread>

#include "core/base/error.hpp"
#include "tests/gui_model/trace_files.hpp"

namespace kvscope::gui::test::data_check_test {

using Catch::Approx;

struct Check {
  Cache cache{1 << 20};
  ThreadPool pool{1};
  std::stop_source stop;
  JobContext job{pool, stop.get_token(), {}};
};

/// Mean norm of rows [begin, end) of one head.
double mean_norm(const Tensor<float>& rows, Index head, Index begin, Index end) {
  double sum = 0.0;
  for (Index t = begin; t < end; ++t) {
    double square = 0.0;
    for (Index c = 0; c < rows.dim(2); ++c)
      square += static_cast<double>(rows(head, t, c)) * static_cast<double>(rows(head, t, c));
    sum += std::sqrt(square);
  }
  return sum / static_cast<double>(end - begin);
}

TEST_CASE("a sound group has no problems, and norms as computed by hand") {
  const TempFolder folder;
  Check c;
  Plan plan;
  plan.rows = {5, 24};
  const SyntheticTrace trace = make_trace(plan);
  const auto document = open_document(write_trace(folder / "a.h5", trace), c.cache);
  const GroupCheck check = check_group(*document, 2, 1, c.job);
  CHECK(check.problems.empty());
  REQUIRE(check.q.size() == 2);
  CHECK(check.q[0].head == 2);
  CHECK(check.q[1].head == 3);
  CHECK(check.q[1].positions == TokenRange{5, 24});
  CHECK(check.q[1].mean == Approx(mean_norm(trace.layers[2].q, 3, 5, 24)));
  CHECK(check.k.head == 1);
  CHECK(check.k.mean == Approx(mean_norm(trace.layers[2].k, 1, 0, 24)));
  REQUIRE(check.k.bins.size() == 24);
  CHECK(check.k.bins[7] == Approx(mean_norm(trace.layers[2].k, 1, 7, 8)));
  CHECK(check.k.largest >= check.k.mean);
}

TEST_CASE("NaN and Inf are found with array, head and position; the rest is still measured") {
  const TempFolder folder;
  Check c;
  const SyntheticTrace trace = make_trace({});
  const auto path = write_trace(folder / "a.h5", trace);
  const auto& layer = trace.layers[1];
  overwrite_number(path, layer.q(1, 13, 2), layer.q(1, 13, 3), std::nanf(""));
  overwrite_number(path, layer.v(0, 4, 0), layer.v(0, 4, 1),
                   std::numeric_limits<float>::infinity());
  const auto document = open_document(path, c.cache);
  const GroupCheck check = check_group(*document, 1, 0, c.job);
  REQUIRE(check.problems.size() == 2);
  CHECK(check.problems[0].sentence() ==
        "Layer 1, query head 1: q holds NaN, first at position 13. Views of this head fail there.");
  CHECK(check.problems[1].array == "v");
  CHECK(check.problems[1].pos == 4);
  CHECK(check.problems[1].what == "Inf");
  CHECK(check.q[0].mean == Approx(mean_norm(layer.q, 0, 0, 24)));
  CHECK(check_group(*document, 1, 1, c.job).problems.empty());
  CHECK(check_group(*document, 0, 0, c.job).problems.empty());
}

TEST_CASE("what was not recorded cannot be checked, and a stopped check ends") {
  const TempFolder folder;
  Check c;
  Plan plan;
  plan.layers = {0};
  const auto document = open_document(write_trace(folder / "a.h5", make_trace(plan)), c.cache);
  CHECK_THROWS_AS(check_group(*document, 1, 0, c.job), ConfigError);
  plan.capture.qkv = false;
  plan.capture.lse = false;
  plan.layers = {0};
  const auto empty = open_document(write_trace(folder / "b.h5", make_trace(plan)), c.cache);
  CHECK_THROWS_AS(check_group(*empty, 0, 0, c.job), ConfigError);
  c.stop.request_stop();
  CHECK_THROWS_AS(check_group(*document, 0, 0, c.job), Interrupted);
}

TEST_CASE("a check that was cancelled is not started again by itself; other work goes first") {
  const TempFolder folder;
  Bench bench;
  bench.open(write_trace(folder / "a.h5", make_trace({})));
  DataChecks checks;
  std::stop_source release;
  const Job other = bench.jobs.start("other", Lane::heavy,
                                     [stop = release.get_token()](JobContext&) -> std::any {
                                       while (!stop.stop_requested()) std::this_thread::yield();
                                       return 0;
                                     },
                                     {});
  checks.update({bench.jobs, bench.cache}, bench.session().document(), 0);
  CHECK(checks.is_busy());
  CHECK(bench.jobs.active().size() == 1);
  release.request_stop();
  bench.drain();
  for (int frame = 0; frame < 100; ++frame) {
    checks.update({bench.jobs, bench.cache}, bench.session().document(), 0);
    if (!checks.is_busy()) break;
    for (const Job& job : bench.jobs.active()) job.cancel();
    bench.drain();
  }
  CHECK_FALSE(checks.is_busy());
  CHECK(bench.jobs.is_idle());
}

}  // namespace kvscope::gui::test::data_check_test
