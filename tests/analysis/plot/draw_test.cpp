// Drawings as text: layouts without overlaps, calls in order, and one golden log.
#include "analysis/plot/draw.hpp"

#include <cstdlib>
#include <fstream>

#include "analysis/plot/cells.hpp"
#include "analysis/plot/legible.hpp"
#include "analysis/plot/rich_text.hpp"
#include "tests/analysis/kit.hpp"
#include "tests/analysis/plot/recording_canvas.hpp"
#include "tests/support/places.hpp"

namespace kvscope::plot::draw_test {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A bit of everything.
Figure sample_figure() {
  Figure figure{.name = "sample", .title = "A sample", .columns = 2, .legend = LegendPlace::above};
  Panel curves{.x = {.label = "Budget (tokens)", .scale = ScaleKind::log2},
               .y = {.label = "Mass, $S_q$"}};
  Line line{"quest",         {Role::series, 1}, {32, 64, 128},
            {0.5, 0.7, 0.9}, {0.4, 0.6, 0.85},  {0.6, 0.8, 0.95}};
  curves.marks.emplace_back(line);
  curves.marks.emplace_back(Rule{Rule::Kind::horizontal, 0.95, "oracle"});
  curves.marks.emplace_back(Scatter{"points", {Role::series, 0}, {40, 80, kNan}, {0.5, 0.6, 0.7}});
  Panel map;
  map.title = "map";
  map.x.label = "Head";
  map.y.label = "Layer";
  map.colour = ColourAxis{};
  map.colour->axis.label = "KL";
  map.colour->masked_label = "masked";
  HeatMap cells{2,      3,      {0, 1, 2, 3, std::numeric_limits<float>::quiet_NaN(), 5},
                {0, 3}, {0, 2}, true};
  map.marks.emplace_back(cells);
  map.marks.emplace_back(Boxes{"best", {Role::highlight, 0}, {{0, 1}}, {{1, 2}}});
  figure.panels = {curves, map};
  return figure;
}

std::string drawn(const Figure& figure, double width) {
  const Theme theme = make_theme(Venue::icml, Ground::light);
  RecordingCanvas canvas;
  draw_figure(figure, layout_figure(figure, width, std::nullopt, theme, canvas.metrics()), theme,
              canvas);
  return canvas.log();
}

TEST_CASE("a figure of every mark is drawn as it was") {
  const std::string log = drawn(sample_figure(), 400.0);
  const std::string path = (testing::source_dir() / "tests/golden/figures/sample.txt").string();
  if (std::getenv("KVSCOPE_WRITE_GOLDEN") != nullptr) std::ofstream(path) << log;
  CHECK(log == testing::read_file(path));
}

TEST_CASE("an axis label that is wider than its frame ends on the page") {
  const Theme theme = make_theme(Venue::icml, Ground::light);
  const FixedMetrics metrics;
  Figure figure;
  Panel panel{.x = {.label = "Keys kept per query (measured)", .range = Range{1.0, 2.0}}};
  panel.marks.emplace_back(Line{"a", {Role::series, 0}, {1, 2}, {1, 2}});
  figure.panels = {panel, panel, panel};
  figure.columns = 3;
  for (double width = 380.0; width < 700.0; width += 8.0) {
    INFO(width);
    const Layout layout = layout_figure(figure, width, std::nullopt, theme, metrics);
    for (const PlacedText& words : layout.words) {
      if (words.style.rotation != 0.0) continue;
      const double half = 0.5 * rich_width(metrics, words.text, words.style.size);
      CHECK(words.at.x - half >= 0.0);
      CHECK(words.at.x + half <= layout.size.w);
    }
  }
}

TEST_CASE("an interval without a neighbour is a bar, others are surfaces") {
  Figure figure;
  Panel panel;
  panel.marks.emplace_back(Line{"one", {Role::series, 0}, {2}, {0.5}, {0.4}, {0.6}});
  figure.panels = {panel};
  CHECK_THAT(drawn(figure, 300.0), has("polyline") && !has("polygon"));
  const Line gaps{"", {}, {1, 2, 3, 4, 5}, {1, 1, 1, 1, 1}, {0, kNan, 0, 0, 1}, {2, 2, 2, 2, 1}};
  CHECK(lone_intervals(gaps) == std::vector<std::size_t>{0});
  CHECK(lone_intervals(Line{"", {}, {1}, {1}}).empty());
}

TEST_CASE("a height that is asked for is kept") {
  const Theme theme = make_theme(Venue::icml, Ground::light);
  const FixedMetrics metrics;
  const Layout layout = layout_figure(sample_figure(), 486.0, 260.0, theme, metrics);
  CHECK(layout.size.h == Catch::Approx(260.0).margin(2.0));
  // Also where titles take other numbers of lines as frames get narrower.
  Figure three = sample_figure();
  three.panels = {three.panels[1], three.panels[1], three.panels[1]};
  three.panels[0].title = "A: quoka:n-queries=16, tokens=256";
  three.columns = 2;
  for (double width = 300.0; width < 500.0; width += 7.0) {
    for (const double height : {250.0, 330.0, 480.0}) {
      INFO(width << " x " << height);
      CHECK(layout_figure(three, width, height, theme, metrics).size.h ==
            Catch::Approx(height).margin(2.1));
    }
  }
  CHECK_THROWS_AS(layout_figure(sample_figure(), 486.0, 30.0, theme, metrics), ConfigError);
  CHECK_THROWS_AS(layout_figure(sample_figure(), 60.0, std::nullopt, theme, metrics), ConfigError);
}

TEST_CASE("a colour bar's label ends on the page at any height that is asked for") {
  const Theme theme = make_theme(Venue::icml, Ground::light);
  const FixedMetrics metrics;
  Figure figure = sample_figure();
  figure.legend = LegendPlace::none;
  figure.panels = {figure.panels[1]};
  figure.panels[0].colour->axis.range = Range{-1.0, 1.0};
  figure.panels[0].aspect = 0.8;
  for (double width = 120.0; width < 240.0; width += 10.0) {
    for (double height = 90.0; height < 200.0; height += 1.0) {  // 2 to 5 ticks on the bar
      INFO(width << " x " << height);
      const Layout layout = layout_figure(figure, width, height, theme, metrics);
      for (const PlacedText& words : layout.words) {
        if (words.text != "KL") continue;
        CHECK(words.at.x + metrics.descent() * words.style.size <= width);
      }
    }
  }
}

TEST_CASE("figures that cannot be drawn are refused in a sentence") {
  CHECK_SAYS(check_figure(Figure{.name = "x"}), "nothing to draw");
  Figure all_nan = sample_figure();
  all_nan.panels = {Panel{}};
  all_nan.panels[0].marks.emplace_back(Line{"a", {}, {1, 2}, {kNan, kNan}});
  CHECK_SAYS(check_figure(all_nan), "missing or not finite");
  Figure uneven = sample_figure();
  std::get<Line>(uneven.panels[0].marks[0]).y.pop_back();
  CHECK_SAYS(check_figure(uneven), "differ in length");
  Figure bad_log = sample_figure();
  bad_log.panels[0].x.range = Range{0.0, 10.0};
  CHECK_SAYS(check_figure(bad_log), "logarithmic");
}

TEST_CASE("a note rises in a low frame until its last line is inside") {
  const Theme theme = make_theme(Venue::icml, Ground::light);
  const auto lowest = [&](double height) {
    Figure figure;
    Panel panel{.marks = {Line{"", {}, {0, 1}, {0, 1}}, Note{"first\nsecond\nthird", 0.97, 0.9}}};
    figure.panels = {panel};
    RecordingCanvas canvas;
    const Layout layout = layout_figure(figure, 200.0, height, theme, canvas.metrics());
    draw_figure(figure, layout, theme, canvas);
    const std::string log = canvas.log();
    const auto at = log.find("third");
    REQUIRE(at != std::string::npos);
    const auto begin = log.rfind('\n', at) + 1;
    const std::string line = log.substr(begin, at - begin);  // text X,Y ...
    return layout.panels[0].frame.bottom() - std::stod(line.substr(line.find(',') + 1));
  };
  CHECK(lowest(90.0) > 0.0);
  CHECK(lowest(300.0) > 0.0);
}

TEST_CASE("cells with numbers have borders, and boxes leave the inside of small cells") {
  const Theme theme = make_theme(Venue::icml, Ground::light);
  RecordingCanvas canvas;
  for (const Index n : {Index{8}, Index{80}}) {
    Figure figure;
    figure.panels.resize(1);
    figure.panels[0].colour = ColourAxis{};
    const Range all{0.0, static_cast<double>(n)};
    const HeatMap map{n,   n,   std::vector<float>(static_cast<std::size_t>(n * n), 1.0f),
                      all, all, true};
    figure.panels[0].marks.emplace_back(map);
    figure.panels[0].aspect = 1.0;
    const Layout layout = layout_figure(figure, 234.0, std::nullopt, theme, canvas.metrics());
    const double cell = layout.panels[0].frame.w / static_cast<double>(n);
    const auto borders = cell_borders(map, layout.panels[0]);
    CHECK(borders.size() == (n == 8 ? 14 : 0));  // cells of 2 points have no room for them
    for (const auto& [from, to] : borders) CHECK((from.x == to.x || from.y == to.y));
    CHECK(box_width(cell, cell, theme) <= 0.15 * cell);
    CHECK(box_width(cell, cell, theme) >= 0.25);
  }
}

TEST_CASE("small maps without numbers may stand closer than other panels") {
  const Theme theme = make_theme(Venue::icml, Ground::light);
  RecordingCanvas canvas;
  for (const bool has_numbers : {false, true}) {
    Figure figure{.columns = 3};
    figure.panels.resize(3);
    for (Panel& panel : figure.panels) {
      panel.marks.emplace_back(
          HeatMap{8, 8, std::vector<float>(64, 0.5f), {0.0, 8.0}, {0.0, 8.0}, has_numbers});
    }
    const Layout layout = layout_figure(figure, 234.0, std::nullopt, theme, canvas.metrics());
    const double width = layout.panels[0].frame.w;
    CHECK((width > 6.0 * theme.label_size && width < 8.0 * theme.label_size));
    CHECK(why_illegible(figure, layout, theme, canvas.metrics()).empty() == !has_numbers);
  }
}

TEST_CASE("masked cells have a colour of their own, zero has another") {
  const std::string log = drawn(sample_figure(), 400.0);
  CHECK_HAS(log, "\"masked\"");
  CHECK(colour_at(ColourMap::sequential, 0.0) != make_theme(Venue::icml, Ground::light).masked);
}

TEST_CASE("colour maps get lighter evenly, series differ in grey or marker") {
  double before = -1.0;
  for (int i = 0; i <= 20; ++i) {
    const double l = luminance(colour_at(ColourMap::sequential, i / 20.0));
    CHECK(l > before);
    before = l;
  }
  const Theme theme = make_theme(Venue::acl, Ground::light);
  for (int a = 0; a < 18; ++a) {
    for (int b = 0; b < a; ++b) {
      const SeriesStyle one = theme.style_of({Role::series, a});
      const SeriesStyle two = theme.style_of({Role::series, b});
      CHECK((one.marker != two.marker || one.dash != two.dash));
    }
  }
}

TEST_CASE("a million points and a curve of a million are folded to what the page can show") {
  constexpr std::size_t kN = 1'000'000;
  Figure figure{.name = "large"};
  figure.panels.resize(2);
  figure.columns = 2;
  Line line;
  Scatter cloud;
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < kN; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double u = static_cast<double>(state >> 40) / static_cast<double>(1 << 24);
    line.x.push_back(static_cast<double>(i));
    line.y.push_back(u);
    cloud.x.push_back(u);
    cloud.y.push_back(u * u + 1e-6 * static_cast<double>(i));
  }
  line.markers = false;
  figure.panels[0].marks.emplace_back(std::move(line));
  figure.panels[1].marks.emplace_back(std::move(cloud));
  CHECK(drawn(figure, 486.0).size() < 100'000);  // not written point by point
}

TEST_CASE("rich text: scripts, widths, LaTeX") {
  const auto runs = parse_rich("mass_x, $S_q$ and $10^{\u22123}$");
  REQUIRE(runs.size() == 4);
  CHECK(runs[0].text == "mass_x, S");
  CHECK(runs[1].text == "q");
  CHECK(runs[1].rise < 0.0);
  CHECK(runs[3].rise > 0.0);
  CHECK(plain_text("$S_q$") == "Sq");
  CHECK(tex_text("50% of mass_x, $S_q$") == "50\\% of mass\\_x, $S_q$");
  CHECK(tex_text("$10^{\u22123}$") == "$10^{-3}$");
  const FixedMetrics metrics;
  CHECK(wrap_rich(metrics, "one two three", 10.0, 45.0).size() == 2);
}

}  // namespace kvscope::plot::draw_test
