// kvscope sweep --match and the figures that it feeds, run as a user runs them.
#include <map>

#include "tests/cli/run_program.hpp"

namespace kvscope::test::match_test {

struct MatchShop {
  TempDir dir;
  std::string trace = recording(200, 4);
  std::string file(const std::string& name) const { return dir.file(name); }
  Words sweep(const std::string& selectors, Words more) const {
    return with({"sweep", trace, "--phase", "decode", "--steps", "3", "--resamples", "20",
                 "--selector", selectors},
                more);
  }
};

TEST_CASE(
    "a sweep at equal cost says setting and cost in every row, in three formats and by workers") {
  const MatchShop shop;
  const std::string selectors = "full,oracle-topk,quest:page-size=4,oracle-topp,vattention";
  const RunSetup pinned{"", {"SOURCE_DATE_EPOCH=1700000000"}};
  for (const std::string extension : {".csv", ".json", ".h5"}) {
    const std::string one = shop.file("one" + extension);
    const Words words = shop.sweep(selectors, {"--match", "density=0.2", "--dense-layers", "0"});
    CHECK_HAS(ran(with(words, {"--out", one, "--threads", "1"}), pinned).out, "setting", "reached",
              "* vattention, density=0.2: not reached: the least is density=");
    const std::string by_two = shop.file("two" + extension);
    ran(with(words, {"--out", by_two, "--engine", "local", "--workers", "2"}), pinned);
    CHECK(read_file(by_two) == read_file(one));
  }
  const auto rows = nlohmann::json::parse(read_file(shop.file("one.json")));
  CHECK_HAS(rows["command_line"].get<std::string>(), "--match density=0.2");
  int n_ceilings = 0;
  for (const auto& row : rows["rows"]) {
    INFO(row.dump());
    CHECK(row["match"] == "density=0.2");
    CHECK(row["match_reached"].is_number());
    if (row["match_note"] != "") continue;
    CHECK(row["match_reached"].get<double>() == Approx(0.2).epsilon(0.0101));
    CHECK(row["knob"] != "");
    CHECK(row["lost_choosing"].get<double>() >= 0.0);
    CHECK(row["lost_dividing"].is_number());
    n_ceilings += row["selector"] == "ceiling" ? 1 : 0;
  }
  CHECK(n_ceilings > 0);
  const auto without =
      ran(shop.sweep("oracle-topk", {"--match", "density=0.2", "--no-ceiling", "--json"}));
  CHECK_THAT(without.out, !has("\"ceiling\""));
  // the figure, whatever the format, and its manifest
  for (const std::string extension : {".csv", ".json", ".h5"}) {
    const auto drawn = ran({"figure", "equal-cost", shop.file("one" + extension), "--format", "svg",
                            "--out", shop.file("figures" + extension.substr(1))});
    CHECK_HAS(drawn.err, "vattention (not reached");
    ran({"reproduce", shop.file("figures" + extension.substr(1)) + "/equal-cost.json"});
  }
  CHECK(read_file(shop.file("figurescsv/equal-cost.svg")) ==
        read_file(shop.file("figuresh5/equal-cost.svg")));
  ran({"figure", "budget", shop.file("one.csv"), "--metric", "mass", "--format", "svg", "--out",
       shop.file("curves")});
}

TEST_CASE("all stands for every method that the run can have; the others are named") {
  const MatchShop shop;
  const auto run =
      ran(shop.sweep("all,quest:page-size=4", {"--budget", "16", "--layers", "5", "--json"}));
  const auto report = run.json();
  std::string skipped;
  for (const auto& sentence : report["skipped"]) skipped += sentence.get<std::string>() + "\n";
  CHECK_HAS(skipped, "specattn needs a draft model", "kascade learns from",
            "xattention is not defined for decode");
  bool has_named = false;
  for (const auto& row : report["rows"]) {
    CHECK(row["selector"] != "quest");
    has_named = has_named || row["selector"] == "quest:page-size=4";
  }
  CHECK(has_named);
}

TEST_CASE("wrong matches end with one sentence that names what is taken") {
  const MatchShop shop;
  for (const std::string word :
       {"tokens=5", "density=0", "density=2", "density", "keys=0", "bytes=-1", "0.05"}) {
    refused(shop.sweep("quest", {"--match", word}), 2, {"density=X", "keys=N", "bytes=N"});
  }
  refused(shop.sweep("quest", {"--match", "density=0.1", "--budget", "16"}), 2,
          {"exclude each other"});
}

TEST_CASE("a sweep at equal predicted microseconds meets them on the card, and says so") {
  const MatchShop shop;
  const auto dense = ran(shop.sweep("full", {"--hardware", "xeon-w-2125", "--json"}));
  double dense_us = 0.0;
  double n_layers = 0.0;
  const auto dense_report = dense.json();  // outlives the loop over its rows
  for (const auto& row : dense_report.at("rows")) {
    if (row.at("layer").is_null() || !row.at("q_head").is_null() || !row.at("kv_head").is_null())
      continue;
    dense_us += row.at("predicted_us").get<double>();
    n_layers += 1.0;
  }
  REQUIRE(n_layers > 0.0);
  const double target = 0.9 * dense_us / n_layers;
  const std::string match = "us=" + std::to_string(target);
  const auto run = ran(shop.sweep("oracle-topk,streamingllm",
                                  {"--match", match, "--hardware", "xeon-w-2125", "--json"}));
  std::map<std::string, std::pair<double, double>> met;  // by method: sum over layers, layers
  const auto report = run.json();
  for (const auto& row : report.at("rows")) {
    CHECK(row.at("match").get<std::string>().starts_with("us="));
    if (row.at("layer").is_null() || !row.at("q_head").is_null() || !row.at("kv_head").is_null())
      continue;
    auto& [sum, n] = met[row.at("selector").get<std::string>()];
    sum += row.at("predicted_us").get<double>();
    n += 1.0;
    CHECK(row.at("match_reached").is_number());
  }
  for (const auto& row : report.at("rows")) {
    if (row.at("layer").is_null() || !row.at("q_head").is_null() || !row.at("kv_head").is_null())
      continue;
    const auto& [sum, n] = met.at(row.at("selector").get<std::string>());
    CHECK(row.at("match_reached").get<double>() == Approx(sum / n));  // the column of the rows
    if (row.at("match_note").get<std::string>().empty())
      CHECK(row.at("match_reached").get<double>() == Approx(target).epsilon(0.011));
  }
  refused(shop.sweep("quest", {"--match", "us=5"}), 2, {"--hardware"});
  for (const char* wrong : {"us=0", "us=-1", "us=", "us=x"})
    refused(shop.sweep("quest", {"--match", wrong, "--hardware", "h200"}), 2, {"us=X with X > 0"});
  refused(
      {"simulate", "perplexity", "--selector", "quest", "--match", "us=5", "--max-tokens", "64"}, 2,
      {"kvscope sweep --hardware"});
}

}  // namespace kvscope::test::match_test
