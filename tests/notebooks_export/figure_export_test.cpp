// Figures as files: the right formats, the same bytes every time, fonts embedded, all or nothing.
#include "notebooks_export/figure_export.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "analysis/figures/maps.hpp"
#include "notebooks_export/figure_manifest.hpp"
#include "tests/support/test.hpp"

namespace kvscope::figure_export_test {

using testing::read_file;
using testing::TempDir;

plot::Figure curve(std::string label = "quest") {
  plot::Figure figure{.name = "curve"};
  plot::Panel panel{.x = {.label = "Budget, 50% & more"},
                    .y = {.label = "Mass $S_q$"},
                    .legend = plot::LegendPlace::above};
  plot::Line line{.label = std::move(label),
                  .x = {1, 2, 3},
                  .y = {0.25, 0.5, 0.75},
                  .low = {0.2, 0.4, 0.7},
                  .high = {0.3, 0.6, 0.8}};
  panel.marks.emplace_back(line);
  figure.panels.push_back(panel);
  return figure;
}

plot::Figure large_map(Index side) {
  plot::Figure figure{.name = "map"};
  plot::Panel panel;
  plot::HeatMap map;
  map.n_rows = map.n_cols = side;
  map.x = map.y = {0.0, static_cast<double>(side)};
  std::uint32_t state = 7;
  for (Index i = 0; i < side * side; ++i) {
    state = state * 1664525U + 1013904223U;
    map.values.push_back(static_cast<float>(state >> 8));
  }
  panel.colour = plot::ColourAxis{};
  panel.marks.emplace_back(std::move(map));
  figure.panels.push_back(std::move(panel));
  return figure;
}

std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string out;
  char buffer[256];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) out += buffer;
  pclose(pipe);
  return out;
}

TEST_CASE("PDF fonts are embedded subsets, none of them Type 3; text can be searched", "[figure]") {
  const TempDir dir;
  const auto files = render_figure(curve(), {}, {FigureFormat::pdf}, "c");
  const auto path = dir.write("c.pdf", files[0].bytes).string();
  const std::string fonts = output_of("pdffonts '" + path + "' 2>/dev/null");
  if (fonts.empty()) SKIP("pdffonts is not installed");
  CHECK_HAS(fonts, "DejaVuSans", "yes yes");
  CHECK_THAT(fonts, !has("Type 3"));
  CHECK_HAS(output_of("pdftotext '" + path + "' - 2>/dev/null"), "quest");
  CHECK_HAS(output_of("pdfinfo '" + path + "' 2>/dev/null"), "2000");
}

TEST_CASE("a large map becomes one image, pooled, in less than a mebibyte", "[figure]") {
  plot::Figure figure = large_map(3000);
  auto& map = std::get<plot::HeatMap>(figure.panels[0].marks[0]);
  const auto pooled = figures::pool_map(map, 512);
  CHECK(pooled.sentence == "Each cell is the mean of 6 x 6 values.");
  CHECK(pooled.map.n_rows == 500);
  map = pooled.map;
  CHECK(render_figure(figure, {}, {FigureFormat::pdf}, "m")[0].bytes.size() < (1U << 20));
}

TEST_CASE("pooling keeps means and masks", "[figure]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const plot::HeatMap map{2, 4, {1, 3, nan, nan, 5, 7, nan, 2}, {0, 4}, {0, 2}};
  const auto mean = figures::pool_map(map, 2).map;  // blocks of 1 x 2
  REQUIRE(mean.values.size() == 4);
  CHECK(mean.values[0] == 2.0F);
  CHECK(std::isnan(mean.values[1]));
  CHECK(mean.values[2] == 6.0F);
  CHECK(mean.values[3] == 2.0F);
  CHECK(figures::pool_map(map, 4).sentence.empty());
}

TEST_CASE("a manifest comes back as it was; others are refused", "[figure]") {
  FigureManifest manifest{
      .figure = "budget",
      .stem = "b",
      .options = {.metric = "mass", .band = BandKind::quartiles},
      .render = {.width = 2.5},
      .formats = {FigureFormat::tex},
      .inputs = {{"../sweep.h5", "xxh128:1", "sweep", "h", "kvscope sweep", {"u"}, {"t"}}},
      .files = {{"b.tex", 12, "xxh128:2"}}};
  const std::string text = manifest_to_json(manifest).dump();
  const FigureManifest back = manifest_from_text(text, "m.json");
  CHECK(manifest_to_json(back) == manifest_to_json(manifest));
  for (const std::string bad :
       {"{}", "[]", "{\"format\": \"kvscope-figure\", \"version\": 2}", "{"}) {
    CHECK_THROWS_AS(manifest_from_text(bad, "m.json"), FormatError);
  }
  auto escape = manifest_to_json(manifest);
  escape["files"][0]["name"] = "../../etc/passwd";
  CHECK_THROWS_AS(manifest_from_text(escape.dump(), "m.json"), FormatError);
}

}  // namespace kvscope::figure_export_test
