// The geometry panel's model: the same numbers as the analysis of the whole trace, sets and colours
// by what they stand for, figures and tables.
#include "gui/model/geometry/geometry_view.hpp"
#include "core/base/fields_json.hpp"
#include "core/trace/result.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/error.hpp"
#include "gui/model/geometry/geometry_scene.hpp"
#include "gui/model/session/json_fields.hpp"
#include "tests/gui_model/job_context.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::gui::test::geometry_view_test {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

MemoryTrace small_trace() {
  kvscope::test::PlantOptions plant{.n_tokens = 80, .chunk = 16, .sink = 1.0};
  return kvscope::test::planted_trace(plant);  // 4 query heads on 2 KV heads
}

GeometryView view_of(const TraceSource& trace, Index layer, Index q_head,
                     GeometryOptions options = {}) {
  TestJob job;
  return geometry_view(trace, geometry_request(trace.info(), layer, q_head, options), job.context);
}

std::size_t n_points(const GeometryScene& scene, bool are_queries) {
  std::size_t n = 0;
  for (const SceneSet& set : scene.sets) n += set.are_queries == are_queries ? set.at.size() : 0;
  return n;
}

TEST_CASE("geometry: one group has the numbers of the whole trace's analysis", "[geometry]") {
  const MemoryTrace trace = small_trace();
  GeometryOptions options;
  options.basis = GENERATE(GeometryBasis::group, GeometryBasis::head, GeometryBasis::keys);
  options.span = GENERATE(QuerySpan::prompt, QuerySpan::chunk);
  options.chunk = 16;
  MemoryResult whole;
  ThreadPool pool(2);
  analyze_geometry(trace, options, {whole, pool});

  const Index layer = 1;
  const Index q_head = 3;
  const GeometryView view = view_of(trace, layer, q_head, options);
  CHECK(view.request.kv_head == 1);
  CHECK(view.request.q_heads == std::vector<Index>{2, 3});
  CHECK(view.bytes() > 80 * sizeof(float));
  const GeometryHead head = head_of(view, q_head);
  REQUIRE(head.pos.size() == 80);
  const bool by_head = options.basis == GeometryBasis::head;
  const std::size_t n_bases = by_head ? 4 : 2;
  const std::size_t basis = by_head ? 3 : 1;
  const auto queries = whole.values<float>("queries/projection");
  const auto keys = whole.values<float>("keys/projection");
  const auto s_q = whole.values<float>("queries/s_q");
  const auto k_cos = whole.values<float>("keys/cos_mean");
  for (std::size_t i = 0; i < 80; ++i) {
    CHECK((head.s_q[i] == s_q[(4 + 3) * 80 + i] || std::isnan(head.s_q[i])));
    CHECK(head.k_cos[i] == k_cos[(2 + 1) * 80 + i]);
    for (std::size_t c = 0; c < 3; ++c) {
      CHECK(head.queries[i][c] == queries[((4 + 3) * 80 + i) * 3 + c]);
      CHECK(head.keys[i][c] == keys[((n_bases + basis) * 80 + i) * 3 + c]);
    }
  }
  CHECK(head.explained[0] == whole.values<double>("explained")[(n_bases + basis) * 8]);
}

TEST_CASE("geometry: the marked means are those of the prompt's points", "[geometry]") {
  MemoryTrace full = small_trace();
  TraceInfo info = full.info();
  info.n_prompt = 64;  // the rest was decoded
  MemoryTrace trace(info);
  for (Index layer = 0; layer < 2; ++layer) {
    std::copy_n(full.q(layer).data(), full.q(layer).shape().count(), trace.q(layer).data());
    std::copy_n(full.k(layer).data(), full.k(layer).shape().count(), trace.k(layer).data());
  }
  const GeometryView view = view_of(trace, 0, 1);
  const GeometryHead head = head_of(view, 1);
  double x = 0.0;
  double y = 0.0;
  for (std::size_t i = 0; i < 64; ++i) {
    x += static_cast<double>(head.queries[i][0]) / 64.0;
    y += static_cast<double>(head.keys[i][1]) / 64.0;
  }
  CHECK(static_cast<double>(head.mean_query[0]) == Approx(x).margin(1e-5));
  CHECK(static_cast<double>(head.mean_key[1]) == Approx(y).margin(1e-5));
}

TEST_CASE("geometry: what was not recorded is a sentence", "[geometry]") {
  const MemoryTrace trace = small_trace();
  CHECK_THROWS_AS(geometry_request(trace.info(), 7, 0, {}), ConfigError);
  CHECK_THROWS_AS(geometry_request(trace.info(), 0, 9, {}), ConfigError);
  const GeometryView view = view_of(trace, 0, 0);
  CHECK_THROWS_WITH(head_of(view, 3), ContainsSubstring("does not read KV head 0"));
}

TEST_CASE("geometry: requests differ by all that decides the answer", "[geometry]") {
  const MemoryTrace trace = small_trace();
  const auto key = [&](Index layer, Index head, GeometryOptions options = {}) {
    return geometry_request(trace.info(), layer, head, options).key();
  };
  GeometryOptions other{.basis = GeometryBasis::keys};
  CHECK(key(0, 0) == key(0, 1));  // one group
  CHECK(key(0, 0) != key(0, 2));
  CHECK(key(0, 0) != key(1, 0));
  CHECK(key(0, 0) != key(0, 0, other));
  other = {};
  other.span = QuerySpan::chunk;
  CHECK(key(0, 0) != key(0, 0, other));
}

TEST_CASE("geometry: colours by S_q and by position; switched-off sets are gone", "[geometry]") {
  const MemoryTrace trace = small_trace();
  const GeometryView view = view_of(trace, 0, 1);
  const GeometryHead head = head_of(view, 1);
  GeometrySwitches switches;
  GeometryScene scene = geometry_scene(head, switches, nullptr, {});
  CHECK(n_points(scene, /*are_queries=*/true) == 80);
  CHECK(n_points(scene, /*are_queries=*/false) == 80);
  REQUIRE(scene.colour);
  const auto ends = std::minmax_element(head.s_q.begin(), head.s_q.end());
  CHECK(scene.colour->axis.range->low == Approx(*ends.first));
  CHECK(scene.colour->axis.range->high == Approx(*ends.second));

  const Cloud cloud = cloud_of(scene, plot::make_theme(plot::Venue::icml, plot::Ground::light));
  REQUIRE(cloud.at.size() == 160);
  // The query of largest S_q has the last colour of the map; every key the colour of context.
  const auto largest = static_cast<std::size_t>(ends.second - head.s_q.begin());
  for (std::size_t i = 0; i < cloud.at.size(); ++i) {
    const auto place = scene.place_of(i);
    REQUIRE(place.set != nullptr);
    CHECK(place.set->at[place.index] == cloud.at[i]);
    const std::size_t slot = place.set->slot[place.index];
    CHECK((place.set->are_queries ? head.queries : head.keys)[slot] == cloud.at[i]);
    if (place.set->are_queries && slot == largest)
      CHECK(cloud.colour[i] == plot::colour_at(plot::ColourMap::sequential, 1.0));
  }
  CHECK(scene.place_of(160).set == nullptr);

  switches.colour = GeometryColour::position;
  switches.queries = false;
  scene = geometry_scene(head, switches, nullptr, {});
  CHECK(n_points(scene, /*are_queries=*/true) == 0);
  REQUIRE(scene.sets.size() == 1);
  CHECK(scene.sets[0].value[17] == 17.0f);
  switches.keys = false;
  CHECK(geometry_scene(head, switches, nullptr, {}).sets.empty());
}

TEST_CASE("geometry: kept keys are those of the row, and no key after the query is", "[geometry]") {
  const MemoryTrace trace = small_trace();
  const GeometryView view = view_of(trace, 0, 0);
  const GeometryHead head = head_of(view, 0);
  GeometrySwitches switches{.colour = GeometryColour::kept};
  KeptKeysOfQuery kept{.method = "quest",
                       .row = {.pos = 50, .visible = {0, 51}, .keys = {0, 7, 44, 50}, .mass = 0.5}};
  const GeometryScene scene = geometry_scene(head, switches, nullptr, kept);
  std::size_t n_kept = 0;
  std::size_t n_unseen = 0;
  for (const SceneSet& set : scene.sets) {
    if (set.label == "keys kept by quest") {
      CHECK(set.slot == std::vector<std::uint32_t>{0, 7, 44, 50});
      ++n_kept;
    }
    if (set.label.starts_with("keys it does not see")) n_unseen = set.at.size();
  }
  CHECK(n_kept == 1);
  CHECK(n_unseen == 29);
  CHECK(n_points(scene, /*are_queries=*/false) == 80);
  CHECK_THAT(scene.caption.back(),
             ContainsSubstring("quest keeps 4 of the 51 keys") && ContainsSubstring("50.0%"));
  // Before the method has answered, keys are shown all alike.
  CHECK(n_points(geometry_scene(head, switches, nullptr, {}), /*are_queries=*/false) == 80);
}

TEST_CASE("geometry: largest weights colour the measured queries, others stay context",
          "[geometry]") {
  const MemoryTrace trace = small_trace();
  TestJob job;
  const GeometryView view = view_of(trace, 0, 1);
  const GeometryHead head = head_of(view, 1);
  QuerySelectionRequest request{0, {1}, {}};
  request.options.queries = 9;
  const QuerySelectionView weights = query_selection_view(trace, request, job.context);
  const QuerySelectionHead measured = head_of(weights, 1);
  GeometrySwitches switches{.colour = GeometryColour::max_weight};
  const GeometryScene scene = geometry_scene(head, switches, &measured, {});
  std::size_t n_valued = 0;
  for (const SceneSet& set : scene.sets) {
    for (std::size_t i = 0; i < set.value.size(); ++i, ++n_valued) {
      const auto at = measured.find(head.pos[set.slot[i]]);
      REQUIRE(at);
      CHECK(set.value[i] == Approx(std::exp(measured.log_max_weight[*at])));
    }
  }
  CHECK(n_valued == 8);  // of 9 measured ones; query 0 sees nothing but the sink
  CHECK(n_points(scene, /*are_queries=*/true) == 80);
}

TEST_CASE("geometry: figures hold what is seen; the table holds every point", "[geometry]") {
  const MemoryTrace trace = small_trace();
  const GeometryView view = view_of(trace, 0, 1);
  const GeometryHead head = head_of(view, 1);
  const GeometryScene scene = geometry_scene(head, {}, nullptr, {});
  const plot::Figure flat = flat_figure(scene, /*with_points=*/true);
  REQUIRE_NOTHROW(plot::check_figure(flat));
  CHECK_THAT(flat.panels[0].x.label, ContainsSubstring("% of the variance"));
  std::size_t n = 0;
  for (const auto& mark : flat.panels[0].marks) n += std::get<plot::Scatter>(mark).x.size();
  CHECK(n == 162);  // and two means
  const plot::Figure frame = flat_figure(scene, /*with_points=*/false);
  REQUIRE_NOTHROW(plot::check_figure(frame));
  CHECK(frame.panels[0].x.range == flat.panels[0].x.range);

  // From the side: what the camera sees, whatever the size of the window.
  Orbit orbit;
  orbit.yaw = 20.0;
  const plot::Figure side = orbit_figure(scene, orbit);
  REQUIRE_NOTHROW(plot::check_figure(side));
  const auto& keys = std::get<plot::Scatter>(side.panels[0].marks[0]);
  const Camera camera = orbit.camera(scene.box, 1000, 1000);
  for (std::size_t i = 0; i < keys.x.size(); ++i) {
    const auto at = camera.project(head.keys[i]);
    CHECK(keys.x[i] == Approx(static_cast<double>(at[0]) / 500.0 - 1.0).margin(1e-4));
    CHECK(keys.y[i] == Approx(1.0 - static_cast<double>(at[1]) / 500.0).margin(1e-4));
  }

  std::istringstream csv(geometry_csv(head, trace.tokens()));
  std::string line;
  std::getline(csv, line);
  CHECK(line == "layer,what,head,pos,token_id,pc1,pc2,pc3,s_q,cos_mean,norm");
  std::vector<std::string> lines;
  while (std::getline(csv, line)) lines.push_back(line);
  REQUIRE(lines.size() == 160);
  CHECK_THAT(lines[5], ContainsSubstring(fmt::format("0,query,1,5,5,{:.9g},", head.queries[5][0])));
  CHECK_THAT(lines[80], ContainsSubstring("0,key,0,0,0,"));
}

TEST_CASE("geometry: switches go through JSON; wrong ones are refused", "[geometry]") {
  GeometrySwitches switches{.is_3d = true, .colour = GeometryColour::kept};
  GeometrySwitches read;
  fields_from_json(fields_to_json(switches), read);
  CHECK(read.is_3d);
  CHECK(read.colour == GeometryColour::kept);
  CHECK_THROWS_WITH(fields_from_json({{"colour", "pink"}}, read), ContainsSubstring("max_weight"));
}

}  // namespace kvscope::gui::test::geometry_view_test
