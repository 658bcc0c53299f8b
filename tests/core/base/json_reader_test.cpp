#include "core/base/json_reader.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/base/error.hpp"

namespace kvscope {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Message;
using Catch::Matchers::MessageMatches;

TEST_CASE("messages name field, file, expected and found", "[json_reader]") {
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

TEST_CASE("numbers beyond 64 bits and repeated keys are refused", "[json_reader]") {
  const auto value = parse_json(R"({"u":18446744073709551615,"n":null})", "f.json");
  const JsonObject object(value, "f.json");
  CHECK_THROWS_AS(object.integer("u", 0, 9), FormatError);
  CHECK(object.integer_or("n", 0, 9, 3) == 3);
  CHECK(object.find("n") == nullptr);
  CHECK(object.has("n"));
  CHECK_THROWS_MATCHES(parse_json(R"({"a":{"b":1,"b":2}})", "f.json"), FormatError,
                       MessageMatches(ContainsSubstring("\"b\" occurs twice")));
  CHECK_THROWS_AS(parse_json("1e400", "f.json"), FormatError);
  CHECK_NOTHROW(parse_json(R"([{"b":1},{"b":2}])", "f.json"));
}

TEST_CASE("quoted text is printable and of bounded length", "[json_reader]") {
  CHECK(quote("a\"b\\") == R"("a\"b\\")");
  CHECK(quote("\x1b\xff") == R"("\x1b\xff")");
  CHECK(quote(std::string(100, 'x'), 3) == "\"xxx...\"");
}

}  // namespace
}  // namespace kvscope
