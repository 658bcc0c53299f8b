// Lists of a table's lines: filters, order, text.
#include "gui/model/results/table_view.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cmath>

#include "analysis/base/read_table.hpp"
#include "support/planted_trace.hpp"

namespace kvscope::gui::test::table_view_test {

using Rows = std::vector<std::uint32_t>;

Table sample() {
  return table_from_csv(
      "selector,layer,q_head,budget,budget_kind,mass\n"
      "quoka,0,1,64,tokens,0.5\n"
      "Quest,1,,128,tokens,0.25\n"
      "quest:page-size=32,2,3,0.9,p,\n"
      "\"odd, one\",3,4,64,pages,1e-9\n"
      "quoka,1,0,256,tokens,0.75\n",
      "t.csv");
}

Rows filtered(const std::string& column, const std::string& text) {
  return arrange_rows(sample(), {{{column, text}}, "", false}, {}).rows;
}

TEST_CASE("filters on words: contained in either case, exact, negated") {
  CHECK(filtered("selector", "QUEST") == Rows{1, 2});
  CHECK(filtered("selector", "=Quest") == Rows{1});
  CHECK(filtered("selector", "!quo") == Rows{1, 2, 3});
  CHECK(filtered("selector", "!") == Rows{0, 1, 2, 3, 4});
  CHECK(filtered("selector", "") == Rows{0, 1, 2, 3, 4});
  CHECK(filtered("selector", "nothing").empty());
  CHECK(filtered("unknown", "x") == Rows{0, 1, 2, 3, 4});
}

TEST_CASE("filters on numbers: equal, compared, in a range, empty; what is no filter is ignored") {
  CHECK(filtered("layer", "1") == Rows{1, 4});
  CHECK(filtered("layer", " >= 2 ") == Rows{2, 3});
  CHECK(filtered("layer", "!=1") == Rows{0, 2, 3});
  CHECK(filtered("mass", "<0.5") == Rows{1, 3});
  CHECK(filtered("mass", "0.25..0.5") == Rows{0, 1});
  CHECK(filtered("mass", "..0.5") == Rows{0, 1, 3});
  CHECK(filtered("mass", "empty") == Rows{2});
  CHECK(filtered("mass", "!empty") == Rows{0, 1, 3, 4});
  CHECK(filtered("mass", ">") == Rows{0, 1, 2, 3, 4});
  const Table table = sample();
  CHECK(is_valid_filter(table.at("mass"), ">"));
  CHECK_FALSE(is_valid_filter(table.at("mass"), ">x"));
  CHECK_FALSE(is_valid_filter(table.at("mass"), "1..x"));
  CHECK(filtered("mass", ">x") == Rows{0, 1, 2, 3, 4});
}

TEST_CASE("sorted by number and by word, both ways, empty cells last, equal ones in order") {
  const Table table = sample();
  const auto sorted = [&](const std::string& column, bool descending) {
    return arrange_rows(table, {{}, column, descending}, {}).rows;
  };
  CHECK(sorted("mass", false) == Rows{3, 1, 0, 4, 2});
  CHECK(sorted("mass", true) == Rows{4, 0, 1, 3, 2});
  CHECK(sorted("selector", false) == Rows{1, 3, 2, 0, 4});
  CHECK(sorted("layer", true) == Rows{3, 2, 1, 4, 0});
  CHECK(arrange_rows(table, {{{"layer", ">0"}, {"selector", "quo"}}, "mass", true}, {}).rows ==
        Rows{4});
}

TEST_CASE("CSV holds every digit and quotes, and reads back") {
  Table table("t");
  table.add_numbers("mass", {1.0 / 3.0, std::nan(""), 2.0});
  table.add_text("name", "with, comma and \"quotes\"");
  const Rows rows = {2, 1, 0};
  const std::vector<std::string> columns = {"name", "mass"};
  const std::string csv = rows_csv(table, rows, columns);
  const Table back = table_from_csv(csv, "back");
  REQUIRE(back.n_rows() == 3);
  CHECK(back.text("name").at(0) == "with, comma and \"quotes\"");
  CHECK(back.numbers("mass")[2] == 1.0 / 3.0);
  CHECK(std::isnan(back.numbers("mass")[1]));
  CHECK(short_cell(table.at("mass"), 0) == "0.333333");
  CHECK(short_cell(table.at("mass"), 1).empty());
  CHECK(short_cell(table.at("mass"), 2) == "2");
}

}  // namespace kvscope::gui::test::table_view_test
