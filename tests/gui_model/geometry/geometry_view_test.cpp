// The geometry panel's model: the same numbers as the analysis of the whole trace.
#include "gui/model/geometry/geometry_view.hpp"
#include "core/trace/result.hpp"

#include "tests/gui_model/job_context.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::geometry_view_test {

MemoryTrace small_trace() {
  kvscope::test::PlantOptions plant{.n_tokens = 80, .chunk = 16, .sink = 1.0};
  return kvscope::test::planted_trace(plant);  // 4 query heads on 2 KV heads
}

GeometryView view_of(const TraceSource& trace, Index layer, Index q_head,
                     GeometryOptions options = {}) {
  TestJob job;
  return geometry_view(trace, geometry_request(trace.info(), layer, q_head, options), job.context);
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
  CHECK(view.kv_head == 1);
  CHECK(view.options.selection.q_heads == std::vector<Index>{2, 3});
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

TEST_CASE("geometry: what was not recorded is a sentence", "[geometry]") {
  const MemoryTrace trace = small_trace();
  CHECK_THROWS_AS(geometry_request(trace.info(), 7, 0, {}), ConfigError);
  CHECK_THROWS_AS(geometry_request(trace.info(), 0, 9, {}), ConfigError);
  const GeometryView view = view_of(trace, 0, 0);
  CHECK_THROWS_WITH(head_of(view, 3), ContainsSubstring("does not read KV head 0"));
}

}  // namespace kvscope::gui::test::geometry_view_test
