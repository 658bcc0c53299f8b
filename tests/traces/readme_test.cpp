// The Python examples of traces/README.md run as they stand.

#include "core/trace/result.hpp"
#include "tests/support/places.hpp"
#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/result_file.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::readme_test {

std::vector<std::string> python_blocks() {
  const std::string text = slurp(testing::source_dir() / "traces/README.md");
  const std::string fence = "```python\n";
  std::vector<std::string> blocks;
  for (std::size_t at = text.find(fence); at != std::string::npos; at = text.find(fence, at)) {
    at += fence.size();
    blocks.push_back(text.substr(at, text.find("```", at) - at));
  }
  return blocks;
}

TEST_CASE("the examples of the format's documentation run") {
  const auto blocks = python_blocks();
  REQUIRE(blocks.size() == 2);
  for (const auto& block : blocks) CHECK(std::count(block.begin(), block.end(), '\n') <= 10);
  const TempFolder folder;
  const std::string enter = "import os, sys; os.chdir(sys.argv[1])\n";
  write_all(make_trace(Plan{}), *create_trace(folder / "trace.h5", {}));
  CHECK_HAS(run_python(enter + blocks[0], {(folder / "").string()}), "complete 24 tokens",
            "largest score");

  auto output = create_result_file(folder / "result.h5", /*overwrite=*/false);
  output->begin(ResultInfo{.kind = "quest"});
  output->declare({"bound", ResultType::f32, {2}, {"pos"}, "nat", ""});
  output->write<float>("bound", 0, std::vector<float>{1, 2});
  output->add_plot({"bound", "bound", {"."}, ""});
  output->finish({{"violations", 0}});
  CHECK_HAS(run_python(enter + blocks[1], {(folder / "").string()}), "\"violations\": 0",
            "(2,) pos nat");
}

}  // namespace kvscope::test::readme_test
