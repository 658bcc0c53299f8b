// Members of JSON objects as texts, beside what the parser says of them.
#include "core/base/json_members.hpp"

#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::json_members_test {

TEST_CASE("the members of an object are the texts of their values") {
  const Json object = {{"key", "a,\"b\\\" ]}{["},
                       {"n", -1.5e-3},
                       {"list", {1, {2, "]"}, Json::array(), Json::object()}},
                       {"table", {{"x", {{"y", "}"}}}, {"z", nullptr}}},
                       {"", true},
                       {"last", ""}};
  for (const int indent : {-1, 2}) {
    const std::string text = object.dump(indent);
    Json again = Json::object();
    for_each_json_member(text, "here", [&](std::string_view name, std::string_view value) {
      again[std::string(name)] = parse_ordered_json(value, "here");
    });
    CHECK(again == object);
  }
}

TEST_CASE("a text that is no whole object is refused with its place, wherever it is cut") {
  const std::string text = R"({"a": [1, "x\"]"], "b": {"c": 2}, "d": 3})";
  for (std::size_t n = 0; n < text.size(); ++n) {
    INFO(text.substr(0, n));
    CHECK_SAYS(for_each_json_member(text.substr(0, n), "here", [](auto, auto) {}),
               "here: expected");
  }
  for (const char* wrong : {"[1]", "7", "{a: 1}", "{\"a\" 1}", "{\"a\":}", "{\"a\": 1 \"b\": 2}",
                            "{\"a\":1,}", "{\"a\":1,,}", "{\"a\\"})
    CHECK_THROWS_AS(for_each_json_member(wrong, "here", [](auto, auto) {}), FormatError);
}

}  // namespace kvscope::test::json_members_test
