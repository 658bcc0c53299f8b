// Exports: drawing, numbers and manifest together, all or none, and never over other files unasked.
#include "gui/model/results/export.hpp"

#include <fmt/format.h>

#include "core/base/json.hpp"
#include "core/base/version.hpp"
#include "tests/support/test.hpp"
#include "traces/hash.hpp"

namespace kvscope::gui::test::export_test {

using kvscope::testing::read_file;
using kvscope::testing::TempDir;

plot::Figure sample_figure() {
  plot::Figure figure{.name = "sample", .caption = {"A line of three points."}};
  figure.panels.emplace_back();
  figure.panels[0].marks.emplace_back(plot::Line{"a", {}, {0, 1, 2}, {0.125, 0.5, 0.25}, {}, {}});
  return figure;
}

ExportRequest request_in(const fs::path& folder, ExportFormat format) {
  return ExportRequest{
      .panel = "sample",
      .figure = sample_figure(),
      .formats = {format},
      .folder = folder,
      .stem = "view",
      .seen = {{"session", {{"kind", "kvscope-session"}}}, {"panel_options", {{"show", "maps"}}}}};
}

TEST_CASE("nothing is written over other files unless told, and then all of them") {
  const TempDir folder;
  const ExportRequest request = request_in(folder.path(), ExportFormat::svg);
  folder.write("view.csv", "mine,yours\n1,2\n");
  CHECK(free_stem(folder.path(), "view") == "view-2");
  CHECK(free_stem(folder.path(), "other") == "other");
  CHECK_THROWS_MATCHES(export_view(request, Existing::keep), IoError,
                       MessageMatches(ContainsSubstring("view.csv exists")));
  CHECK(read_file(folder.path() / "view.csv") == "mine,yours\n1,2\n");
  CHECK_FALSE(fs::exists(folder.path() / "view.svg"));
  export_view(request, Existing::replace);
  CHECK(read_file(folder.path() / "view.csv") != "mine,yours\n1,2\n");
  CHECK(fs::exists(folder.path() / "view.svg"));
}

TEST_CASE("what cannot be exported is a sentence, and leaves nothing") {
  const TempDir folder;
  ExportRequest request = request_in(folder.path(), ExportFormat::svg);
  request.figure.reset();
  CHECK_THROWS_MATCHES(export_view(request, Existing::keep), ConfigError,
                       MessageMatches(ContainsSubstring("nothing to export")));
  request = request_in(folder.path(), ExportFormat::svg);
  for (const char* stem : {"", "../up", ".hidden", "a/b", "line\nbreak"}) {
    request.stem = stem;
    CHECK_THROWS_MATCHES(export_view(request, Existing::keep), ConfigError,
                         MessageMatches(ContainsSubstring("cannot be a file name")));
  }
  request = request_in(folder.path() / "no" / "parent", ExportFormat::svg);
  CHECK_THROWS_AS(export_view(request, Existing::keep), IoError);
  request = request_in(folder.path(), ExportFormat::svg);
  request.figure->panels.clear();
  CHECK_THROWS_AS(export_view(request, Existing::keep), ConfigError);
  CHECK(fs::is_empty(folder.path()));
}

}  // namespace kvscope::gui::test::export_test
