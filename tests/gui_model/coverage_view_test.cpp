// Coverage maps: cells are the sweep's and the coverage analysis' numbers, also by naive loops;
// what is masked.
#include "gui/model/methods/coverage_view.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <set>

#include "tests/gui_model/job_context.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::gui::test::coverage_view_test {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using kvscope::test::naive_row;
using kvscope::test::planted_trace;
using kvscope::test::PlantOptions;

constexpr Index kTokens = 96;
constexpr Index kChunk = 32;

MemoryTrace trace_of() {
  PlantOptions options{.n_layers = 3, .n_tokens = kTokens, .sink = 2.0, .band = 1.5, .seed = 11};
  return planted_trace(options);
}

Parameters parameters_of() {
  return Parameters{.budget = 16, .chunk = kChunk, .page_size = 8};
}

MethodItem method_of(const std::string& name, Phase phase = Phase::prefill) {
  return method_items({name}, parameters_of(), phase, false).at(0);
}

HeadsQuestion question_of(const std::string& method) {
  return HeadsQuestion{.trace = "planted.h5",
                       .layers = {0, 1, 2},
                       .q_heads = {0, 1, 2, 3},
                       .layer = 1,
                       .n_tokens = kTokens,
                       .method = method_of(method),
                       .parameters = parameters_of()};
}

std::vector<std::shared_ptr<const MethodRows>> compute(const HeadsQuestion& question) {
  const MemoryTrace trace = trace_of();
  TestJob job;
  std::vector<std::shared_ptr<const MethodRows>> rows;
  for (const MethodRowsRequest& request : plan_heads(question)) {
    rows.push_back(
        std::make_shared<const MethodRows>(method_rows(trace, nullptr, request, job.context)));
  }
  return rows;
}

const plot::HeatMap& map_of(const plot::Figure& figure) {
  return std::get<plot::HeatMap>(figure.panels.at(0).marks.at(0));
}

std::vector<Index> measured_positions(Index rows_per_chunk) {
  std::vector<Index> positions;
  for (Index begin = 0; begin < kTokens; begin += kChunk) {
    for (Index row : measured_rows(kChunk, rows_per_chunk)) positions.push_back(begin + row);
  }
  return positions;
}

TEST_CASE("heads: the selected layer comes first; layers to come are masked, not zero",
          "[coverage_view]") {
  const HeadsQuestion question = question_of("quoka");
  const auto plan = plan_heads(question);
  REQUIRE(plan.size() == 3);
  CHECK(plan[0].layers == std::vector<Index>{1});
  CHECK(plan[1].layers == std::vector<Index>{0});
  auto rows = compute(question);
  const HeadsPicture whole = heads_picture(question, rows);
  CHECK(whole.figure.panels.front().title.starts_with("QuoKA "));
  CHECK_THAT(whole.figure.caption.front(), ContainsSubstring(" of QuoKA "));
  const plot::HeatMap& all = map_of(whole.figure);
  CHECK(all.n_rows == 3);
  CHECK(all.n_cols == 4);
  for (Index layer = 0; layer < 3; ++layer) {
    for (Index head = 0; head < 4; ++head) {
      const SweepRow* row = whole.find(layer, head);
      REQUIRE(row != nullptr);
      const auto at = static_cast<std::size_t>(layer * 4 + head);
      CHECK(all.values[at] == Approx(metric_of(*row, RecallMetric::mass)).epsilon(1e-6));
    }
  }
  rows[1].reset();
  const HeadsPicture part = heads_picture(question, rows);
  const plot::HeatMap& some = map_of(part.figure);
  CHECK(some.n_rows == 3);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(std::isnan(some.values[i]));
    CHECK(some.values[4 + i] == all.values[4 + i]);
  }
  CHECK(part.find(0, 0) == nullptr);
  CHECK_THAT(part.figure.caption.back(), ContainsSubstring("1 of 3 layers"));
}

TEST_CASE("heads: mass is what the kept keys hold, by loops", "[coverage_view]") {
  // "recent" keeps the last keys of the past, and the running chunk.
  const HeadsQuestion question = question_of("recent");
  const HeadsPicture picture = heads_picture(question, compute(question));
  const MemoryTrace trace = trace_of();
  for (Index head = 0; head < 4; ++head) {
    double mass = 0.0;
    const auto positions = measured_positions(8);
    for (const Index pos : positions) {
      const auto probs = naive_row(trace, 2, head, pos);
      const Index begin = std::max<Index>(0, pos / kChunk * kChunk - 16);
      for (Index key = begin; key <= pos; ++key) mass += probs[key];
    }
    const SweepRow* row = picture.find(2, head);
    REQUIRE(row != nullptr);
    CHECK(row->number(SweepNumber::mass_mean) ==
          Approx(mass / static_cast<double>(positions.size())));
  }
}

TEST_CASE("heads: methods without a budget, with a share, and dense layers", "[coverage_view]") {
  for (const char* name : {"full", "oracle-topp"}) {
    INFO(name);
    const HeadsQuestion question = question_of(name);
    const HeadsPicture picture = heads_picture(question, compute(question));
    REQUIRE(picture.figure.panels.size() == 1);
    CHECK(map_of(picture.figure).values[0] >= 0.95f);
    CHECK_THAT(picture.figure.caption.front(), ContainsSubstring("planted.h5"));
  }
  HeadsQuestion dense = question_of("quoka");
  dense.parameters.dense_layers = 1;
  const HeadsPicture masked = heads_picture(dense, compute(dense));
  CHECK(std::isnan(map_of(masked.figure).values[0]));
  CHECK_FALSE(std::isnan(map_of(masked.figure).values[4]));
  dense.parameters.dense_layers = 3;
  const HeadsPicture nothing = heads_picture(dense, compute(dense));
  CHECK(nothing.figure.panels.empty());
  CHECK_THAT(nothing.sentence, ContainsSubstring("dense"));
}

}  // namespace kvscope::gui::test::coverage_view_test
