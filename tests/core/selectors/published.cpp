#include "tests/core/selectors/published.hpp"

#include <fstream>

#include "tests/support/golden.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test {

namespace {

using Json = nlohmann::json;

std::filesystem::path folder() {
  return golden_dir() / "conformance";
}

}  // namespace

Json published_cases(const std::string& file) {
  std::ifstream stream(folder() / file);
  REQUIRE(stream);
  const Json all = Json::parse(stream);
  CHECK(all["program"] == "kvpress 0.5.5");
  return all["cases"];
}

Prompt published_prompt(const std::string& input) {
  const auto tensor = [&](const std::string& name) {
    return read_golden(folder() / "inputs.h5", input + "/" + name);
  };
  return {tensor("w_o"), tensor("q"), tensor("k"), tensor("v")};
}

void for_each_run(const std::string& file,
                  const std::function<void(const Prompt&, const Json&, const Json&, Index)>& look) {
  for (const Json& one : published_cases(file)) {
    const Prompt prompt = published_prompt(one["input"]);
    for (const Json& run : one["runs"]) {
      INFO(file << ", input " << one["input"] << ", " << one["options"] << ", ratio "
                << run["compression_ratio"]);
      std::size_t n_kept = 0;
      for (const Json& head : run["kept"]) n_kept += head.size();
      look(prompt, one, run, static_cast<Index>(n_kept / run["kept"].size()));
    }
  }
}

}  // namespace kvscope::test
