// Results as JSON and CSV text, cell by cell.
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <sstream>

#include "core/base/error.hpp"
#include "notebooks_export/result_csv.hpp"
#include "notebooks_export/result_json.hpp"

namespace kvscope {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

MemoryResult small_result() {
  MemoryResult result;
  ResultInfo info;
  info.kind = "quest";
  info.trace_uuids = {"u-1"};
  info.trace_hashes = {"h-1"};
  info.trace_files = {"a \"run\".h5"};
  info.config = {{"budget", 32}};
  result.begin(info);
  result.declare({"layer", ResultType::i64, {2}, {"layer"}, "1", "layer"});
  result.write<std::int64_t>("layer", 0, std::vector<std::int64_t>{3, 7});
  result.declare({"step_pos", ResultType::i64, {3}, {"step_pos"}, "token", "position"});
  result.write<std::int64_t>("step_pos", 0, std::vector<std::int64_t>{10, 20, 30});
  result.declare({"mass", ResultType::f32, {2, 3}, {"layer", "step"}, "1", "mass"});
  result.write<float>("mass", 0, std::vector<float>{0.5f, 1.0f, 0.25f});
  result.write<float>("mass", 1, std::vector<float>{static_cast<float>(kNan), 0.125f, 0.0f});
  result.declare({"kept", ResultType::u8, {2}, {"page"}, "1", "kept"});
  result.add_plot({"plot_mass", "mass", {"layer", "step_pos"}, "mass"});
  result.finish({{"layers", {{{"layer", 3}, {"mass", 0.5}}, {{"layer", 7}, {"mass", nullptr}}}}});
  return result;
}

TEST_CASE("an array becomes one CSV line per element, with its coordinates", "[export]") {
  std::ostringstream out;
  write_array_csv(small_result(), "mass", out);
  REQUIRE(out.str() ==
          "layer,step_pos,mass\n3,10,0.5\n3,20,1\n3,30,0.25\n7,10,\n7,20,0.125\n7,30,0\n");
}

TEST_CASE("axes without coordinates count from 0; coordinates do not name themselves twice",
          "[export]") {
  std::ostringstream kept;
  write_array_csv(small_result(), "kept", kept);
  REQUIRE(kept.str() == "page,kept\n0,0\n1,0\n");
  std::ostringstream axis;
  write_array_csv(small_result(), "layer", axis);
  REQUIRE(axis.str() == "layer,value\n3,3\n7,7\n");
}

TEST_CASE("layers of a summary become lines, null stays empty", "[export]") {
  std::ostringstream out;
  write_layers_csv(small_result().summary(), out);
  REQUIRE(out.str() == "layer,mass\n3,0.5\n7,\n");
  std::ostringstream none;
  REQUIRE_THROWS_AS(write_layers_csv({{"totals", 1}}, none), ConfigError);
}

TEST_CASE("texts with commas and quotes are quoted", "[export]") {
  std::ostringstream out;
  write_layers_csv({{"layers", {{{"name", "a,\"b\""}, {"list", {1, 2}}}}}}, out);
  REQUIRE(out.str() == "name,list\n\"a,\"\"b\"\"\",\"[1,2]\"\n");
}

TEST_CASE("an unknown array and a broken stream are errors with a sentence", "[export]") {
  std::ostringstream out;
  REQUIRE_THROWS_AS(write_array_csv(small_result(), "nothing", out), ConfigError);
  out.setstate(std::ios::badbit);
  REQUIRE_THROWS_AS(write_array_csv(small_result(), "mass", out), IoError);
}

TEST_CASE("JSON text has null where a number is not finite, at any depth", "[export]") {
  const MemoryResult result = small_result();
  nlohmann::ordered_json summary;
  summary["totals"] = {{"kl", std::numeric_limits<double>::infinity()}, {"list", {1.5, kNan}}};
  const auto parsed =
      nlohmann::ordered_json::parse(result_json_text(result.info(), summary, /*indent=*/-1));
  REQUIRE(parsed["summary"]["totals"]["kl"].is_null());
  REQUIRE(parsed["summary"]["totals"]["list"][0] == 1.5);
  REQUIRE(parsed["summary"]["totals"]["list"][1].is_null());
  REQUIRE(parsed["kind"] == "quest");
  REQUIRE(parsed["traces"][0]["file"] == "a \"run\".h5");
  REQUIRE(parsed["config"]["budget"] == 32);
}

TEST_CASE("a file name that is not UTF-8 does not make the JSON text fail", "[export]") {
  ResultInfo info = small_result().info();
  info.trace_files = {"caf\xe9.h5"};
  REQUIRE_NOTHROW(nlohmann::ordered_json::parse(result_json_text(info, {})));
}

}  // namespace
}  // namespace kvscope
