// Quest's pages of one head: against three loops, the command line's analysis, and what the panel
// draws from them.
#include "gui/model/bounds/quest_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <set>

#include "analysis/plot/theme.hpp"
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

using Rgb = std::array<double, 3>;  // linear light

Rgb light_of(plot::Colour colour) {
  const auto linear = [](std::uint8_t byte) {
    const double v = byte / 255.0;
    return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
  };
  return {linear(colour.r), linear(colour.g), linear(colour.b)};
}

/// CIE L*a*b* under D65.
Rgb lab_of(const Rgb& c) {
  const auto f = [](double v) { return v > 0.008856 ? std::cbrt(v) : 7.787 * v + 16.0 / 116.0; };
  const double x = f((0.4124 * c[0] + 0.3576 * c[1] + 0.1805 * c[2]) / 0.9505);
  const double y = f(0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]);
  const double z = f((0.0193 * c[0] + 0.1192 * c[1] + 0.9505 * c[2]) / 1.089);
  return {116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)};
}

/// How far apart two colours look: to all, without green cones, without red cones (Machado et al.
/// 2009, severity 1); the least of the three.
double least_distance(plot::Colour a, plot::Colour b) {
  constexpr double kSight[3][3][3] = {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
                                      {{0.367322, 0.860646, -0.227968},
                                       {0.280085, 0.672501, 0.047413},
                                       {-0.011820, 0.042940, 0.968881}},
                                      {{0.152286, 1.052583, -0.204868},
                                       {0.114503, 0.786281, 0.099216},
                                       {-0.003882, -0.048116, 1.051998}}};
  double least = 1e9;
  for (const auto& sight : kSight) {
    const auto seen = [&](plot::Colour colour) {
      const Rgb from = light_of(colour);
      Rgb to{};
      for (std::size_t row = 0; row < 3; ++row) {
        for (std::size_t k = 0; k < 3; ++k) to[row] += sight[row][k] * from[k];
        to[row] = std::clamp(to[row], 0.0, 1.0);
      }
      return lab_of(to);
    };
    const Rgb p = seen(a);
    const Rgb q = seen(b);
    least = std::min(least, std::hypot(p[0] - q[0], p[1] - q[1], p[2] - q[2]));
  }
  return least;
}

TEST_CASE("quest cloud: kept and other pages are told apart by every eye, points from the ground",
          "[quest_view]") {
  const MemoryTrace trace = small_trace();
  TestJob job;
  const plot::Figure cloud = quest_cloud(quest_steps(trace, small_request(), job.context), kEval);
  for (const plot::Ground ground : {plot::Ground::light, plot::Ground::dark}) {
    const plot::Theme theme = plot::make_theme(plot::Venue::slide, ground);
    std::vector<plot::Colour> drawn;
    for (const plot::Mark& mark : cloud.panels[0].marks) {
      if (const auto* scatter = std::get_if<plot::Scatter>(&mark)) {
        drawn.push_back(
            plot::blend(plot::with_alpha(theme.style_of(scatter->tone).colour, scatter->opacity),
                        theme.ground));
      }
    }
    REQUIRE(drawn.size() == 2);
    CHECK(least_distance(drawn[0], drawn[1]) > 50.0);
    for (const double unit : {0.0, 0.5, 1.0}) {
      const plot::Colour point = theme.point_colour(plot::ColourMap::sequential, unit);
      if (ground == plot::Ground::dark) CHECK(least_distance(point, theme.ground) > 35.0);
      if (ground == plot::Ground::light)
        CHECK(point == plot::colour_at(plot::ColourMap::sequential, unit));
    }
  }
}

TEST_CASE("quest cloud: every page is one point that knows its query and page", "[quest_view]") {
  const MemoryTrace trace = small_trace();
  TestJob job;
  const QuestRequest request = small_request();
  const QuestSteps steps = quest_steps(trace, request, job.context);
  const QuestPages selected = quest_query(trace, request, 50).steps.at(0);
  plot::Figure cloud = quest_cloud(steps, kEval);
  check_figure(cloud);
  const auto& marks = cloud.panels[0].marks;
  std::set<std::pair<Index, std::size_t>> seen;
  std::size_t n_kept = 0;
  for (const plot::Mark& mark : marks) {
    const auto* scatter = std::get_if<plot::Scatter>(&mark);
    if (scatter == nullptr) continue;
    REQUIRE(scatter->of.size() == scatter->x.size());
    for (std::size_t i = 0; i < scatter->x.size(); ++i) {
      const auto [page, slot] = steps.page(scatter->of[i]);
      REQUIRE(page != nullptr);
      const QuestPages pages = quest_query(trace, request, page->query).steps.at(0);
      CHECK(scatter->x[i] == double{pages.true_max[slot]});
      CHECK(scatter->y[i] == double{pages.bound[slot]});
      CHECK(seen.insert({page->query, slot}).second);
      n_kept += pages.choice(kEval).kept[slot];
      CHECK((scatter->label == "kept pages") == (pages.choice(kEval).kept[slot] != 0));
    }
  }
  CHECK(seen.size() == steps.n_points());
  CHECK(n_kept > 0);
  CHECK(steps.page(steps.n_points()).first == nullptr);

  mark_query(cloud, selected, 9);
  check_figure(cloud);
  const auto& one = std::get<plot::Scatter>(cloud.panels[0].marks.back());
  CHECK(one.label == "selected page");
  REQUIRE(one.x.size() == 1);
  CHECK(one.x[0] == double{selected.true_max[2]});  // key 9 lies in the third page of 4
  CHECK(one.y[0] == double{selected.bound[2]});
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

TEST_CASE("quest profile: bound, truth and filled pages lie where the pages are", "[quest_view]") {
  const MemoryTrace trace = small_trace();
  const Index query = GENERATE(0, 50, 89);
  const auto semantics = GENERATE(kEval, kKernel);
  const QuestSteps asked = quest_query(trace, small_request(), query);
  const QuestPages& pages = asked.steps.at(0);
  plot::Figure figure = quest_profile(asked, semantics);
  check_figure(figure);
  std::size_t n_filled = 0;
  for (const plot::Mark& mark : figure.panels[0].marks) {
    if (const auto* line = std::get_if<plot::Line>(&mark)) {
      REQUIRE(line->x.size() == pages.n_pages() + 1);
      CHECK(line->x.back() == static_cast<double>(query + 1));
      const auto& values = line->label == "bound" ? pages.bound : pages.true_max;
      for (std::size_t p = 0; p < pages.n_pages(); ++p) {
        CHECK(line->x[p] == static_cast<double>(pages.keys_of(p).begin));
        CHECK(line->y[p] == double{values[p]});
      }
    }
    if (const auto* area = std::get_if<plot::Area>(&mark)) n_filled = area->x.size() / 3;
  }
  CHECK(static_cast<Index>(n_filled) == pages.n_kept(semantics));
  const std::size_t n_marks = figure.panels[0].marks.size();
  mark_page(figure, pages, 5000);
  CHECK(figure.panels[0].marks.size() == n_marks);
  mark_page(figure, pages, query);
  const auto& box = std::get<plot::Boxes>(figure.panels[0].marks.back());
  CHECK(box.x.at(0) ==
        plot::Range{static_cast<double>(query / 4 * 4), static_cast<double>(query + 1)});
}

TEST_CASE("quest csv: one line per page with the values that are shown", "[quest_view]") {
  const MemoryTrace trace = small_trace();
  const QuestSteps query = quest_query(trace, small_request(), 6);
  const std::string csv = quest_csv(query, kEval);
  CHECK(csv.rfind("query,page,first_key,last_key,bound,true_max,gap_logits,kept,violated\n6,0,0,3,",
                  0) == 0);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 3);
  CHECK_THAT(csv, ContainsSubstring(fmt::format("{:.9g}", query.steps.at(0).bound[1])));
}

}  // namespace kvscope::gui::test::quest_view_test
