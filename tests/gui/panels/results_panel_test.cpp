// The results panel in every state: tables, figures, what a file says, clicks, filters.

#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>

#include <nlohmann/json.hpp>

#include "analysis/base/read_table.hpp"
#include "core/trace/result.hpp"
#include "tests/gui/app_rig.hpp"
#include "traces/result_file.hpp"

namespace kvscope::gui::test::results_panel_test {

std::string sweep_csv_text(int n_layers) {
  std::string csv =
      "trace,phase,selector,budget_kind,layer,q_head,budget,dense,window,kept,mass_mean\n";
  for (int layer = 0; layer < n_layers; ++layer) {
    for (const char* selector : {"quoka", "oracle-topk"}) {
      for (const int budget : {16, 32, 64}) {
        for (int head = 0; head < 4; ++head) {
          csv += fmt::format("t,prefill,{},tokens,{},{},{},0,0,{},{}\n", selector, layer, head,
                             budget, budget, 0.3 + 0.005 * budget + 0.01 * head);
        }
      }
    }
  }
  return csv;
}

std::filesystem::path write_h5(const std::filesystem::path& file) {
  const auto output = create_result_file(file, /*overwrite=*/true);
  ResultInfo info{.kind = "sample",
                  .config = {{"page_size", 16}},
                  .command_line = "kvscope analyze sample t.h5"};
  output->begin(info);
  output->declare({"layer", ResultType::i64, {2}, {"layer"}, "1", "layer"});
  output->write<std::int64_t>("layer", 0, std::vector<std::int64_t>{1, 2});
  output->declare({"mass", ResultType::f32, {2, 3}, {"layer", "step"}, "1", "attention mass"});
  output->write<float>("mass", 0, std::vector<float>{1, 2, 3, 4, 5, 6});
  output->finish({{"mean", 3.5}});
  return file;
}

Panel& show(Rig& rig, const char* view) {
  Panel& panel = rig.app().panel("results");
  panel.set_options({{"show", view}});
  rig.app().show_panel_alone("results");
  rig.settle();
  return panel;
}

TEST_CASE("results: nothing open, then a table of a sweep, shown, copied and drawn") {
  const testing::TempDir folder;
  Rig rig;
  for (const char* view : {"table", "figure", "about"}) {
    CHECK_FALSE(show(rig, view).figure());
    CHECK_FALSE(show(rig, view).csv());
  }
  rig.open(folder.write("sweep.csv", sweep_csv_text(3)));
  REQUIRE(rig.session().results().size() == 1);
  Panel& panel = show(rig, "table");
  CHECK_FALSE(panel.figure());
  const auto csv = panel.csv();
  REQUIRE(csv);
  const Table back = table_from_csv(*csv, "copied.csv");
  CHECK(back.n_rows() == 72);
  CHECK(back.columns().size() == 11);
  panel.set_options({{"figure", {{"figure", "budget"}, {"metric", "mass"}}}});
  show(rig, "figure");
  const auto figure = panel.figure();
  REQUIRE(figure);
  CHECK_NOTHROW(plot::check_figure(*figure));
  CHECK_FALSE(figure->caption.empty());
  CHECK(panel.csv());
  show(rig, "about");
  CHECK(rig.session().notices().empty());
  panel.set_options({{"show", "plot"}, {"plot", {{"x", "budget"}}}});  // of older sessions
  CHECK(panel.options()["show"] == "table");
  CHECK_THROWS_AS(panel.set_options({{"show", 3}}), ConfigError);
  CHECK_THROWS_AS(panel.set_options(nullptr), ConfigError);
}

TEST_CASE("results: a click on a line goes to its layer, head, method and budget") {
  const testing::TempDir folder;
  Rig rig;
  rig.open_pair();
  rig.open(folder.write("sweep.csv", sweep_csv_text(3)));
  Panel& panel = show(rig, "table");
  // The lowest lines in sight are of layer 0 or 1; whichever is clicked is the selection's.
  rig.click_panel("results", 0.28f, 0.8f);
  rig.settle();
  const Selection& s = rig.session().selection();
  const auto csv = panel.csv();  // of the clicked line alone
  REQUIRE(csv);
  const Table line = table_from_csv(*csv, "line.csv");
  REQUIRE(line.n_rows() == 1);
  CHECK(line.numbers("layer")[0] == static_cast<double>(s.layer));
  CHECK(line.numbers("q_head")[0] == static_cast<double>(s.q_head));
  CHECK(line.text("selector").at(0) == s.selector);
  CHECK(line.numbers("budget")[0] == static_cast<double>(rig.session().parameters().budget));
}

TEST_CASE("results: a filter is typed, a column sorted with its header, all in the background") {
  const testing::TempDir folder;
  Rig rig;
  rig.open(folder.write("sweep.csv", sweep_csv_text(3)));
  Panel& panel = show(rig, "table");
  const Area at = rig.area("results");
  const auto lines = [&] { return table_from_csv(*panel.csv(), "t.csv"); };
  // The third column is "selector": its header is in the third line of the panel, below it the
  // filter.
  constexpr float kHeader = 70.0f;  // pixels from the panel's top, at scale 1
  constexpr float kFilter = 92.0f;
  REQUIRE(lines().text("selector").at(0) == "quoka");
  rig.click(at.x + 185.0f, at.y + kHeader);
  rig.settle();
  CHECK(lines().text("selector").at(0) == "oracle-topk");
  rig.click(at.x + 185.0f, at.y + kFilter);
  rig.backend().type("quo");
  rig.settle();
  REQUIRE(lines().n_rows() == 36);
  CHECK(lines().text("selector").at(0) == "quoka");
}

TEST_CASE("results: HDF5 arrays are listed with their coordinates; another file takes its place") {
  const testing::TempDir folder;
  Rig rig;
  rig.open(write_h5(folder.path() / "sample.h5"));
  REQUIRE(rig.session().results().size() == 1);
  Panel& panel = show(rig, "table");
  panel.set_options({{"source", "mass"}});
  rig.settle();
  const Table mass = table_from_csv(*panel.csv(), "mass.csv");
  REQUIRE(mass.n_rows() == 6);
  CHECK(mass.numbers("layer")[3] == 2.0);
  CHECK(mass.numbers("mass")[3] == 4.0);
  CHECK_FALSE(show(rig, "figure").figure());  // no figure is about such a result
  show(rig, "about");

  rig.open(folder.write("sweep.csv", sweep_csv_text(1)));
  show(rig, "table");
  panel.set_options({{"result", "sweep.csv"}});
  rig.settle();
  CHECK(table_from_csv(*panel.csv(), "t.csv").n_rows() == 24);
  rig.session().close_result(1);
  rig.settle();
  CHECK(panel.options()["result"] == "sample.h5");
  rig.session().close_result(0);
  rig.settle();
  CHECK_FALSE(panel.csv());
  CHECK(rig.session().notices().empty());
}

TEST_CASE("results: wrong choices of a figure are a sentence, and right ones bring it back") {
  const testing::TempDir folder;
  Rig rig;
  rig.open(folder.write("sweep.csv", sweep_csv_text(2)));
  Panel& panel = show(rig, "figure");
  panel.set_options({{"figure", {{"figure", "budget"}, {"metric", "mass"}}}});
  rig.settle();
  REQUIRE(panel.figure());
  panel.set_options({{"figure", {{"figure", "budget"}, {"layers", "99"}}}});
  rig.settle();
  CHECK_FALSE(panel.figure());
  panel.set_options({{"figure", {{"layers", "1"}}}});
  rig.settle();
  CHECK(panel.figure());
  CHECK(rig.session().notices().empty());
}

}  // namespace kvscope::gui::test::results_panel_test
