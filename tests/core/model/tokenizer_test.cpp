#include "core/model/tokenizer.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.hpp"

namespace kvscope {
namespace {

const std::filesystem::path kGolden =
    std::filesystem::path(KVSCOPE_SOURCE_DIR) / "tests/golden/tokenizer";

TEST_CASE("all golden strings get the ids and texts of the tokenizers library", "[tokenizer]") {
  const Tokenizer tokenizer = Tokenizer::load(kGolden);
  const auto cases = nlohmann::json::parse(testing::read_file(kGolden / "cases.json"));
  REQUIRE(cases.size() == 90);
  for (const auto& one : cases) {
    const auto text = one.at("text").get<std::string>();
    const auto ids = one.at("ids").get<std::vector<TokenId>>();
    CAPTURE(text);
    CHECK(tokenizer.encode(text) == ids);
    CHECK(tokenizer.decode(ids) == one.at("decoded").get<std::string>());
  }
}

}  // namespace
}  // namespace kvscope
