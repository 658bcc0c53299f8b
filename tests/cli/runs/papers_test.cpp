// kvscope papers, run as a user runs it.
#include <set>

#include "analysis/base/read_table.hpp"
#include "core/base/data_dir.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/support/counted_calls.hpp"
#include "tests/support/places.hpp"
#include "tests/support/sanitizers.hpp"

namespace kvscope::test::papers_test {

nlohmann::json items_of(const fs::path& folder) {
  return nlohmann::json::parse(read_file(folder / "items.json")).at("items");
}

TEST_CASE("papers judges items from results, and does not run them again") {
  const TempDir dir;
  const fs::path out = dir.path() / "report";
  const std::vector<std::string> command = {
      "papers",  "--quick",
      "--out",   out.string(),
      "--items", "error-theorem-b1,error-bound-factor,error-last-midpoint,quest-longbench"};
  CHECK_HAS(ran(command).out, "does not hold");
  const auto items = items_of(out);
  REQUIRE(items.size() == 4);
  for (const auto& item : items) {
    CHECK(item.at("verdict") ==
          (item.at("item") == "quest-longbench" ? "cannot be tested" : "does not hold"));
    CHECK(!item.at("reason").get<std::string>().empty());
    // Both layers' last rows.
    if (item.at("item") == "error-theorem-b1") CHECK(item.at("ours") == 2);
    if (item.at("item") == "error-bound-factor")
      CHECK(item.at("ours").get<double>() == Approx(2.0));
  }
  CHECK_HAS(read_file(out / "report.html"), "</html>");
  CHECK_HAS(read_file(out / "report.tex"), "\\end{document}");

  // The same numbers as the single command's.
  const auto alone =
      kvscope_run({"analyze", "theorem-b1", (out / "runs/b1-recording.h5").string(), "--json"})
          .json();
  CHECK(alone.at("totals").at("printed_violations") == 2);
  CHECK(alone.at("totals").at("violations_of_proved_bounds") == 0);

  const auto again = ran(command);
  CHECK(again.err.empty());  // nothing was run
  // A result that was touched is made again, it alone.
  fs::remove(out / "runs/error-bound.csv");
  const auto third = kvscope_run(command);
  CHECK_HAS(third.err, "error-bound: kvscope sweep");
  CHECK_THAT(third.err, !has("theorem"));
}

TEST_CASE("papers judges a choice against one at random, under every published rule") {
  const TempDir dir;
  const fs::path out = dir.path() / "report";
  ran({"papers", "--quick", "--out", out.string(), "--items",
       "quest-recall,error-pairing,specattn-app-a,quoka-norms"});
  const auto items = items_of(out);
  const auto& recall = items.at(1);
  REQUIRE(recall.at("item") == "quest-recall");
  std::set<std::string> readings;
  int n_controls = 0;
  for (const auto& check : recall.at("checks")) {
    readings.insert(check.at("reading"));
    const auto sentence = check.at("sentence").get<std::string>();
    CHECK_THAT(sentence, !has("keys a query against"));  // equal measured keys
    n_controls += sentence.find("pages drawn at random") != std::string::npos ? 1 : 0;
  }
  CHECK(readings.size() == 2);
  CHECK(n_controls == 2);
  CHECK_HAS(recall.at("reason").get<std::string>(), "By the kernels' page rule, ",
            "By the evaluator's page rule, ");
  // one layer has a share of 17 %, and 100 % is a range over layers, not an interval
  CHECK_HAS(items.at(0).at("checks").dump(), "the claim fails in layer 0");
  CHECK(items.at(3).at("ours").get<double>() < 0.9);  // keys that both pairings keep
  CHECK_HAS(items.at(2).at("reason").get<std::string>(), "can refute");
}

TEST_CASE("papers on a checkpoint without a tokenizer: items say why, the rest goes on") {
  const TempDir dir;
  const fs::path out = dir.path() / "report";
  const fs::path golden = testing::source_dir() / "tests/golden/llama3_gqa";
  ran({"papers", "--quick", "--model", golden.string(), "--out", out.string(), "--items",
       "quoka-fig-2b,quoka-fig-4,specattn-fig-2,error-theorem-b1"});
  for (const auto& item : items_of(out)) {
    INFO(item.dump());
    if (item.at("item") == "error-theorem-b1") {
      CHECK(item.at("verdict") == "does not hold");
    } else {
      CHECK(item.at("verdict") == "cannot be tested");
    }
    if (item.at("item") == "quoka-fig-2b" || item.at("item") == "specattn-fig-2")
      CHECK_HAS(item.at("reason").get<std::string>(), "tokenizer.json");
  }
}

TEST_CASE("papers makes a draft of the model's own layers, says so, and leaves these out") {
  const TempDir dir;
  const fs::path out = dir.path() / "report";
  // By its path the verifier has no draft of its own.
  const Words command = {"papers",  "--quick",
                         "--model", embedded_verifier().string(),
                         "--items", "specattn-fig-2,specattn-app-a",
                         "--out",   out.string()};
  ran(command);
  const auto report = nlohmann::json::parse(read_file(out / "items.json"));
  CHECK(report.at("draft") ==
        "early exit: the first 4 layers of the model itself and a fitted head");
  CHECK_HAS(read_file(out / "report.html"), "early exit: the first 4 layers");
  CHECK_HAS(read_file(out / "runs/early-exit/config.json"), "kvscope_draft");
  for (const auto& item : report.at("items")) {
    INFO(item.dump());
    // A constructed recording cannot confirm a bound.
    const bool is_bound = item.at("item") == "specattn-app-a";
    CHECK((item.at("verdict") == "not decided") == is_bound);
    CHECK(item.at("verdict") != "cannot be tested");
    CHECK_HAS(item.at("note").get<std::string>(), "No draft was given");
    CHECK_HAS(item.at("commands").dump(),
              item.at("item") == "specattn-fig-2" ? " --dense-layers 4" : " --layers 4-7");
  }
  const auto again = ran(command);
  CHECK(again.err.empty());  // the draft is not fitted again
  // Another draft makes other numbers.
  CHECK_HAS(ran(with(command, {"--draft", "draft"})).err, "layer-map: kvscope analyze");
  CHECK_THAT(items_of(out)[0].at("note").get<std::string>(), !has("No draft"));
  CHECK_THAT(items_of(out)[0].at("command").get<std::string>(), !has("dense-layers"));
}

TEST_CASE("papers --plan says what is asked, and runs nothing") {
  const auto text = ran({"papers", "--plan", "--quick", "--items", "quoka-fig-4"});
  // power .475: 0.3 sqrt(20) / sqrt(0.5) - 1.96 = -0.063
  CHECK_HAS(text.out, "is above StreamingLLM, 25 %", "paired over 20 prompts", "48 %");
  const auto plan = kvscope_run({"papers", "--plan", "--json"}).json();
  CHECK(plan.at("format") == "kvscope-papers-plan");
  CHECK(plan.at("checks").size() > 50);
  CHECK(kvscope_run({"papers", "--plan", "--items", "nobody"}).code == 2);
}

TEST_CASE("papers asks for the fact that the dense model finds best, as it understands it",
          "[slow]") {
  const TempDir dir;
  const fs::path with_template = dir.path() / "with_template";
  fs::copy(embedded_draft(), with_template);
  dir.write("with_template/chat_template.jinja",
            "{% for m in messages %}Question: {{ m.content }}\nAnswer:{% endfor %}");
  for (const std::string& model : {std::string("verifier"), with_template.string()}) {
    const fs::path out = dir.path() / ("report of " + fs::path(model).filename().string());
    ran({"papers", "--quick", "--model", model, "--items", "quoka-fig-4,quoka-88-percent", "--out",
         out.string()});
    const fs::path csv = out / "runs/asked.csv";
    const Table table = table_from_csv(read_file(csv), csv.string());
    const auto accuracy = table.numbers("accuracy");
    const std::size_t best = accuracy[1] > accuracy[0] ? 1 : 0;
    const auto items = items_of(out);
    const auto command = items[0].at("command").get<std::string>();
    CHECK_HAS(command, "--kinds " + table.at("kind").cell(best) + " ");
    const TableColumn* const wording = table.find("wording");
    CHECK((wording != nullptr) == (model != "verifier"));
    const bool in_chat = wording != nullptr && wording->cell(best) == "chat";
    CHECK((command.find(" --chat ") != std::string::npos) == in_chat);
    // both budgets come of one run
    CHECK(items[1].at("command") == command);
    CHECK_HAS(command, "--budget ratio=0.25,0.12 ");
    const auto reads = [](const auto& item, const char* key) {
      for (const auto& value : item.at("values"))
        if (value.at("key") == key) return value.at("where").template get<std::string>();
      return std::string();
    };
    CHECK(reads(items[0], "quoka") == "selector=quoka;budget=0.25");
    CHECK(reads(items[1], "quoka") == "selector=quoka;budget=0.12");
  }
}

TEST_CASE("papers times prompts that the model has positions for") {
  const TempDir dir;
  const fs::path model = dir.path() / "short";
  fs::copy(embedded_draft(), model);
  auto config = nlohmann::json::parse(read_file(model / "config.json"));
  config["max_position_embeddings"] = 3000;
  dir.write("short/config.json", config.dump());
  const fs::path out = dir.path() / "report";
  ran({"papers", "--quick", "--model", model.string(), "--items", "quoka-fig-5acd", "--out",
       out.string()});
  const auto item = items_of(out)[0];
  CHECK_HAS(item.at("command").get<std::string>(), "--lengths 2048 ");
  CHECK(item.at("verdict") != "cannot be tested");
}

TEST_CASE("papers with rounded products says so") {
  const TempDir dir;
  const fs::path out = dir.path() / "report";
  const auto run = ran(
      {"papers", "--quick", "--matmul", "bf16", "--items", "quoka-norms", "--out", out.string()});
  CHECK_HAS(run.out, "Computed with products in bf16");
  CHECK_HAS(read_file(out / "report.html"), "Computed with products in bf16");
  CHECK_HAS(read_file(out / "report.tex"), "Computed with products in bf16");
  const auto json = nlohmann::json::parse(read_file(out / "items.json"));
  CHECK_HAS(json.at("matmul").get<std::string>(), "bf16");
  CHECK_HAS(run.err, "kvscope record", "--matmul bf16");
}

TEST_CASE("a failed write is no verdict: the report says so, and so does the code") {
  if (test::kAddressSanitizer) SKIP("AddressSanitizer wants no library loaded before its own");
  const TempDir dir;
  const fs::path count = dir.path() / "count";
  const auto run = [&](const std::string& out, long at) {
    fs::remove(count);
    return kvscope_run(
        {"papers", "--quick", "--items", "error-normalised-keys", "--threads", "1", "--out",
         dir.file(out)},
        {"",
         {"SOURCE_DATE_EPOCH=1700000000", "LD_PRELOAD=" + testing::failing_disk().string(),
          "KVSCOPE_FAIL_CALL=write", "KVSCOPE_FAIL_AT=" + std::to_string(at),
          "KVSCOPE_FAIL_COUNT=" + count.string()}});
  };
  const auto verdict = [&](const std::string& out) {
    return items_of(dir.path() / out)[0].at("verdict").get<std::string>();
  };
  const auto whole = run("whole", 0);
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  const std::string right = verdict("whole");
  const long n_writes = testing::counted_calls(count);
  int n_not_run = 0;
  for (const long at : {n_writes / 3, n_writes / 2}) {
    const std::string out = "failed" + std::to_string(at);
    const auto failed = run(out, at);
    INFO("write " << at << " of " << n_writes << ": " << failed.err);
    CHECK(failed.code != 0);
    if (failed.code != 4) {
      CHECK(failed.code == 3);  // the report itself
      continue;
    }
    CHECK((verdict(out) == "not run" || verdict(out) == right));
    n_not_run += verdict(out) == "not run" ? 1 : 0;
    CHECK_HAS(failed.err, "error-normalised-keys was not", "Input/output error");
    if (n_not_run != 1) continue;
    CHECK(run(out, 0).code == 0);  // a new start makes up for it
    CHECK(verdict(out) == right);
  }
  CHECK(n_not_run > 0);
}

TEST_CASE("papers refuses what it cannot mean") {
  const TempDir dir;
  CHECK(kvscope_run({"papers"}).code == 2);
  refused({"papers", "--out", dir.file("r"), "--items", "quoka-fig-99"}, 2,
          {"quoka-fig-99 is no item"});
  CHECK(kvscope_run({"papers", "--example", "nothing", "--out", dir.file("x.h5")}).code == 2);
  fs::create_directories(dir.path() / "mine/runs");
  const fs::path mine = dir.write("mine/runs/geometry.h5", "notes");
  refused({"papers", "--out", dir.file("mine")}, 2, {"mine/runs holds other files"});
  CHECK(read_file(mine) == "notes");
}

TEST_CASE("bench nucleus finds the exact nucleus both ways and shows the printed search's loss") {
  const auto json =
      kvscope_run({"bench", "nucleus", "--keys", "256,2048", "--rows", "5", "--json"}).json();
  REQUIRE(json.at("rows").size() == 2);
  for (const auto& row : json.at("rows")) {
    CHECK(row.at("least_mass_exact").get<double>() >= 0.95 - 1e-6);
    CHECK(row.at("least_mass_safe_low").get<double>() >= 0.95 - 1e-6);
    CHECK(row.at("least_mass_paper_10").get<double>() < 0.95);
    CHECK(row.at("ratio").get<double>() > 0.0);
  }
  CHECK(kvscope_run({"bench", "nucleus", "--p", "0"}).code == 2);
}

}  // namespace kvscope::test::papers_test
