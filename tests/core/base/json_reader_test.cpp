// JSON from outside: messages, depth and time are bounded.
#include "core/base/json_reader.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tests/support/test.hpp"

namespace kvscope::json_reader_test {

using Catch::Matchers::Message;

TEST_CASE("messages name field, file, expected and found") {
  const auto value = parse_json(R"({"a":{"n":7,"s":"x"}})", "f.json");
  const JsonObject a = JsonObject(value, "f.json").object("a");
  CHECK(a.integer("n", 0, 9) == 7);
  CHECK_THROWS_MATCHES(
      a.integer("n", 8, 9), FormatError,
      Message("a.n (f.json): expected an integer from 8 to 9, found the number 7"));
  CHECK_THROWS_MATCHES(a.boolean_or("s", false), FormatError,
                       Message("a.s (f.json): expected true or false, found the string \"x\""));
  CHECK_THROWS_MATCHES(a.string("t"), FormatError,
                       Message("a.t (f.json): expected a string, found nothing"));
}

TEST_CASE("numbers beyond 64 bits and repeated keys are refused") {
  const auto value = parse_json(R"({"u":18446744073709551615,"n":null})", "f.json");
  const JsonObject object(value, "f.json");
  CHECK_THROWS_AS(object.integer("u", 0, 9), FormatError);
  CHECK(object.integer_or("n", 0, 9, 3) == 3);
  CHECK(object.find("n") == nullptr);
  CHECK(object.has("n"));
  CHECK_SAYS_AS(FormatError, parse_json(R"({"a":{"b":1,"b":2}})", "f.json"), "\"b\" occurs twice");
  CHECK_THROWS_AS(parse_json("1e400", "f.json"), FormatError);
  CHECK_NOTHROW(parse_json(R"([{"b":1},{"b":2}])", "f.json"));
}

std::string nested(std::size_t depth, const std::string& open, const std::string& close) {
  std::string text;
  for (std::size_t i = 0; i < depth; ++i) text += open;
  text += "1";
  for (std::size_t i = 0; i < depth; ++i) text += close;
  return text;
}

TEST_CASE("brackets nest to a fixed depth, in lists and objects") {
  for (const auto& [open, close] :
       {std::pair<std::string, std::string>{"[", "]"}, {"{\"a\":", "}"}}) {
    const std::string allowed = nested(kMostJsonDepth, open, close);
    CHECK(parse_json(allowed, "f").dump() == allowed);
    CHECK(parse_ordered_json(allowed, "f").dump() == allowed);
    for (const std::size_t depth : {kMostJsonDepth + 1, std::size_t{1000000}}) {
      const std::string deep = nested(depth, open, close);
      CHECK_SAYS_AS(FormatError, parse_json(deep, "f.json"), "f.json: expected brackets nested");
      CHECK_THROWS_AS(parse_ordered_json(deep, "f.json"), FormatError);
      CHECK_THROWS_AS(parse_json(deep.substr(0, deep.size() / 2), "f.json"), FormatError);
    }
  }
}

TEST_CASE("long lists and wide objects take time that grows with the text") {
  // Quadratic readers take minutes here; the limit of time is the test program's.
  std::string rows = "[";
  std::string fields = "{";
  for (int i = 0; i < 200000; ++i) {
    rows += fmt::format("{}{{\"a\":{}}}", i == 0 ? "" : ",", i);
    fields += fmt::format("{}\"k{}\":{}", i == 0 ? "" : ",", i, i);
  }
  CHECK(parse_json(rows + "]", "f").size() == 200000);
  CHECK(parse_ordered_json(rows + "]", "f").size() == 200000);
  CHECK(parse_json(fields + "}", "f").size() == 200000);
  CHECK(parse_ordered_json(fields + "}", "f").size() == 200000);
  CHECK_THROWS_AS(parse_ordered_json(fields + ",\"k7\":0}", "f"), FormatError);
}

TEST_CASE("quoted text is printable and of bounded length") {
  CHECK(quote("a\"b\\") == R"("a\"b\\")");
  CHECK(quote("\x1b\xff") == R"("\x1b\xff")");
  CHECK(quote(std::string(100, 'x'), 3) == "\"xxx...\"");
}

}  // namespace kvscope::json_reader_test
