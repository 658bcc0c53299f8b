// The head atlas of the window: equal to the command line's analysis, every head where it is drawn.
#include "gui/model/traces/head_atlas_view.hpp"
#include "analysis/kinds/overlap.hpp"
#include "core/trace/result.hpp"

#include <fmt/format.h>

#include <cstring>

#include "tests/gui_model/job_context.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::head_atlas_view_test {

TEST_CASE("head atlas: the numbers are the analysis's, and each head lies where it is drawn") {
  kvscope::test::PlantOptions plant{.n_tokens = 80};
  const MemoryTrace trace = kvscope::test::planted_trace(plant);
  HeadsOptions options;
  options.selector = "quoka";
  options.budget = "16";
  options.chunk = 32;
  TestJob job;
  const HeadAtlas atlas = head_atlas_of(trace, options, job.context);
  MemoryResult direct;
  ThreadPool pool(1);
  analyze_heads(trace, options, {direct, pool});
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

  CHECK(head_atlas_csv(atlas).starts_with("layer,q_head,distance,"));
}

TEST_CASE("head atlas: what is sampled or cut says so where the numbers stand") {
  kvscope::test::PlantOptions plant{.n_layers = 17, .n_tokens = 80};
  const MemoryTrace trace = kvscope::test::planted_trace(plant);
  HeadsOptions options;
  options.rows = 16;
  options.selector = "streamingllm";
  options.budget = "16";
  options.chunk = 32;
  TestJob job;
  const HeadAtlas atlas = head_atlas_of(trace, options, job.context);
  const std::pair<AtlasChoice, const char*> cases[] = {
      {{}, "(16 of 80 queries)"},
      {{AtlasNumber::entropy, AtlasSort::largest}, "64 of 68 (16 of 80 queries)"},
      {{AtlasNumber::lost_mass}, "(8 of each 32 queries of the prompt)"}};
  for (const auto& [choice, words] : cases) {
    const plot::Figure figure = draw_atlas(atlas, choice).figure;
    CHECK_THAT(figure.panels[0].x.label, Catch::Matchers::EndsWith(words));
  }
  const auto lines = head_lines(atlas, 1, 3);
  CHECK(lines[1].second == "16 of 80 queries");
  CHECK_THAT(lines.back().second,
             Catch::Matchers::EndsWith("(8 of each 32 queries of the prompt)"));
}

TEST_CASE("head atlas: which keys two methods share, as analyze overlap has it") {
  kvscope::test::PlantOptions plant{.n_tokens = 80};
  const MemoryTrace trace = kvscope::test::planted_trace(plant);
  HeadsOptions options;
  options.selector = "quoka,streamingllm";
  options.budget = "16";
  options.chunk = 32;
  TestJob job;
  const AtlasRequest request(options, /*overlaps=*/true);
  CHECK(head_atlas_key(request) != head_atlas_key(options));
  const HeadAtlas atlas = head_atlases_of(trace, nullptr, request, job.context);
  REQUIRE(atlas.overlap);
  OverlapOptions direct;
  direct.selector = options.selector;
  direct.budget = "16";
  direct.chunk = 32;
  MemoryResult expected;
  ThreadPool pool(1);
  analyze_overlap(trace, direct, {expected, pool});
  const auto first = expected.values<float>("first_mass");

  AtlasChoice choice{.sort = AtlasSort::largest,
                     .difference = AtlasDifference::methods,
                     .couple = AtlasCouple::first_mass};
  const AtlasPicture picture = draw_atlas(atlas, choice);
  CHECK_FALSE(picture.difference);
  const auto most = std::max_element(first.begin(), first.end()) - first.begin();
  CHECK(picture.at(0.5, 0.5) == picture.of(most / 4, most % 4));
  CHECK_THAT(picture.figure.panels[0].colour->axis.label,
             Catch::Matchers::ContainsSubstring("only QuoKA keeps"));
  CHECK(head_lines(atlas, 1, 1).back().first == "on keys of streamingllm alone");
  const std::string csv = head_atlas_csv(atlas);
  CHECK_THAT(csv, Catch::Matchers::ContainsSubstring(",first_mass,second_mass\n0,0,"));
  CHECK_THAT(
      csv, Catch::Matchers::ContainsSubstring(fmt::format(",{},", static_cast<double>(first[0]))));
  choice.couple = AtlasCouple::lost;
  CHECK(draw_atlas(atlas, choice).difference);
}

}  // namespace kvscope::gui::test::head_atlas_view_test
