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

}  // namespace kvscope::gui::test::coverage_view_test
