// The explorer's arguments: one name for a thing, as in kvscope.
#include "gui/app/command_line.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace kvscope::test::command_line_test {
namespace {

gui::CommandLine parse(std::vector<const char*> words) {
  words.insert(words.begin(), "kvscope-explorer");
  return gui::parse_command_line(static_cast<int>(words.size()), words.data());
}

TEST_CASE("options of the explorer's earlier version are taken, with a remark") {
  const gui::CommandLine now = parse({"t.h5", "--layers", "3", "--heads=2"});
  CHECK(now.layer == 3);
  CHECK(now.head == 2);
  CHECK(now.remarks.empty());
  const gui::CommandLine before = parse({"t.h5", "--layer", "3", "--head=2"});
  CHECK(before.layer == 3);
  CHECK(before.head == 2);
  REQUIRE(before.remarks.size() == 2);
  CHECK(
      before.remarks[0] ==
      "kvscope-explorer: --layer is called --layers now; the old name goes with the next version");
  CHECK(parse({"--help"}).text.find("--layer ") == std::string::npos);
}

}  // namespace
}  // namespace kvscope::test::command_line_test
