// Drawings as text: calls in order against one golden log, heights, what is refused and what is
// folded.
#include "analysis/plot/draw.hpp"

#include <cstdlib>
#include <fstream>

#include "analysis/plot/rich_text.hpp"
#include "tests/analysis/plot/recording_canvas.hpp"
#include "tests/support/places.hpp"
#include "tests/support/test.hpp"

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
