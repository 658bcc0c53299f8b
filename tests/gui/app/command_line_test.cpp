// The explorer's arguments: one name for a thing, as in kvscope.
#include "gui/app/command_line.hpp"

#include "analysis/options/exit_code.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::command_line_test {
namespace {

gui::CommandLine parse(std::vector<const char*> words) {
  words.insert(words.begin(), "kvscope-explorer");
  return gui::parse_command_line(static_cast<int>(words.size()), words.data());
}

TEST_CASE("the explorer takes layers and heads") {
  const gui::CommandLine now = parse({"t.h5", "--layers", "3", "--heads=2"});
  CHECK(now.layer == 3);
  CHECK(now.head == 2);
}

TEST_CASE("the explorer's numbers have ranges, and an empty name is none") {
  const gui::CommandLine line =
      parse({"a.h5", "--session", "", "--size", "320x240", "--scale=4", "--theme", "dark", "b.h5"});
  CHECK(line.files == std::vector<fs::path>{"a.h5", "b.h5"});
  CHECK(!line.session);
  CHECK((line.width == 320 && line.height == 240 && line.scale == 4.0));
  CHECK(line.theme == plot::Ground::dark);
  for (const char* bad : {"--size=319x240", "--size=640x", "--scale=4.1", "--timeout=0",
                          "--threads=-1", "--layers=x", "--theme=blue", "--unknown=1"})
    CHECK_THROWS_AS(parse({bad}), UsageError);
}

}  // namespace
}  // namespace kvscope::test::command_line_test
