// The layers of a summary as CSV text.
#include <nlohmann/json.hpp>
#include <sstream>

#include "notebooks_export/result_csv.hpp"
#include "tests/support/test.hpp"

namespace kvscope::result_export_test {

TEST_CASE("texts with commas and quotes are quoted", "[export]") {
  std::ostringstream out;
  write_layers_csv({{"layers", {{{"name", "a,\"b\""}, {"list", {1, 2}}}}}}, out);
  REQUIRE(out.str() == "name,list\n\"a,\"\"b\"\"\",\"[1,2]\"\n");
}

}  // namespace kvscope::result_export_test
