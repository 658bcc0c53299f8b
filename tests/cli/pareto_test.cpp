// kvscope pareto: times of a report of kvscope cost or of a sweep, losses of every metric, the
// three formats, and what is refused.

#include "analysis/base/paired_numbers.hpp"
#include "notebooks_export/metric_info.hpp"
#include "tests/cli/run_program.hpp"

namespace kvscope::test::pareto_test {

const Words kMethods = {"--selector", "full,quest:page-size=4,streamingllm,random",
                        "--budget",   "32,64",
                        "--phase",    "decode",
                        "--steps",    "4"};

nlohmann::json row_of(const nlohmann::json& report, const std::string& selector, double budget) {
  for (const auto& row : report.at("rows")) {
    if (row.at("selector") == selector &&
        (row.at("budget").is_null() || row.at("budget") == budget))
      return row;
  }
  FAIL("no row of " << selector);
  return {};
}

std::string costs_of(const TempDir& dir, const std::string& trace) {
  const std::string out = dir.file("cost.json");
  ran(with(with({"cost", trace, "--hardware", "h100-sxm,rtx-4090", "--context", "65536"}, kMethods),
           {"--out", out}));
  return out;
}

TEST_CASE("pareto: times and losses of a sweep, with its own times or those of kvscope cost") {
  const TempDir dir;
  const std::string trace = recording(200, 4);
  const std::string sweep = dir.file("sweep.h5");
  ran(with(with({"sweep", trace, "--hardware", "h100-sxm"}, kMethods), {"--out", sweep}));
  const std::string costs = costs_of(dir, trace);
  const auto own = ran({"pareto", sweep, "--hardware", "h100-sxm", "--metric", "mass", "--json"});
  const auto at_cost = ran(
      {"pareto", sweep, "--hardware", "h100-sxm", "--metric", "mass", "--costs", costs, "--json"});
  const nlohmann::json report = own.json();
  REQUIRE(report.at("rows").size() == 7);
  for (const auto& [column, value] : report.at("rows").front().items()) {
    INFO(column);
    if (!value.is_string()) CHECK(find_metric(column).has_value());
  }
  for (const auto& row : report.at("rows")) {
    const double budget = row.at("budget").is_null() ? 0.0 : row.at("budget").get<double>();
    const auto other = row_of(at_cost.json(), row.at("selector"), budget);
    CHECK(row.at("predicted_us").get<double>() ==
          Approx(other.at("predicted_us").get<double>()).epsilon(1e-9));
    CHECK(row.at("loss") == other.at("loss"));
    CHECK((row.at("on_front") == "reference") == (row.at("selector") == "random"));
    CHECK(row.at("loss_low").get<double>() <= row.at("loss").get<double>());
    CHECK(row.at("loss").get<double>() <= row.at("loss_high").get<double>());
  }
  // Far away everything is faster than dense, and the same methods lose the same.
  const auto far = ran({"pareto", sweep, "--hardware", "rtx-4090", "--metric", "mass", "--costs",
                        costs, "--context", "65536", "--loss", "0.9", "--json"});
  CHECK(row_of(far.json(), "quest:page-size=4", 32).at("predicted_speedup") > 1.0);
  CHECK_HAS(far.json().at("answer").get<std::string>(), "RTX 4090", "65536 tokens",
            "may lose more there");
}

TEST_CASE("pareto: perplexity in all formats, a figure and a table") {
  const TempDir dir;
  const std::string costs = costs_of(dir, recording(200, 4));
  const std::string loss = dir.file("ppl.json");
  ran({"simulate", "perplexity", "--selector", "full,quest:page-size=4,streamingllm", "--budget",
       "32,64", "--max-tokens", "60", "--mode", "decode", "--out", loss});
  std::ifstream in(loss);
  const auto measured = nlohmann::json::parse(in);
  for (const std::string ending : {".json", ".csv", ".h5"}) {
    const std::string out = dir.file("pareto" + ending);
    const auto run =
        ran({"pareto", loss, "--costs", costs, "--hardware", "h100-sxm", "--out", out, "--json"});
    // of 60 tokens a budget of 64 leaves none out: a loss of 0 says nothing
    CHECK(run.json().at("rows").size() == 3);
    CHECK(run.json().at("skipped").size() == 2);
    CHECK_HAS(run.err, "left out: streamingllm tokens=64: it left no key out");
    CHECK(row_of(run.json(), "streamingllm", 32).at("loss") ==
          row_of(measured, "streamingllm", 32).at("relative_increase"));
    CHECK_HAS(run.json().at("answer").get<std::string>(), "loss measured at 60 tokens");
    ran({"figure", "pareto", out, "--format", "svg", "--overwrite", "--out", dir.file("figures")});
    const auto table = ran({"table", "--rows", "selector", "--columns", "budget", "--value",
                            "loss,predicted_speedup", out});
    CHECK_HAS(table.out, "StreamingLLM");
  }
}

TEST_CASE("pareto: accuracy by paired intervals where the result has them") {
  const TempDir dir;
  const std::string costs = costs_of(dir, recording(200, 4));
  const auto row = [](const char* selector, int budget, double accuracy, double low, double high) {
    nlohmann::json one = {{"model", "verifier"},  {"selector", selector}, {"budget_kind", "tokens"},
                          {"budget", budget},     {"accuracy", accuracy}, {"accuracy_low", low},
                          {"accuracy_high", high}};
    if (budget == 0) one["budget_kind"] = "none", one["budget"] = nullptr;
    return one;
  };
  nlohmann::json report = {
      {"kind", "simulate-ruler"},
      {"rows",
       {row("full", 0, 0.9, 0.8, 0.96), row("streamingllm", 32, 0.7, 0.6, 0.8),
        row("streamingllm", 64, 0.8, 0.7, 0.9), row("quest:page-size=4", 32, 0.9, 0.8, 0.96)}},
      {"outcomes", nlohmann::json::array()}};
  for (int i = 0; i < 50; ++i) {  // streamingllm loses ten of full's 45, quest none
    report["outcomes"].push_back({{"scores",
                                   {{"full", {i < 45 ? 1.0 : 0.0}},
                                    {"streamingllm tokens=32", {i < 35 ? 1.0 : 0.0}},
                                    {"quest:page-size=4 tokens=32", {i < 45 ? 1.0 : 0.0}}}}});
  }
  const std::string file = dir.file("ruler.json");
  std::ofstream(file) << report.dump();
  const auto run = ran({"pareto", file, "--costs", costs, "--hardware", "h100-sxm", "--metric",
                        "accuracy", "--json"});
  const auto paired = row_of(run.json(), "streamingllm", 32);
  CHECK(paired.at("loss").get<double>() == Approx(0.2));
  const std::vector<double> differences = [] {
    std::vector<double> of(50, 0.0);
    std::fill_n(of.begin(), 10, 1.0);
    return of;
  }();
  const Interval expected = paired_interval(differences, 0.95);
  CHECK(paired.at("loss_low").get<double>() == Approx(expected.low));
  CHECK(paired.at("loss_high").get<double>() == Approx(expected.high));
  CHECK(expected.low > 0.08);
  CHECK(expected.high < 0.34);
  // no prompt told these apart, of 50
  const double most = 1.96 * 1.96 / (50.0 + 1.96 * 1.96);
  CHECK(row_of(run.json(), "quest:page-size=4", 32).at("loss_low").get<double>() ==
        Approx(-most).epsilon(1e-3));
  CHECK(row_of(run.json(), "quest:page-size=4", 32).at("loss_high").get<double>() ==
        Approx(most).epsilon(1e-3));
  const auto apart = row_of(run.json(), "streamingllm", 64);
  CHECK(apart.at("loss_low").get<double>() == Approx(0.1 - std::hypot(0.1, 0.1)));
  CHECK(apart.at("loss_high").get<double>() == Approx(0.1 + std::hypot(0.06, 0.1)));
}

TEST_CASE("pareto refuses what it cannot answer in one sentence and writes nothing") {
  const TempDir dir;
  const std::string out = dir.file("out.json");
  const std::string costs = costs_of(dir, recording(200, 4));
  const auto file = [&](const char* name, const char* text) {
    std::ofstream(dir.path() / name) << text;
    return dir.file(name);
  };
  const std::string head = "model,selector,budget_kind,budget,protocol,relative_increase\n";
  const std::string good = file(
      "good.csv",
      (head + "verifier,full,none,,decode,0\nverifier,streamingllm,tokens,32,decode,.1\n").c_str());
  const std::string mixed = file(
      "mixed.csv", (head + "a,full,none,,decode,0\nb,streamingllm,tokens,32,decode,.1\n").c_str());
  const std::string others = file(
      "others.csv", (head + "a,full,none,,decode,0\na,streamingllm,tokens,32,decode,.1\n").c_str());
  const std::string chunks =
      file("chunks.csv",
           (head + "verifier,full,none,,prefill,0\nverifier,streamingllm,tokens,32,prefill,.1\n")
               .c_str());
  const std::string alone =
      file("alone.csv", (head + "verifier,streamingllm,tokens,32,decode,.1\n").c_str());
  const std::vector<std::pair<Words, std::string>> cases = {
      {{good}, "kvscope cost TRACE --hardware h100-sxm"},
      {{good, "--costs", costs, "--metric", "mass"}, "no mass in it"},
      {{good, "--costs", good}, "expected what kvscope cost --out wrote"},
      {{good, "--costs", costs, "--context", "4096"}, "has no times of h100-sxm at 4096 tokens"},
      {{good, "--costs", costs, "--batch", "2"}, "batch 2"},
      {{good, "--context", "4096"}, "--context needs --costs"},
      {{good, "--costs", costs, "--loss", "2"}, "--loss"},
      {{mixed, "--costs", costs}, "several models (a, b)"},
      {{others, "--costs", costs}, "the results are of a"},
      {{chunks, "--costs", costs}, "of decode, the results are of prefill"},
      {{good, chunks, "--costs", costs}, "of prefill and of decode"},
      {{alone, "--costs", costs}, "no row of full attention"}};
  for (const auto& [words, part] : cases) {
    const auto run =
        kvscope_run(with(with({"pareto", "--hardware", "h100-sxm"}, words), {"--out", out}));
    INFO(run.err);
    CHECK(run.code != 0);
    CHECK(run.err_is_one_line());
    CHECK_HAS(run.err, part);
    CHECK_FALSE(std::filesystem::exists(out));
  }
  CHECK_HAS(kvscope_run({"pareto", good, "--hardware", "h1000"}).err, "h1000");
  CHECK_HAS(kvscope_run({"pareto", good}).err, "--hardware is missing");
}

}  // namespace kvscope::test::pareto_test
