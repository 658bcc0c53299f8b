// Rows from CSV and JSON, well formed and not.
#include "notebooks_export/tidy_table.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "core/base/error.hpp"

namespace kvscope {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

using Texts = std::vector<std::string>;

TEST_CASE("CSV becomes columns of numbers and text") {
  const TidyTable table = tidy_table_from_csv(
      "\xEF\xBB\xBFname,budget,note,config_hash\r\nquest,64,\"a, "
      "\"\"b\"\"\",12e4\r\n\r\nfull,,\"two\nlines\",34\n",
      "x.csv");
  REQUIRE(table.n_rows() == 2);
  CHECK(table.at("name").texts == Texts{"quest", "full"});
  CHECK(table.at("budget").numbers[0] == 64.0);
  CHECK(std::isnan(table.at("budget").numbers[1]));
  CHECK(table.at("note").texts == Texts{"a, \"b\"", "two\nlines"});
  CHECK(table.at("config_hash").texts == Texts{"12e4", "34"});  // never a number
  CHECK(table.text(table.at("budget"), 0) == "64");
  CHECK(table.text(table.at("budget"), 1).empty());
}

TEST_CASE("one word makes a column text, wherever it stands") {
  const TidyTable table = tidy_table_from_csv("a,b\n1,0.50\n2,x\n", "x.csv");
  CHECK(table.at("b").texts == Texts{"0.50", "x"});
  CHECK(!table.at("a").is_text);
}

TEST_CASE("a last field may be empty, with and without a line's end") {
  for (const char* text : {"a,b\n1,\n", "a,b\n1,"}) {
    const TidyTable table = tidy_table_from_csv(text, "x.csv");
    REQUIRE(table.n_rows() == 1);
    CHECK(std::isnan(table.at("b").numbers[0]));
  }
}

TEST_CASE("broken CSV is refused with its line") {
  const auto refuses = [](const char* text, const char* words) {
    INFO(text);
    CHECK_THROWS_MATCHES(tidy_table_from_csv(text, "x.csv"), FormatError,
                         MessageMatches(ContainsSubstring(words)));
  };
  refuses("", "x.csv: empty");
  refuses("a,b\n1,2\n3\n", "line 3: expected 2 fields as in the header, found 1");
  refuses("a,b\n1,\"2\n", "line 2: a quoted field has no closing quote");
  refuses("a,b\n\"1\"2,3\n", "line 2: expected a comma");
  refuses("a,a\n1,2\n", "occurs twice");
}

TEST_CASE("JSON rows are found in lists, results and summaries") {
  for (const char* text :
       {R"([{"layer": 0, "mass": 0.5, "name": "x"}, {"layer": 1, "mass": null, "more": [1]}])",
        R"({"kind": "sweep", "rows": [{"layer": 0, "mass": 0.5, "name": "x"}, {"layer": 1}]})",
        R"({"summary": {"layers": [{"layer": 0, "mass": 0.5, "name": "x"}, {"layer": 1}]}})"}) {
    const TidyTable table = tidy_table_from_json(nlohmann::json::parse(text), "x.json");
    REQUIRE(table.n_rows() == 2);
    CHECK(table.at("layer").numbers == std::vector<double>{0.0, 1.0});
    CHECK(table.at("mass").numbers[0] == 0.5);
    CHECK(std::isnan(table.at("mass").numbers[1]));
    CHECK(table.at("name").texts == Texts{"x", ""});
    CHECK(table.find("more") == nullptr);
  }
  CHECK_THROWS_AS(tidy_table_from_json(nlohmann::json::parse("{\"a\": 1}"), "x"), FormatError);
  CHECK_THROWS_AS(tidy_table_from_json(nlohmann::json::parse("[1]"), "x"), FormatError);
}

TEST_CASE("tables of different columns stand below each other") {
  TidyTable one = tidy_table_from_csv("a,b\n1,2\n", "one");
  one.append(tidy_table_from_csv("b,c\nx,3\n", "two"));
  REQUIRE(one.n_rows() == 2);
  CHECK(one.at("a").numbers[0] == 1.0);
  CHECK(std::isnan(one.at("a").numbers[1]));
  CHECK(one.at("b").texts == Texts{"2", "x"});
  CHECK(std::isnan(one.at("c").numbers[0]));
  CHECK(one.at("c").numbers[1] == 3.0);
  CHECK_THROWS_MATCHES(one.at("d"), ConfigError, MessageMatches(ContainsSubstring("a, b, c")));
}

}  // namespace
}  // namespace kvscope
