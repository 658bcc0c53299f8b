// Lists, numbers and words as people type them.
#include "core/base/lists.hpp"

#include "core/base/csv_text.hpp"
#include "core/base/number_text.hpp"
#include "core/base/suggest.hpp"
#include "core/selectors/spec_lists.hpp"
#include "tests/support/test.hpp"

namespace kvscope::lists_test {

using Numbers = std::vector<Index>;
using Words = std::vector<std::string>;

TEST_CASE("words between separators keep empty ones") {
  CHECK(split_words("a,,b", ',') == Words{"a", "", "b"});
  CHECK(split_words("", ',') == Words{""});
  CHECK(split_words("a|", '|') == Words{"a", ""});
}

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

TEST_CASE("a number is the whole word or none") {
  CHECK(number_from<Index>("12") == 12);
  CHECK(number_from<double>("1e3") == 1000.0);
  CHECK_FALSE(number_from<Index>("12 "));
  CHECK_FALSE(number_from<Index>(""));
  CHECK_FALSE(number_from<std::int8_t>("300"));
}

TEST_CASE("numbers are shown with their unit, and written so that they read back") {
  CHECK(bytes_text(1536.0 * 1024) == "1.5 MiB");
  CHECK(bytes_text(96) == "96 bytes");
  CHECK(seconds_text(0.85) == "850 ms");
  CHECK(seconds_text(125) == "2 min 5 s");
  CHECK(number_text(0.123456) == "0.1235");
  CHECK(number_text(std::nan("")) == "-");
  CHECK(percent_text(0.774) == "77.4 %");
  CHECK(csv_number(0.1f) == "0.1");
  CHECK(csv_number(1.0 / 3.0) == "0.3333333333333333");
  CHECK(csv_number(std::nan("")).empty());
  CHECK(csv_field("a b") == "a b");
  CHECK(csv_field("a,\"b\"") == "\"a,\"\"b\"\"\"");
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

TEST_CASE("the nearest word is suggested, a far one is not") {
  const Words known = {"latency", "budget", "needle"};
  CHECK(did_you_mean("latncy", known) == ". Did you mean latency?");
  CHECK(did_you_mean("budgets", known) == ". Did you mean budget?");
  CHECK(did_you_mean("perplexity", known).empty());
  CHECK(did_you_mean("H100-SXM", {"h100", "h100-sxm"}) == ". Did you mean h100-sxm?");
}

}  // namespace kvscope::lists_test
