// The head atlas of the window: equal to the command line's analysis, every head where it is drawn.
#include "gui/model/traces/head_atlas_view.hpp"
#include "core/trace/result.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>

#include "tests/gui_model/job_context.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::gui::test::head_atlas_view_test {
namespace {

TEST_CASE("head atlas: the numbers are the analysis's, and each head lies where it is drawn") {
  kvscope::test::PlantOptions plant;
  plant.n_tokens = 80;
  const MemoryTrace trace = kvscope::test::planted_trace(plant);
  HeadsOptions options;
  options.selector = "quoka";
  options.budget = "16";
  options.chunk = 32;
  TestJob job;
  const HeadAtlas atlas = head_atlas_of(trace, options, job.context);
  MemoryResult direct;
  ThreadPool pool(1);
  analyze_heads(trace, options, direct, pool, {}, {});
  const auto distance = atlas.result.values<double>("distance");
  const auto expected = direct.values<double>("distance");
  REQUIRE(std::memcmp(distance.data(), expected.data(), expected.size_bytes()) == 0);
  CHECK(atlas.bytes() > 8 * 32 * 32 * 2);

  const AtlasPicture grid = draw_atlas(atlas, {});
  REQUIRE(grid.places.size() == 8);
  REQUIRE(grid.at(2.5, 1.5) != nullptr);
  CHECK(grid.at(2.5, 1.5)->layer == 1);
  CHECK(grid.at(2.5, 1.5)->q_head == 2);
  CHECK(grid.at(4.5, 0.5) == nullptr);
  CHECK_THAT(grid.figure.caption.back(), Catch::Matchers::ContainsSubstring("trace in memory"));

  const AtlasPicture sorted = draw_atlas(atlas, {AtlasNumber::lost_mass, AtlasSort::largest});
  const auto lost = atlas.result.values<double>("lost_mass");
  const auto most = std::max_element(lost.begin(), lost.end()) - lost.begin();
  CHECK(sorted.places.front().layer == most / 4);
  CHECK(sorted.places.front().q_head == most % 4);
  CHECK(sorted.at(0.5, 0.5) == sorted.of(most / 4, most % 4));

  const auto lines = head_lines(atlas, 1, 3);
  CHECK(lines.front().second == "layer 1, query head 3");
  CHECK(lines.back().first == "Lost under quoka tokens=16");
  const std::string csv = head_atlas_csv(atlas);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 9);
  CHECK(csv.starts_with("layer,q_head,distance,"));
}

}  // namespace
}  // namespace kvscope::gui::test::head_atlas_view_test
