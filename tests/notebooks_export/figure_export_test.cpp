// Figures as files: the right formats, the same bytes every time, fonts embedded, all or nothing.
#include "notebooks_export/figure_export.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "analysis/figures/maps.hpp"
#include "notebooks_export/cairo_canvas.hpp"
#include "notebooks_export/figure_csv.hpp"
#include "notebooks_export/figure_manifest.hpp"
#include "tests/support/test.hpp"

namespace kvscope::figure_export_test {

using testing::read_file;
using testing::TempDir;

const std::vector<FigureFormat> kAll = {FigureFormat::svg, FigureFormat::pdf, FigureFormat::png,
                                        FigureFormat::tex};

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

const OutputFile& file_of(const std::vector<OutputFile>& files, const std::string& name) {
  for (const OutputFile& file : files) {
    if (file.name == name) return file;
  }
  FAIL("no " << name);
  return files.front();
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

TEST_CASE("a figure has the same bytes every time, in every format", "[figure]") {
  const auto one = render_figure(curve(), {}, kAll, "c");
  render_figure(large_map(20), {}, kAll, "other");  // what was drawn before must not show
  const auto two = render_figure(curve(), {}, kAll, "c");
  REQUIRE(one.size() == 5);
  for (std::size_t i = 0; i < one.size(); ++i) {
    INFO(one[i].name);
    CHECK(one[i].name == two[i].name);
    CHECK((one[i].bytes == two[i].bytes));
    CHECK(!one[i].bytes.empty());
  }
  CHECK(file_of(one, "c.svg").bytes.starts_with("<?xml"));
  CHECK(file_of(one, "c.pdf").bytes.starts_with("%PDF"));
  CHECK(file_of(one, "c.png").bytes.starts_with("\x89PNG"));
  CHECK_HAS(file_of(one, "c.tex").bytes, "\\begin{tikzpicture}", "50\\% \\& more", "$S_q$");
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

TEST_CASE("the CSV holds the plotted numbers", "[figure]") {
  const std::string csv = figure_csv(curve());
  CHECK(csv ==
        "panel,panel_title,mark,series,x,y,low,high,value,x_axis,y_axis,value_axis,x_tick,y_tick\n"
        "1,,line,quest,1,0.25,0.2,0.3,,\"Budget, 50% & more\",Mass Sq,,,\n"
        "1,,line,quest,2,0.5,0.4,0.6,,\"Budget, 50% & more\",Mass Sq,,,\n"
        "1,,line,quest,3,0.75,0.7,0.8,,\"Budget, 50% & more\",Mass Sq,,,\n");
}

TEST_CASE("files are written all or none", "[figure]") {
  const TempDir dir;
  const auto folder = dir.path() / "out";
  write_output_files(folder, {{"a.txt", "1"}, {"b.txt", "2"}}, /*overwrite=*/false);
  CHECK(read_file(folder / "b.txt") == "2");
  CHECK_THROWS_AS(write_output_files(folder, {{"c.txt", "3"}, {"a.txt", "x"}}, false), IoError);
  CHECK(!fs::exists(folder / "c.txt"));
  write_output_files(folder, {{"a.txt", "x"}}, /*overwrite=*/true);
  CHECK(read_file(folder / "a.txt") == "x");
  // a folder in the way of the second file: the first one does not appear either
  fs::create_directory(folder / "d.txt");
  CHECK_THROWS_AS(write_output_files(folder, {{"e.txt", "1"}, {"d.txt", "2"}}, true), IoError);
  CHECK(!fs::exists(folder / "e.txt"));
  CHECK(!fs::exists(folder / "e.txt.part"));
  CHECK_THROWS_AS(write_output_files(dir.path() / "no" / "such", {{"a", "1"}}, true), IoError);
  CHECK(!fs::exists(dir.path() / "no"));
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

TEST_CASE("the font's widths are those of its tables", "[figure]") {
  const plot::FontMetrics& font = figure_font_metrics();
  CHECK(font.width("A", 2048.0) == 1401.0);  // DejaVu Sans 2.37, table hmtx
  CHECK(font.width("AA", 10.0) == 2.0 * font.width("A", 10.0));
  CHECK(font.has(U'\u2212'));
  CHECK(font.has(U'\u03c1'));
  CHECK(font.height_per_em() > 1.16);
  CHECK(font.height_per_em() < 1.17);
  CHECK_THROWS_AS(plot::FontMetrics("no font at all", "x.ttf"), FormatError);
  CHECK_THROWS_AS(plot::FontMetrics(std::string("\0\1\0\0", 4), "x.ttf"), FormatError);
}

}  // namespace kvscope::figure_export_test
