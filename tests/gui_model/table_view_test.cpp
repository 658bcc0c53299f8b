// Lists of a table's lines: filters, order, text, and where a line leads.
#include "gui/model/results/table_view.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cmath>

#include "analysis/base/read_table.hpp"
#include "core/base/error.hpp"
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

TEST_CASE("a random table is sorted as the standard library sorts it; a million lines are quick") {
  kvscope::test::Random random(7);
  Table table("big");
  std::vector<double> values;
  for (int i = 0; i < 1'000'000; ++i) values.push_back(std::floor(random.uniform() * 1e5));
  table.add_numbers("x", values);
  const auto begin = std::chrono::steady_clock::now();
  const RowOrder order = arrange_rows(table, {{{"x", ">=50000"}}, "x", false}, {});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  CHECK(seconds.count() < 5.0);
  CHECK(order.rows.size() ==
        static_cast<std::size_t>(
            std::count_if(values.begin(), values.end(), [](double v) { return v >= 50000.0; })));
  bool is_sorted = true;
  for (std::size_t i = 1; i < order.rows.size(); ++i) {
    const double before = values[order.rows[i - 1]];
    const double here = values[order.rows[i]];
    is_sorted =
        is_sorted && (before < here || (before == here && order.rows[i - 1] < order.rows[i]));
  }
  CHECK(is_sorted);
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

TEST_CASE("a line leads to its layer, head, method and budget") {
  const Table table = sample();
  const RowTarget first = target_of(table, 0);
  CHECK(first.layer == Index{0});
  CHECK(first.q_head == Index{1});
  CHECK(first.selector == "quoka");
  CHECK(first.budget == Index{64});
  CHECK(first.words() == "layer 0, query head 1, quoka, budget 64");
  const RowTarget second = target_of(table, 1);  // "Quest" is no method; its head is empty
  CHECK_FALSE(second.selector);
  CHECK_FALSE(second.q_head);
  const RowTarget third = target_of(table, 2);
  CHECK(third.nucleus == 0.9);
  CHECK_FALSE(third.budget);
  CHECK(third.selector == "quest:page-size=32");
  const RowTarget fourth = target_of(table, 3);  // pages are no tokens
  CHECK_FALSE(fourth.budget);
  CHECK_FALSE(fourth.selector);
  CHECK(target_of(table, 99).empty());
  Table plain("plain");
  plain.add_numbers("value", {1.5});
  CHECK(target_of(plain, 0).empty());
}

TEST_CASE("going there is one step of undo") {
  Cache cache(1 << 20);
  JobRunner jobs({}, 1);
  Session session({jobs, cache}, {});
  go_to(session, target_of(sample(), 4));
  CHECK(session.selection().selector == "quoka");
  CHECK(session.selection().layer == 1);
  CHECK(session.parameters().budget == 256);
  CHECK(is_about_selection(sample(), 4, session));
  CHECK_FALSE(is_about_selection(sample(), 0, session));
  CHECK_FALSE(is_about_selection(sample(), 1, session));
  go_to(session, {});
  REQUIRE(session.can_undo());
}

TEST_CASE("columns of HDF5 files, which come by alphabet, are read names first") {
  Table table("t");
  table.add_numbers("budget", {1.0});
  table.add_numbers("kept", {1.0});
  table.add_numbers("layer", {1.0});
  table.add_numbers("mass_mean", {1.0});
  table.add_text("selector", "quoka");
  CHECK(reading_order(table) == std::vector<std::size_t>{4, 0, 2, 1, 3});
  CHECK(reading_order(sample()) == std::vector<std::size_t>{0, 1, 2, 3, 4, 5});
}

}  // namespace kvscope::gui::test::table_view_test
