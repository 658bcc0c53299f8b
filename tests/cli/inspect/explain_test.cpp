// kvscope explain, run as a user runs it.
#include <fmt/format.h>

#include "support/temp_dir.hpp"
#include "tests/cli/run_program.hpp"

namespace kvscope::test::explain_test {

TEST_CASE("explain names the head whose dropped keys changed a needle's answer") {
  const testing::TempDir folder;
  const auto file = (folder.path() / "answer.h5").string();
  const Words asked = {"explain",      "--facts",  "6",  "--selector",
                       "streamingllm", "--budget", "48", "--lengths",
                       "600",          "--depths", "1"};
  const auto run = ran(with(asked, {"--out", file, "--json"}));
  const auto json = run.json();
  CHECK(json.at("totals").at("changed") == 1);
  const auto& prompt = json.at("prompts").at(0);
  CHECK(prompt.at("everything").at("recovered").get<double>() > 0.9);
  CHECK(prompt.at("heads").size() == 64);
  const auto best = *std::ranges::max_element(prompt.at("heads"), {}, [](const auto& head) {
    return head.at("recovered").template get<double>();
  });
  // It is one of those that put most of their attention on the fact densely.
  const auto rows = json.at("rows");
  REQUIRE(!rows.empty());
  for (const auto& row : rows) {
    CHECK(row.at("dense_weight").get<double>() >= 0.2);
    CHECK(row.at("kept") == 0);  // the fact stands in the middle, outside the window
    CHECK(row.at("step") == prompt.at("token").get<int>() - 1);
  }
  CHECK(std::ranges::any_of(rows, [&](const auto& row) {
    return row.at("layer") == best.at("layer") && row.at("q_head") == best.at("q_head");
  }));
  const auto& key = prompt.at("keys").at(0);
  CHECK(key.at("says") == prompt.at("steps").at(prompt.at("token").get<int>() - 1).at("dense"));
  const auto text = kvscope_run(asked);
  CHECK(text.out.find("and the model says") != std::string::npos);
  CHECK(text.out.find("put back, a key at a time") != std::string::npos);
  CHECK(kvscope_run(with(asked, {"--out", file})).code != 0);  // there already
  CHECK(kvscope_run({"figure", "answer", file, "--out", (folder.path() / "a.svg").string()}).code ==
        0);
}

TEST_CASE("explain takes words, and says what does not go together") {
  const auto run =
      ran({"explain", "--selector", "quoka", "--budget", "2", "--prompt",
           "One two three four five six seven eight", "--n-new", "2", "--token", "2", "--json"});
  CHECK(run.json().at("prompts").at(0).at("token") == 2);
  const Words method = {"--selector", "quoka", "--budget", "16"};
  for (const Words& wrong : {Words{"--prompt", "a", "--depths", "2"},
                             {"--n-new", "2"},
                             {"--prompt", "a", "--token", "0"},
                             {"--runs", "-1"},
                             {"a.h5", "--every-call"}}) {
    refused(with(with({"explain"}, method), wrong), 2, {});
  }
}

TEST_CASE("explain says losses in nats, and no share beyond all of one") {
  const std::string words =
      "It was the best of times for the old clock maker, who had lived by the river for sixty "
      "years and knew every boat that passed. One morning a stranger knocked at his door and asked "
      "him for the hour. The old man looked at the stranger and said that no clock in his house "
      "had been right since the winter. The stranger laughed and sat down by the fire, and they "
      "spoke of the river and of the boats until the evening came. When the stranger left he "
      "forgot a small brass key on the table, and the old man put it in his pocket and thought no "
      "more of it until";
  // after the line feed the token is likelier with all keys put back than under full attention,
  // without it likelier under the method
  for (const auto& [prompt, says] :
       {std::pair{words + "\n", "more than all of them back"}, {words, "nothing is lost (-"}}) {
    const auto told = ran({"explain", "--selector", "streamingllm", "--budget", "16", "--n-new",
                           "1", "--all", "--prompt", prompt, "--json"})
                          .json()
                          .at("prompts")
                          .at(0);
    const auto& step = told.at("steps").at(0);
    const double lost =
        step.at("sparse_surprise").get<double>() - step.at("dense_surprise").get<double>();
    CHECK_HAS(told.at("sentence").get<std::string>(), says, fmt::format("{:.3f} nats", lost));
  }
}

TEST_CASE("explain's --dense-layers goes below the number of a method's own") {
  const Words method = {"explain",
                        "--budget",
                        "8",
                        "--prompt",
                        "The old clock maker had lived by the river for sixty years and knew every "
                        "boat that passed.",
                        "--n-new",
                        "3",
                        "--all",
                        "--json"};
  const auto prompts = [&](const Words& more) { return ran(with(method, more)).json()["prompts"]; };
  const auto none = prompts({"--selector", "quest", "--dense-layers", "0"});
  CHECK(none == prompts({"--selector", "quest:dense-layers=0"}));
  CHECK(none != prompts({"--selector", "quest"}));
}

TEST_CASE("explain --put-back says how an answer changes with a blamed head's keys") {
  const Words asked = {"explain",      "--facts",  "6",  "--selector",
                       "streamingllm", "--budget", "48", "--lengths",
                       "600",          "--depths", "1",  "--json"};
  const auto blamed = kvscope_run(asked).json().at("prompts").at(0);
  const auto& key = blamed.at("keys").at(0);
  const auto run =
      ran(with(asked, {"--put-back",
                       fmt::format("{}:{}:{}", key.at("layer").get<int>(),
                                   key.at("q_head").get<int>(), key.at("key").get<int>()),
                       "--which", "1"}));
  const auto prompt = run.json().at("prompts").at(0);
  const auto at = blamed.at("token").get<std::size_t>() - 1;
  CHECK(prompt.at("token") == blamed.at("token"));
  CHECK(prompt.at("steps").at(at).at("mended") == key.at("says"));
  CHECK(prompt.at("steps").at(at).at("mended_surprise").get<double>() ==
        Catch::Approx(key.at("surprise").get<double>()).margin(1e-4));
  CHECK(prompt.at("answer") == blamed.at("answer"));
  for (const Words& wrong : {Words{"--put-back", "x"},
                             {"--put-back", "1:2:3:4"},
                             {"--put-back", "all", "--out", "a.h5"},
                             {"--which", "1"},
                             {"--put-back", "all", "--which", "7"}})
    CHECK(kvscope_run(with(asked, wrong)).code == 2);
  CHECK(kvscope_run(with(asked, {"--put-back", "50"})).code != 0);
}

TEST_CASE("explain says why a key of a recording was dropped, and which budget keeps it") {
  const testing::TempDir folder;
  const auto file = (folder.path() / "trace.h5").string();
  ran({"record", "--max-tokens", "256", "--out", file});
  const std::vector<std::string> asked = {"explain", file,  "--layers",   "2",     "--heads",  "1",
                                          "--query", "250", "--selector", "quoka", "--budget", "32",
                                          "--chunk", "64"};
  const auto json = ran(with(asked, {"--json"})).json();
  CHECK(json.at("key").at("end") == "dropped");
  CHECK(json.at("key").at("rank").get<int>() > 32);
  CHECK(json.at("kept") == 32 + 59);  // the chunk so far besides
  CHECK(json.at("heaviest").size() == 10);
  const int budget = json.at("keeping_budget").get<int>();
  CHECK(budget == json.at("key").at("rank"));
  const std::string key = std::to_string(json.at("key").at("key").get<int>());
  std::vector<std::string> enough = asked;
  *(std::ranges::find(enough, "--budget") + 1) = std::to_string(budget);
  const auto larger = ran(with(enough, {"--json", "--key", key}));
  CHECK(larger.json().at("key").at("end") == "kept");
  const auto text = kvscope_run(with(asked, {"--key", key}));
  CHECK(text.out.find("Dropped.") != std::string::npos);
  CHECK(text.out.find("Representative query") != std::string::npos);
  CHECK(text.out.find("by rule") != std::string::npos);
  CHECK(text.out.find("\n\n\n") == std::string::npos);
  CHECK(kvscope_run({"explain", file, "--selector", "quoka", "--budget", "32"}).code == 2);
}

TEST_CASE("explain of ranks alone: which heads look at the fact, and that none does") {
  const auto with_least = [](const std::string& least) {
    return kvscope_run({"explain", "--selector", "quoka", "--budget", "16", "--all", "--runs", "0",
                        "--lengths", "256", "--depths", "1", "--least", least});
  };
  const auto some = with_least("0.01");
  INFO(some.err);
  REQUIRE(some.code == 0);
  CHECK_HAS(some.out, "heads that look at the fact, when token", "explain: the answer");
  CHECK(kvscope_run({"explain", "--selector", "quoka", "--runs", "0", "--out", "a.h5"}).code == 2);
  CHECK(some.out.find("put back") == std::string::npos);
  const auto nobody = with_least("1");
  REQUIRE(nobody.code == 0);
  CHECK_HAS(nobody.out, "Densely no head puts 100.0 % or more");
  CHECK(nobody.out.find("q_head") == std::string::npos);  // no heading without rows
}

TEST_CASE("explain refuses what it cannot run") {
  CHECK(kvscope_run({"explain"}).code == 2);
  CHECK(kvscope_run({"explain", "--selector", "specattn", "--budget", "p=0.9"}).code == 2);
}

}  // namespace kvscope::test::explain_test
