// What makes figures legible to a stranger: names, marks apart from each other, lines and colours
// that can be told apart, nothing drawn as if it were a little.
#include "analysis/figures/selection.hpp"
#include "analysis/plot/theme.hpp"
#include "tests/analysis/figures/drawn.hpp"
#include "tests/analysis/kit.hpp"

namespace kvscope::legible_test {

using testing::drawn;
using testing::marks_of;
using testing::result_of;

TEST_CASE("figures call methods by their names, as tables do") {
  CHECK(figures::method_label("quoka") == "QuoKA");
  CHECK(figures::method_label("oracle-topk") == "Oracle top-k");
  CHECK(figures::method_label("full") == "Full attention");
  CHECK(figures::method_label("quest-kernel") == "Quest (kernel)");
  CHECK(figures::method_label("quest:page-size=32") == "Quest page-size=32");
  CHECK(figures::method_label("quest tokens=64") == "Quest tokens=64");  // a pair
  CHECK(figures::method_label("keydiff@tokens=99+quest:page-size=32") ==
        "KeyDiff@tokens=99+Quest page-size=32");
  CHECK(figures::method_label("own-method") == "own-method");
  for (const auto& [id, name] : figures::method_names()) CHECK(figures::method_label(id) == name);
}

TEST_CASE("attention-map: the stars of many chunks stand apart") {
  // 24 chunks of 128 queries; every eighth is chosen
  constexpr Index kChunks = 24;
  constexpr Index kTokens = kChunks * 128;
  MemoryResult map;
  ResultInfo info{.kind = "attention-map"};
  map.begin(info);
  const auto put = [](MemoryResult& result, const std::string& name, const Shape& shape,
                      const std::vector<std::string>& dims, const auto& values) {
    using T = typename std::decay_t<decltype(values)>::value_type;
    const ResultType type = std::is_same_v<T, float> ? ResultType::f32 : ResultType::i64;
    result.declare({name, type, shape, dims, "1", name});
    result.write<T>(name, 0, values);
  };
  put(map, "map", {kChunks, kChunks}, {"query_block", "key_block"},
      std::vector<float>(kChunks * kChunks, 0.5f));
  map.finish({{"layer", 0}, {"head", 0}, {"tokens", kTokens}, {"block", 128}, {"pooling", "max"}});
  MemoryResult quoka;
  info.kind = "quoka";
  quoka.begin(info);
  for (const char* axis : {"layer", "q_head", "kv_head"})
    write_axis(quoka, axis, std::vector<Index>{0}, "1", axis);
  std::vector<std::int64_t> begin, available, queries;
  for (Index c = 0; c < kChunks; ++c) {
    begin.push_back(c * 128);
    available.push_back(c * 128 + 128);
    for (Index s = 0; s < 16; ++s) queries.push_back(c * 128 + 8 * s);
  }
  put(quoka, "chunk_begin", {kChunks}, {"chunk"}, begin);
  put(quoka, "available", {kChunks}, {"chunk"}, available);
  put(quoka, "selected/offsets", {kChunks + 1}, {"end"}, std::vector<std::int64_t>(kChunks + 1, 0));
  put(quoka, "selected/positions", {1, 1, 1}, {"layer", "kv_head", "entry"},
      std::vector<std::int64_t>{-1});
  put(quoka, "selected_queries", {1, 1, kChunks, 16}, {"layer", "q_head", "chunk", "slot"},
      queries);
  const MemoryResultView weights_view(map, "m.h5");
  const MemoryResultView quoka_view(quoka, "q.h5");
  const plot::Figure figure =
      make_figure(find_figure_kind("attention-map"), {{&weights_view, &quoka_view}, {}});
  const auto stars = marks_of<plot::Scatter>(figure.panels.at(0)).at(0);
  // all but some in the corner, where the map ends
  CHECK(stars.y.size() >= 360);
  const double nearest = 0.007 * static_cast<double>(kTokens);  // a star at page width
  for (std::size_t i = 0; i < stars.x.size(); ++i) {
    CHECK(stars.x[i] > stars.y[i]);  // in the half that is not visible
    CHECK(stars.x[i] <= static_cast<double>(kTokens));
    for (std::size_t j = 0; j < i; ++j) {
      if (std::hypot(stars.x[i] - stars.x[j], stars.y[i] - stars.y[j]) < nearest)
        FAIL("stars " << i << " and " << j << " touch");
    }
  }
  CHECK_HAS(testing::caption_of(figure), "right of the diagonal (" +
                                             std::to_string(stars.y.size()) +
                                             " of 384, as many as have room)");
}

TEST_CASE("perplexity: long curves are few points, whose dashes can be seen") {
  std::string csv = "selector,position,log_perplexity\n";
  for (int t = 0; t < 2000; ++t) csv += "quest," + std::to_string(t) + ",3\n";
  const plot::Figure figure = drawn(result_of(csv), "perplexity");
  const auto line = marks_of<plot::Line>(figure.panels[0]).at(0);
  CHECK(line.x.size() == 40);
  CHECK(line.x.back() == 1999.0);
  CHECK_FALSE(plot::is_dense(line));
  CHECK_HAS(testing::caption_of(figure), "one of 50 positions");
}

TEST_CASE("cost: a row of panels per batch, one colour per method") {
  std::string csv =
      "selector,budget,batch,context,hardware,predicted_speedup,append_us,score_us,topk_us,"
      "attend_us,estimate_us,extrapolated\n";
  for (const char* method : {"quoka", "quest"}) {
    for (const char* batch : {"1", "16"}) {
      for (const char* context : {"1024", "32768"})
        csv += std::string(method) + ",64," + batch + "," + context + ",h100-sxm,2,0,1,1," + batch +
               ",0,0\n";
    }
  }
  const plot::Figure figure = drawn(result_of(csv, "cost"), "cost");
  REQUIRE(figure.panels.size() == 4);
  CHECK(figure.columns == 2);
  CHECK(figure.panels[0].title == "batch 1");
  CHECK(figure.panels[3].title == "batch 16");
  for (const std::size_t p : {0, 2}) {
    const auto lines = marks_of<plot::Line>(figure.panels[p]);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].label == "QuoKA");
    CHECK(lines[0].tone.slot == *figures::method_slot("quoka"));
    CHECK(lines[1].tone.slot == *figures::method_slot("quest"));
  }
  // each batch has its own scale: the bars of one are not lost beside those of sixteen
  CHECK(figure.panels[1].x.range->high < 4.0);
  CHECK(figure.panels[3].x.range->high > 16.0);
  CHECK(figure.panels[2].legend == plot::LegendPlace::none);
}

TEST_CASE("what has an order has colours in that order") {
  for (const plot::Ground ground : {plot::Ground::light, plot::Ground::dark}) {
    const plot::Theme theme = plot::make_theme(plot::Venue::icml, ground);
    double before = -1.0;
    std::set<plot::MarkerShape> markers;
    for (int i = 0; i < 5; ++i) {
      const auto style = theme.style_of({plot::Role::ordered, i, 5});
      CHECK(plot::luminance(style.colour) > before);
      before = plot::luminance(style.colour);
      markers.insert(style.marker);
    }
    CHECK(markers.size() == 5);
  }
}

}  // namespace kvscope::legible_test
