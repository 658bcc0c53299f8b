// The query-selection panel's model: heads as the whole analysis has them, single queries against
// loops, the kept queries of a chunk, pictures, table, and what is asked for when.
#include "gui/model/queries/query_selection_view.hpp"
#include "core/trace/result.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <sstream>

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

TEST_CASE("query-selection: figures hold the points that count, and the kept ones",
          "[query_selection]") {
  const MemoryTrace trace = small_trace();
  TestJob job;
  const QuerySelectionView view = view_of(trace, {0, {1}, small_options()});
  const QuerySelectionHead head = head_of(view, 1);
  const ChunkPicks picks = chunk_picks(trace, {0, 1, {0, 16}, 8, small_options()}, job.context);
  QuerySelectionSwitches switches;
  const plot::Figure figure = scatter_figure(head, 0, 1, switches, &picks);
  REQUIRE_NOTHROW(plot::check_figure(figure));
  REQUIRE(figure.panels[0].marks.size() == 2);
  const auto& points = std::get<plot::Scatter>(figure.panels[0].marks[0]);
  CHECK(points.x.size() == 69);  // query 0 sees nothing but the sink
  CHECK(points.of[0] == 1);
  const auto& kept = std::get<plot::Scatter>(figure.panels[0].marks[1]);
  REQUIRE(kept.of.size() >= 7);  // query 0 may be among the 8
  for (std::size_t i = 0; i < kept.of.size(); ++i) {
    const auto at = head.find(static_cast<Index>(kept.of[i]));
    REQUIRE(at);
    CHECK(kept.x[i] == Approx(head.prompt_s_q[*at]).margin(1e-6));
    CHECK(std::log(kept.y[i]) == Approx(head.log_max_weight[*at]).margin(1e-5));
  }
  CHECK_THAT(figure.panels[0].title, ContainsSubstring("Layer 0, query head 1"));
  switches.picks = false;
  CHECK(scatter_figure(head, 0, 1, switches, &picks).panels[0].marks.size() == 1);

  const plot::Figure strip =
      strip_figure(trace.info(), {{0, {0.5, -0.25, 0.0, 1.0}}}, /*layer=*/1, /*q_head=*/2);
  REQUIRE_NOTHROW(plot::check_figure(strip));
  const auto& map = std::get<plot::HeatMap>(strip.panels[0].marks[0]);
  CHECK(map.n_rows == 2);
  CHECK(map.values[1] == -0.25f);
  CHECK(std::isnan(map.values[4]));  // layer 1 is not known
  const auto& box = std::get<plot::Boxes>(strip.panels[0].marks[1]);
  CHECK(box.x[0] == plot::Range{2.0, 3.0});
  CHECK(box.y[0] == plot::Range{1.0, 2.0});
  const plot::Figure both = joined_figure(figure, strip);
  REQUIRE_NOTHROW(plot::check_figure(both));
  CHECK(both.panels.size() == 2);

  const auto coefficients = coefficients_of(head, QuerySpan::prompt);
  CHECK(coefficients[0].value == head.prompt.pearson_log());
  CHECK(coefficients[1].value == head.prompt.spearman());
}

TEST_CASE("query-selection: without a point there is a sentence, not a picture",
          "[query_selection]") {
  const MemoryTrace trace = small_trace();
  QuerySelectionOptions options = small_options();
  options.skip_recent = 4096;  // no key is left
  const QuerySelectionView view = view_of(trace, {0, {0}, options});
  CHECK_THROWS_WITH(scatter_figure(head_of(view, 0), 0, 0, {}, nullptr),
                    ContainsSubstring("no query has both"));
}

TEST_CASE("query-selection: the table holds every measured query and the kept ones once",
          "[query_selection]") {
  const MemoryTrace trace = small_trace();
  TestJob job;
  QuerySelectionOptions options = small_options();
  options.queries = 8;
  const QuerySelectionView view = view_of(trace, {0, {1}, options});
  const QuerySelectionHead head = head_of(view, 1);
  const ChunkPicks picks = chunk_picks(trace, {0, 1, {16, 32}, 5, options}, job.context);
  std::istringstream csv(query_selection_csv(head, 0, 1, trace.tokens(), &picks));
  std::string line;
  std::getline(csv, line);
  CHECK_THAT(line, ContainsSubstring("layer,q_head,pos,token_id,s_q_prompt"));
  std::vector<Index> positions;
  std::size_t n_picked = 0;
  while (std::getline(csv, line)) {
    positions.push_back(std::stoll(line.substr(4)));
    n_picked += line.ends_with(",1") ? 1 : 0;
  }
  CHECK(n_picked == 5);
  for (const Index pos : picks.pos) {
    CHECK(std::count(positions.begin(), positions.end(), pos) == 1);
  }
  for (const Index pos : head.pos) {
    CHECK(std::count(positions.begin(), positions.end(), pos) == 1);
  }
}

TEST_CASE("query-selection: the feed computes the head, the kept queries, then all layers",
          "[query_selection]") {
  TempFolder folder;
  Bench bench;
  bench.open(write_trace(folder / "a.h5", make_trace(Plan{})));
  Session& session = bench.session();
  session.set_parameters("test", [](Parameters& p) { p.chunk = 8, p.n_queries = 3; });
  session.select("test", [](Selection& s) { s.layer = 1, s.q_head = 2, s.query = 11; });
  QuerySelectionFeed feed;
  QuerySelectionSwitches switches;
  feed.update(session, switches);
  CHECK(feed.is_waiting());
  CHECK_FALSE(feed.is_fresh());
  for (int i = 0; i < 8; ++i) {
    bench.drain();
    feed.update(session, switches);
  }
  CHECK_FALSE(feed.is_waiting());
  REQUIRE(feed.value());
  CHECK(feed.is_fresh());
  CHECK(feed.value()->layer == 1);
  REQUIRE(feed.picks());
  CHECK(feed.picks()->chunk == TokenRange{8, 16});
  CHECK(feed.picks()->pos.size() == 3);
  REQUIRE(feed.selected());
  CHECK(feed.selected()->pos == std::vector<Index>{11});
  CHECK(feed.layers().size() == 3);  // a small trace: all of them, unasked

  // Another head of a known layer is there at once; a decoded query has no chunk.
  session.select("test", [](Selection& s) { s.q_head = 3, s.query = 22; });
  feed.update(session, switches);
  CHECK(feed.is_fresh());
  CHECK(feed.value()->has_head(3));
  CHECK(feed.picks() == nullptr);
  // Other switches: the map begins anew.
  switches.skip_recent = 2;
  feed.update(session, switches);
  CHECK(feed.layers().empty());
  CHECK(feed.is_waiting());
  bench.drain();
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
