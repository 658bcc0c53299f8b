// The query-selection panel's model: heads as the whole analysis has them, single queries against
// loops, the kept queries of a chunk.
#include "gui/model/queries/query_selection_view.hpp"
#include "core/trace/result.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "core/base/error.hpp"
#include "gui/model/queries/query_selection_feed.hpp"
#include "tests/gui_model/job_context.hpp"
#include "tests/gui_model/trace_files.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::gui::test::query_selection_view_test {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

MemoryTrace small_trace() {
  kvscope::test::PlantOptions plant;
  plant.n_tokens = 70;
  plant.sink = 1.0;
  plant.chunk = 16;
  return kvscope::test::planted_trace(plant);
}

QuerySelectionOptions small_options() {
  QuerySelectionOptions options;
  options.chunk = 16;
  return options;
}

QuerySelectionView view_of(const TraceSource& trace, const QuerySelectionRequest& request) {
  TestJob job;
  return query_selection_view(trace, request, job.context);
}

/// -cos(q, mean of rows [begin, end)) by three loops.
double naive_s_q(const TraceSource& trace, Index layer, Index head, Index pos, Index begin,
                 Index end) {
  const Tensor<float> q = trace.read_q(layer, head, {0, trace.info().n_tokens});
  const Index d = trace.info().d_head;
  double dot = 0.0;
  double norm_q = 0.0;
  double norm_m = 0.0;
  for (Index c = 0; c < d; ++c) {
    double mean = 0.0;
    for (Index i = begin; i < end; ++i) mean += static_cast<double>(q(i, c));
    mean /= static_cast<double>(end - begin);
    const auto x = static_cast<double>(q(pos, c));
    dot += x * mean;
    norm_q += x * x;
    norm_m += mean * mean;
  }
  return -dot / std::sqrt(norm_q * norm_m);
}

TEST_CASE("query-selection: a head alone has the numbers of the whole trace's analysis",
          "[query_selection]") {
  const MemoryTrace trace = small_trace();
  MemoryResult whole;
  ThreadPool pool(2);
  analyze_query_selection(trace, small_options(), {whole, pool});
  const QuerySelectionView view = view_of(trace, {1, {2}, small_options()});
  const QuerySelectionHead head = head_of(view, 2);
  REQUIRE(head.pos.size() == 70);
  const auto log_max = whole.values<float>("log_max_weight");
  const auto s_q = whole.values<float>("prompt/s_q");
  for (std::size_t i = 1; i < 70; ++i) {
    CHECK(head.log_max_weight[i] == log_max[(4 + 2) * 70 + i]);
    CHECK(head.prompt_s_q[i] == s_q[(4 + 2) * 70 + i]);
  }
  CHECK(head.prompt.pearson_log() == whole.values<double>("correlation/prompt/pearson_log")[4 + 2]);
  CHECK(head.chunk.spearman() == whole.values<double>("correlation/chunk/spearman")[4 + 2]);
  CHECK(correlations_of(view, QuerySpan::prompt) == std::vector<double>{head.prompt.pearson_log()});
  CHECK(view.has_head(2));
  CHECK_THROWS_AS(head_of(view, 0), ConfigError);
  CHECK(head.find(69) == std::size_t{69});
  CHECK_FALSE(head.find(70));
}

TEST_CASE("query-selection: single queries equal the loops, sampled or not", "[query_selection]") {
  const MemoryTrace trace = small_trace();
  MeasureRequest request{0, 3, {69, 5, 40, 0}, small_options()};
  request.options.skip = GENERATE(0, 1);
  request.options.skip_recent = GENERATE(0, 3);
  TestJob job;
  const MeasuredQueries measured = measure_queries(trace, request, job.context);
  REQUIRE(measured.pos == request.positions);
  for (std::size_t i = 0; i < measured.pos.size(); ++i) {
    const Index pos = measured.pos[i];
    CHECK(measured.prompt_s_q[i] == Approx(naive_s_q(trace, 0, 3, pos, 0, 70)).margin(1e-9));
    const Index begin = pos / 16 * 16;
    CHECK(measured.chunk_s_q[i] ==
          Approx(naive_s_q(trace, 0, 3, pos, begin, std::min<Index>(70, begin + 16))).margin(1e-9));
    const auto row = kvscope::test::naive_row(trace, 0, 3, pos);
    Index best = -1;
    for (Index k = request.options.skip; k <= pos - request.options.skip_recent; ++k) {
      if (best < 0 || row[static_cast<std::size_t>(k)] > row[static_cast<std::size_t>(best)])
        best = k;
    }
    CHECK(measured.max_key[i] == best);
    if (best < 0) {
      CHECK(std::isnan(measured.log_max_weight[i]));
    } else {
      CHECK(measured.log_max_weight[i] ==
            Approx(std::log(row[static_cast<std::size_t>(best)])).margin(1e-9));
    }
  }
  request.positions = {70};
  CHECK_THROWS_WITH(measure_queries(trace, request, job.context), ContainsSubstring("0 to 69"));
}

TEST_CASE("query-selection: the kept queries are those of largest S_q inside the chunk",
          "[query_selection]") {
  const MemoryTrace trace = small_trace();
  TestJob job;
  const ChunkPicks picks = chunk_picks(trace, {1, 2, {32, 48}, 4, small_options()}, job.context);
  std::vector<std::pair<double, Index>> naive;
  for (Index pos = 32; pos < 48; ++pos) {
    naive.emplace_back(-naive_s_q(trace, 1, 2, pos, 32, 48), pos);
  }
  std::sort(naive.begin(), naive.end());
  REQUIRE(picks.pos.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(picks.pos[i] == naive[i].second);
    CHECK(picks.chunk_s_q[i] == Approx(-naive[i].first).margin(1e-9));
  }
  CHECK(picks.find(picks.pos[2]) == std::size_t{2});
  CHECK_FALSE(picks.find(1));
  CHECK(picks.bytes() > 4 * sizeof(Index));
}

TEST_CASE("query-selection: a trace that lacks queries is a sentence", "[query_selection]") {
  Plan plan;
  plan.rows = {16, 24};
  TempFolder folder;
  Bench bench;
  bench.open(write_trace(folder / "a.h5", make_trace(plan)));
  QuerySelectionFeed feed;
  feed.update(bench.session(), {});
  bench.drain();
  feed.update(bench.session(), {});
  CHECK(feed.value() == nullptr);
  CHECK(feed.status().state == JobState::failed);
  CHECK_THAT(feed.status().error, ContainsSubstring("16"));
  CHECK_FALSE(feed.is_waiting());
}

}  // namespace
}  // namespace kvscope::gui::test::query_selection_view_test
