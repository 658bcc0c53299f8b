// The layers of a summary as CSV text, cell by cell.
#include <nlohmann/json.hpp>
#include <sstream>

#include "notebooks_export/result_csv.hpp"
#include "tests/support/test.hpp"

namespace kvscope::result_export_test {

TEST_CASE("layers of a summary become lines, null stays empty", "[export]") {
  const nlohmann::ordered_json summary = {
      {"layers", {{{"layer", 3}, {"mass", 0.5}}, {{"layer", 7}, {"mass", nullptr}}}}};
  std::ostringstream out;
  write_layers_csv(summary, out);
  REQUIRE(out.str() == "layer,mass\n3,0.5\n7,\n");
  std::ostringstream none;
  REQUIRE_THROWS_AS(write_layers_csv({{"totals", 1}}, none), ConfigError);
  out.setstate(std::ios::badbit);
  REQUIRE_THROWS_AS(write_layers_csv(summary, out), IoError);
}

TEST_CASE("texts with commas and quotes are quoted", "[export]") {
  std::ostringstream out;
  write_layers_csv({{"layers", {{{"name", "a,\"b\""}, {"list", {1, 2}}}}}}, out);
  REQUIRE(out.str() == "name,list\n\"a,\"\"b\"\"\",\"[1,2]\"\n");
}

}  // namespace kvscope::result_export_test
