// Tables from CSV and JSON, well formed and not, and below each other.
#include "analysis/base/read_table.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "analysis/base/json_rows.hpp"
#include "core/base/json.hpp"
#include "core/base/progress.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::table_test {

using Texts = std::vector<std::string>;

Texts words_of(const Table& table, const std::string& name) {
  const TextColumn& column = table.text(name);
  Texts words;
  for (std::size_t row = 0; row < table.n_rows(); ++row) words.push_back(column.at(row));
  return words;
}

TEST_CASE("CSV becomes columns of numbers and text") {
  const Table table = table_from_csv(
      "\xEF\xBB\xBFname,budget,note,config_hash\r\nquest,64,\"a, "
      "\"\"b\"\"\",12e4\r\n\r\nfull,,\"two\nlines\",34\n",
      "x.csv");
  REQUIRE(table.n_rows() == 2);
  CHECK(words_of(table, "name") == Texts{"quest", "full"});
  CHECK(table.at("budget").numbers[0] == 64.0);
  CHECK(std::isnan(table.at("budget").numbers[1]));
  CHECK(words_of(table, "note") == Texts{"a, \"b\"", "two\nlines"});
  CHECK(words_of(table, "config_hash") == Texts{"12e4", "34"});  // never a number
  CHECK(table.at("budget").cell(0) == "64");
  CHECK(table.at("budget").cell(1).empty());
}

TEST_CASE("one word makes a column text, wherever it stands") {
  const Table table = table_from_csv("a,b\n1,0.50\n2,x\n", "x.csv");
  CHECK(words_of(table, "b") == Texts{"0.50", "x"});
  CHECK(!table.at("a").is_text);
}

TEST_CASE("a last field may be empty, with and without a line's end") {
  for (const char* text : {"a,b\n1,\n", "a,b\n1,"}) {
    const Table table = table_from_csv(text, "x.csv");
    REQUIRE(table.n_rows() == 1);
    CHECK(std::isnan(table.at("b").numbers[0]));
  }
}

TEST_CASE("columns are asked for by type, and refused by name") {
  Table table = table_from_csv("a,\"b,c\",d\r\n1,\"x \"\"y\"\"\",\r\n,z,2\n", "t.csv");
  CHECK(std::isnan(table.numbers("a")[1]));
  CHECK(table.text("b,c").at(0) == "x \"y\"");
  CHECK(table.numbers("d")[1] == 2.0);
  CHECK(table.has("a"));
  CHECK_FALSE(table.has("b,c"));
  CHECK_FALSE(table.has_text("a"));
  CHECK_SAYS_AS(ConfigError, table.numbers("x"), "it has a, b,c, d");
  CHECK_THROWS_AS(table.text("a"), ConfigError);
  CHECK_THROWS_AS(table.add_numbers("a", {1.0, 2.0}), ConfigError);
  CHECK_THROWS_AS(table.add_numbers("e", {1.0}), ShapeError);
}

TEST_CASE("broken CSV is refused with its line") {
  const auto refuses = [](const char* text, const char* words) {
    INFO(text);
    CHECK_SAYS_AS(FormatError, table_from_csv(text, "x.csv"), words);
  };
  refuses("", "x.csv: empty");
  refuses("a,b\n1,2\n3\n", "line 3: expected 2 fields as in the header, found 1");
  refuses("a,b\n1,\"2\n", "line 2: a quoted field has no closing quote");
  refuses("a,b\n\"1\"2,3\n", "line 2: expected a comma");
  refuses("a,a\n1,2\n", "occurs twice");
}

TEST_CASE(
    "wide tables are read in time that grows with their size, and errors name a few columns") {
  std::string csv;
  for (int c = 0; c < 200000; ++c) csv += fmt::format("{}k{}", c == 0 ? "" : ",", c);
  std::string line(199999, ',');
  const Table table = table_from_csv(csv + "\n" + line + "\n", "x.csv");
  CHECK(table.columns().size() == 200000);
  CHECK(table.find("k199999") != nullptr);
  try {
    (void)table.at("none");
    FAIL("expected an error");
  } catch (const ConfigError& error) {
    CHECK(std::string(error.what()).size() < 400);
    CHECK_HAS(error.what(), "and 199988 more");
  }
  CHECK_THROWS_AS(table_from_csv(csv + ",k7\n", "x.csv"), FormatError);

  nlohmann::json row;
  for (int c = 0; c < 60000; ++c) row[fmt::format("k{}", c)] = c;
  CHECK(table_from_json(nlohmann::json::array({row}), "x.json").columns().size() == 60000);
  nlohmann::json sparse = nlohmann::json::array();
  for (int c = 0; c < 20000; ++c) sparse.push_back({{fmt::format("k{}", c), 1}});
  CHECK_SAYS_AS(FormatError, table_from_json(sparse, "x.json"), "no rows of one table");
}

TEST_CASE("names and words from files become clean text; marked formulas read as they were") {
  const Table table = table_from_csv("a\xff,b\n\xed\xa0\x80,'=1+1\nx\x1b[31m,y\n", "x.csv");
  const std::string mark = "\xEF\xBF\xBD";
  CHECK(table.columns()[0].name == "a" + mark);
  CHECK(table.columns()[0].cell(0) == mark + mark + mark);
  CHECK(table.columns()[0].cell(1) == "x" + mark + "[31m");
  CHECK(table.columns()[1].cell(0) == "=1+1");
}

TEST_CASE("JSON rows are found in lists, results and summaries, and are CSV with quotes") {
  for (const char* text :
       {R"([{"layer": 0, "mass": 0.5, "name": "x"}, {"layer": 1, "mass": null, "more": [1]}])",
        R"({"kind": "sweep", "rows": [{"layer": 0, "mass": 0.5, "name": "x"}, {"layer": 1}]})",
        R"({"summary": {"layers": [{"layer": 0, "mass": 0.5, "name": "x"}, {"layer": 1}]}})"}) {
    const Table table = table_from_json(nlohmann::json::parse(text), "x.json");
    REQUIRE(table.n_rows() == 2);
    CHECK(table.at("layer").numbers == std::vector<double>{0.0, 1.0});
    CHECK(table.at("mass").numbers[0] == 0.5);
    CHECK(std::isnan(table.at("mass").numbers[1]));
    CHECK(words_of(table, "name") == Texts{"x", ""});
    CHECK(table.find("more") == nullptr);
  }
  CHECK_THROWS_AS(table_from_json(nlohmann::json::parse("{\"a\": 1}"), "x"), FormatError);
  CHECK_THROWS_AS(table_from_json(nlohmann::json::parse("[1]"), "x"), FormatError);
  CHECK(rows_csv(Json::array({{{"name", "a,\"b\""}, {"list", {1, 2}}}})) ==
        "name,list\n\"a,\"\"b\"\"\",\"[1,2]\"\n");
  CHECK(rows_csv(Json::array(), {"a", "b"}) == "a,b\n");
}

TEST_CASE("tables of different columns stand below each other") {
  Table one = table_from_csv("a,b\n1,2\n", "one");
  one.append(table_from_csv("b,c\nx,3\n", "two"));
  REQUIRE(one.n_rows() == 2);
  CHECK(one.at("a").numbers[0] == 1.0);
  CHECK(std::isnan(one.at("a").numbers[1]));
  CHECK(words_of(one, "b") == Texts{"2", "x"});
  CHECK(std::isnan(one.at("c").numbers[0]));
  CHECK(one.at("c").numbers[1] == 3.0);
  CHECK_SAYS_AS(ConfigError, one.at("d"), "a, b, c");
  Table none("none");
  none.append(one);
  none.add_text("file", std::string("one"));
  CHECK(none.n_rows() == 2);
  CHECK(words_of(none, "file") == Texts{"one", "one"});
}

}  // namespace kvscope::table_test
