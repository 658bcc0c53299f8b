// Quest's pages of one head: against three loops and the command line's analysis.
#include "gui/model/bounds/quest_view.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "core/base/error.hpp"
#include "tests/gui_model/job_context.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::gui::test::quest_view_test {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using kvscope::test::planted_trace;
using kvscope::test::PlantOptions;

constexpr auto kEval = QuestSemantics::eval;
constexpr auto kKernel = QuestSemantics::kernel;

MemoryTrace small_trace() {
  return planted_trace(PlantOptions{.n_tokens = 90, .sink = 1.0});
}

QuestRequest small_request() {
  return QuestRequest{.layer = 1, .q_head = 3, .page_size = 4, .budget = 16};
}

QuestSteps quest_query(const TraceSource& trace, QuestRequest request, Index query) {
  request.query = query;
  TestJob job;
  return quest_steps(trace, request, job.context);
}

/// Largest q.k of the keys [begin, end) and the bound of their box, by loops.
std::pair<double, double> naive_page(const TraceSource& trace, Index layer, Index head, Index query,
                                     Index begin, Index end) {
  const Tensor<float> q = trace.read_q(layer, head, {query, query + 1});
  const Tensor<float> k = trace.read_k(layer, head / trace.info().group(), {begin, end});
  double most = -1e300;
  double bound = 0.0;
  for (Index c = 0; c < k.dim(1); ++c) {
    double low = 1e300, high = -1e300;
    for (Index t = 0; t < k.dim(0); ++t) {
      low = std::min<double>(low, k(t, c));
      high = std::max<double>(high, k(t, c));
    }
    bound += std::max(q(Index{0}, c) * low, q(Index{0}, c) * high);
  }
  for (Index t = 0; t < k.dim(0); ++t) {
    double dot = 0.0;
    for (Index c = 0; c < k.dim(1); ++c) dot += double(q(Index{0}, c)) * double(k(t, c));
    most = std::max(most, dot);
  }
  return {most, bound};
}

TEST_CASE("quest view: pages, bounds and maxima of a query equal three loops", "[quest_view]") {
  const MemoryTrace trace = small_trace();
  const Index query = GENERATE(0, 2, 41, 89);
  const QuestRequest request = small_request();
  const QuestPages pages = quest_query(trace, request, query).steps.at(0);
  REQUIRE(pages.query == query);
  REQUIRE(pages.n_pages() == static_cast<std::size_t>(query / 4 + 1));
  std::size_t best = 0;
  double best_value = -1e300;
  for (std::size_t p = 0; p < pages.n_pages(); ++p) {
    const TokenRange keys = pages.keys_of(p);
    CHECK(keys.begin == static_cast<Index>(p) * 4);
    CHECK(keys.end == std::min<Index>(query + 1, keys.begin + 4));
    CHECK(pages.slot_of(keys.begin) == p);
    CHECK(pages.slot_of(keys.end - 1) == p);
    const auto [most, bound] = naive_page(trace, 1, 3, query, keys.begin, keys.end);
    CHECK(pages.true_max[p] == Approx(most).margin(1e-4));
    CHECK(pages.bound[p] == Approx(bound).margin(1e-4));
    CHECK(pages.violated[p] == 0);
    if (most > best_value) {
      best_value = most;
      best = p;
    }
  }
  CHECK(pages.best() == best);
  CHECK_FALSE(pages.slot_of(query + 1));
  CHECK(pages.violations == 0);
}

TEST_CASE("quest view: a step of the analysis and the same query alone agree", "[quest_view]") {
  const MemoryTrace trace = small_trace();
  const QuestRequest request = small_request();
  TestJob job;
  const QuestSteps steps = quest_steps(trace, request, job.context);
  REQUIRE(steps.steps.size() == 64);
  CHECK_FALSE(steps.decoded);
  CHECK(steps.violations == 0);
  std::size_t n_points = 0;
  for (const QuestPages& step : steps.steps) {
    const QuestPages alone = quest_query(trace, request, step.query).steps.at(0);
    n_points += alone.n_pages();
    CHECK(alone.bound == step.bound);
    CHECK(alone.true_max == step.true_max);
    CHECK(alone.violated == step.violated);
    CHECK(alone.first_page == step.first_page);
    CHECK(alone.best_rank == step.best_rank);
    CHECK(alone.gap_mean == Approx(step.gap_mean).margin(1e-6));
    for (const auto semantics : {kEval, kKernel}) {
      CHECK(alone.choice(semantics).kept == step.choice(semantics).kept);
      CHECK(alone.choice(semantics).mass == Approx(step.choice(semantics).mass).margin(1e-6));
      CHECK(alone.choice(semantics).recall == Approx(step.choice(semantics).recall).margin(1e-6));
    }
  }
  CHECK(steps.n_points() == n_points);
}

TEST_CASE("quest view: a sliding window begins in the middle of a page", "[quest_view]") {
  MemoryTrace source = small_trace();
  TraceInfo info = source.info();
  info.window[1] = 21;
  MemoryTrace trace(info);
  for (Index layer : info.layers) {
    std::copy_n(source.q(layer).data(), source.q(layer).shape().count(), trace.q(layer).data());
    std::copy_n(source.k(layer).data(), source.k(layer).shape().count(), trace.k(layer).data());
  }
  const auto ids = source.tokens();
  trace.set_tokens({ids.begin(), ids.end()});
  const QuestPages pages = quest_query(trace, small_request(), 60).steps.at(0);
  CHECK(pages.visible == TokenRange{40, 61});
  CHECK(pages.first_page == 10);
  CHECK(pages.keys_of(0) == TokenRange{40, 44});
  CHECK_FALSE(pages.slot_of(39));
  TestJob job;
  const QuestSteps steps = quest_steps(trace, small_request(), job.context);
  const auto& step = steps.steps.back();
  CHECK(step.query == 89);
  CHECK(step.keys_of(0).begin == 69);
  CHECK(step.keys_of(0).end == 72);
  CHECK(quest_query(trace, small_request(), 89).steps.at(0).bound == step.bound);
}

TEST_CASE("quest view: decoded steps, keys of the cache, bad input", "[quest_view]") {
  MemoryTrace trace = small_trace();
  TestJob job;
  QuestRequest request = small_request();
  request.steps = StepSource::decode;
  CHECK_THROWS_WITH(quest_steps(trace, request, job.context), ContainsSubstring("0 decoded"));
  CHECK_THROWS_WITH(quest_query(trace, request, 90), ContainsSubstring("90 was not recorded"));
  QuestRequest other = request;
  other.budget = 17;
  CHECK(request.key() != other.key());
  other = request;
  other.page_size = 8;
  CHECK(request.key() != other.key());
  request.layer = 7;
  CHECK_THROWS_AS(quest_query(trace, request, 3), ConfigError);
  trace.k(1)(1, 5, 2) = std::nanf("");
  request = small_request();
  CHECK_THROWS_AS(quest_steps(trace, request, job.context), FormatError);
}

TEST_CASE("quest cloud: too many points are thinned, violations never", "[quest_view]") {
  QuestSteps steps;
  QuestPages pages{.page_size = 1, .visible = {0, 50000}};
  for (int i = 0; i < 50000; ++i) {
    pages.true_max.push_back(static_cast<float>(i % 1000));
    pages.bound.push_back(static_cast<float>(i % 1000 + i % 3 + (i == 40000 ? -5 : 0)));
    pages.violated.push_back(i == 40000);
    pages.choices[0].kept.push_back(i % 100 == 0);
    pages.choices[1].kept.push_back(0);
  }
  pages.violations = 1;
  steps.violations = 1;
  steps.steps = {pages};
  const plot::Figure cloud = quest_cloud(steps, kEval);
  std::size_t n_points = 0;
  bool has_violation = false;
  for (const plot::Mark& mark : cloud.panels[0].marks) {
    const auto* scatter = std::get_if<plot::Scatter>(&mark);
    if (scatter == nullptr) continue;
    n_points += scatter->x.size();
    if (scatter->label != "bound violated") continue;
    has_violation = true;
    CHECK(scatter->of == std::vector<std::size_t>{40000});
  }
  CHECK(has_violation);
  CHECK(n_points < kMostCloudPoints);
  REQUIRE(cloud.caption.size() == 3);
  CHECK_THAT(cloud.caption[1], ContainsSubstring("n = 50000"));
  CHECK_THAT(cloud.caption[1], ContainsSubstring("1 bounds below"));
  const auto listed = quest_violations(steps, 10);
  REQUIRE(listed.size() == 1);
  CHECK_THAT(listed[0].sentence, ContainsSubstring("page 40000"));
}

}  // namespace kvscope::gui::test::quest_view_test
