#include "notebooks_export/csv.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "core/base/error.hpp"

namespace kvscope {
namespace {

using Json = nlohmann::ordered_json;

TEST_CASE("a CSV field is quoted only when it has to be") {
  CHECK(csv_field("plain text") == "plain text");
  CHECK(csv_field("a,b") == "\"a,b\"");
  CHECK(csv_field("say \"x\"") == "\"say \"\"x\"\"\"");
  CHECK(csv_field("two\nlines") == "\"two\nlines\"");
}

TEST_CASE("rows become lines; columns keep their first order; gaps and NaN are empty") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const Json rows = {{{"layer", 0}, {"kl", 0.5}, {"name", "a,b"}},
                     {{"layer", 1}, {"kl", nan}, {"extra", true}, {"list", {1, 2}}},
                     {{"layer", 2}, {"kl", -inf}}};
  CHECK(csv_from_rows(rows) ==
        "layer,kl,name,extra\n"
        "0,0.5,\"a,b\",\n"
        "1,,,true\n"
        "2,,,\n");
}

TEST_CASE("anything but an array of objects is refused") {
  CHECK_THROWS_AS(csv_from_rows(Json{{"a", 1}}), ConfigError);
  CHECK_THROWS_AS(csv_from_rows(Json::array({1, 2})), ConfigError);
}

}  // namespace
}  // namespace kvscope
