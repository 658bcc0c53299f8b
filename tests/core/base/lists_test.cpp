// Lists of numbers, methods and budgets as people type them.
#include "core/base/lists.hpp"

#include "core/selectors/spec_lists.hpp"
#include "tests/support/test.hpp"

namespace kvscope::lists_test {

using Numbers = std::vector<Index>;
using Words = std::vector<std::string>;

TEST_CASE("numbers and ranges come in order, once each") {
  CHECK(parse_index_list("0,3-5", "layers") == Numbers{0, 3, 4, 5});
  CHECK(parse_index_list("5,4-6,0", "layers") == Numbers{0, 4, 5, 6});
  for (const char* text : {"", "a", "1,", "-1", "3-2", "1-", "0-9999999999", "1000000", " 1", "1.5",
                           "99999999999999999999"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_index_list(text, "layers"), ConfigError);
  }
  CHECK_SAYS(parse_index_list("0,x", "--layers"),
             "--layers: expected numbers and ranges like 0,3-5, found \"x\"");
}

TEST_CASE("an assignment belongs to the method before it, in its last stage") {
  const auto texts_of = [](const Words& lists) {
    Words texts;
    for (const MethodSpec& spec : parse_methods(lists, "--selector")) texts.push_back(spec.text());
    return texts;
  };
  CHECK(texts_of({"quest,quoka:n-queries=8,pairing=rank", "full"}) ==
        Words{"quest", "quoka:n-queries=8,pairing=rank", "full"});
  CHECK(texts_of({"quoka,n-queries=8"}) == Words{"quoka:n-queries=8"});
  CHECK(texts_of({"keydiff@tokens=8+quest,page-size=32"}) ==
        Words{"keydiff@tokens=8+quest:page-size=32"});
  CHECK(texts_of({"quest:page-size=8@tokens=8+quoka,n-queries=8,dense-layers=2,full"}) ==
        Words{"quest:page-size=8@tokens=8+quoka:n-queries=8,dense-layers=2", "full"});
  CHECK_SAYS(parse_methods({"quest,,full"}, "--selector"),
             "--selector: expected names between the commas");
  CHECK_THROWS_AS(parse_methods({"page-size=32"}, "--selector"), ConfigError);
}

TEST_CASE("a bare number is a budget of the kind before it") {
  const std::vector<Budget> budgets = split_budgets({"64,128,ratio=0.25,0.5", "32"});
  Words texts;
  for (const Budget& budget : budgets) texts.push_back(budget.to_string());
  CHECK(texts == Words{"tokens=64", "tokens=128", "ratio=0.25", "ratio=0.5", "tokens=32"});
  CHECK_THROWS_AS(split_budgets({"tokens=64,"}), ConfigError);
}

}  // namespace kvscope::lists_test
