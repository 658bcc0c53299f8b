// Tokens that only the files beside tokenizer.json name, against transformers' ids.
#include <nlohmann/json.hpp>

#include "core/model/tokenizer.hpp"
#include "tests/support/places.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::tokenizer_companions_test {

TEST_CASE("tokens that files beside tokenizer.json name have transformers' ids") {
  const auto golden = nlohmann::json::parse(
      read_file(testing::source_dir() / "tests/golden/tokenizer/companions.json"));
  for (const auto& item : golden.at("cases")) {
    INFO(item.at("name"));
    const TempDir dir;
    dir.write("tokenizer.json", golden.at("tokenizer").dump());
    for (const auto& [file, content] : item.at("files").items()) dir.write(file, content.dump());
    const Tokenizer tokenizer = Tokenizer::load(dir.path());
    for (std::size_t i = 0; i < golden.at("texts").size(); ++i) {
      INFO(golden.at("texts")[i]);
      CHECK(nlohmann::json(tokenizer.encode(golden.at("texts")[i].get<std::string>())) ==
            item.at("ids")[i]);
    }
    CHECK(tokenizer.not_followed().empty());
  }
}

TEST_CASE("files beside tokenizer.json: what is odd is refused, what is not followed is told") {
  const auto golden = nlohmann::json::parse(
      read_file(testing::source_dir() / "tests/golden/tokenizer/companions.json"));
  const auto load = [&](const char* file, const char* text) {
    const TempDir dir;
    dir.write("tokenizer.json", golden.at("tokenizer").dump());
    dir.write(file, text);
    return Tokenizer::load(dir.path());
  };
  CHECK(load("tokenizer_config.json", R"({"split_special_tokens": true})").not_followed() ==
        std::vector<std::string>{"split_special_tokens"});
  CHECK_NOTHROW(load("tokenizer_config.json",
                     R"({"model_specific_special_tokens": null, "extra_special_tokens": null})"));
  CHECK_NOTHROW(load("special_tokens_map.json", R"({"extra_special_tokens": null})"));
  const std::pair<const char*, const char*> odd[] = {
      {"tokenizer_config.json", "[]"},
      {"tokenizer_config.json", "{"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"1": {"content": 7}}})"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": 7})"},
      {"tokenizer_config.json", R"({"extra_special_tokens": [7]})"},
      {"tokenizer_config.json", R"({"model_specific_special_tokens": 7})"},
      {"tokenizer_config.json", R"({"model_specific_special_tokens": ["<x>"]})"},
      {"special_tokens_map.json", R"({"pad_token": {"content": ""}})"},
      {"added_tokens.json", R"({"<x>": "1"})"}};
  for (const auto& [file, text] : odd) {
    INFO(file << ": " << text);
    CHECK_THROWS_AS(load(file, text), Error);
  }
}

}  // namespace kvscope::test::tokenizer_companions_test
