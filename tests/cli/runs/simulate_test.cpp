// kvscope simulate and bench live, run as a user runs them.
#include <chrono>
#include <csignal>
#include <set>
#include <thread>

#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"

namespace kvscope::test::simulate_test {

const Words kPerplexity = {
    "simulate",          "perplexity", "--max-tokens", "80",       "--selector",
    "full,quest,recent", "--budget",   "32",           "--offset", "0"};

TEST_CASE("simulate perplexity prints a table and writes the same rows in three formats") {
  const TempDir dir;
  const auto table = ran(kPerplexity);
  CHECK(table.out.starts_with("method"));
  CHECK_HAS(table.out, "quest tokens=32");
  CHECK_HAS(table.err, "no intervals: they are drawn from blocks of 64");
  const RunSetup pinned{"", {"SOURCE_DATE_EPOCH=1700000000"}};
  for (const std::string extension : {".csv", ".json", ".h5"}) {
    const auto one = dir.file("one" + extension);
    const auto two = dir.file("two" + extension);
    ran(with(kPerplexity, {"--out", one, "--threads", "1"}), pinned);
    ran(with(kPerplexity, {"--out", two, "--threads", "3"}), pinned);
    CHECK(read_file(one) == read_file(two));
    CHECK(!std::filesystem::exists(one + ".store"));
    CHECK_HAS(ran(with(kPerplexity, {"--out", one})).err, "is complete");
    ran(with(kPerplexity, {"--out", one, "--overwrite"}));
  }
  CHECK(read_file(dir.path() / "one.csv").starts_with("model,task,selector,budget_kind,protocol,"));
}

TEST_CASE("a run in bf16 says so in its table, its rows, what is made of them") {
  const TempDir dir;
  const Words rounded = {"--matmul", "bf16-portable", "--kv-dtype", "bf16"};
  const std::string sentence = "products in bf16-portable, keys and values in bf16";
  const auto csv = dir.file("bf16.csv");
  const auto plain = dir.file("f32.csv");
  CHECK_HAS(ran(with(with(kPerplexity, rounded), {"--out", csv})).out, sentence);
  CHECK_HAS(read_file(csv), ",matmul,kv_dtype,", ",bf16-portable,bf16,");
  CHECK_THAT(kvscope_run(with(kPerplexity, {"--out", plain})).out, !has("bf16"));
  CHECK_THAT(read_file(plain), !has("matmul"));
  const Words table = {"table", "--rows", "selector", "--value", "perplexity"};
  CHECK_HAS(kvscope_run(with(table, {csv})).out, sentence);
  // not one mean of two computations
  const auto mixed = kvscope_run(with(table, {csv, plain}));
  CHECK(mixed.code == 2);
  CHECK_THAT(mixed.err, has("differ in kv_dtype") || has("in matmul"));
  const auto json = kvscope_run(with(with(kPerplexity, rounded), {"--json"})).json();
  for (const auto& row : json.at("rows")) CHECK(row.at("kv_dtype") == "bf16");
  std::ofstream(dir.path() / "bf16.json") << json.dump();
  const auto figure =
      ran({"figure", "perplexity", dir.file("bf16.json"), "--out", dir.file("figures")});
  CHECK_HAS(figure.err + figure.out, sentence);
}

TEST_CASE("an interrupted simulation resumes to the same bytes") {
  const TempDir dir;
  const auto whole = dir.file("whole.json");
  const auto cut = dir.file("cut.json");
  const Words words = with(kPerplexity, {"--windows", "6", "--threads", "1"});
  ran(with(words, {"--out", whole}));
  RunningProgram running(with(words, {"--out", cut}));
  const std::filesystem::path store = cut + ".store";
  const auto n_bytes = [&] {
    std::uintmax_t n = 0;
    std::error_code none;
    for (auto entry = std::filesystem::directory_iterator(store / "answers", none);
         !none && entry != std::filesystem::directory_iterator(); entry.increment(none))
      n += entry->file_size(none);
    return n;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (running.is_running() && std::chrono::steady_clock::now() < deadline) {
    if (n_bytes() > 3000) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  running.send(SIGKILL);
  running.wait();
  if (!std::filesystem::exists(cut)) {  // it may have been faster than the signal
    REQUIRE(std::filesystem::exists(store));
    CHECK(kvscope_run(with(words, {"--out", cut})).code == 3);  // says that there is a store
    ran(with(words, {"--out", cut, "--resume"}));
  }
  CHECK(read_file(cut) == read_file(whole));
}

TEST_CASE("retrieval and speculation run from the command line") {
  const auto passkey =
      ran({"simulate", "retrieval", "--protocol", "quest", "--lengths", "400", "--depths", "2",
           "--selector", "streamingllm", "--budget", "64", "--json"});
  CHECK(passkey.json().at("rows").at(0).at("protocol") == "decode");
  CHECK(passkey.json().at("rows").at(0).at("accuracy") == 1);
  CHECK(passkey.json().at("rows").at(1).at("accuracy") == 0.5);
  const auto needle = ran({"simulate", "retrieval", "--kinds", "multi_key", "--lengths", "400",
                           "--depths", "2", "--facts", "4", "--selector", "full,quoka", "--budget",
                           "ratio=0.5", "--by-depth", "--json"});
  CHECK(needle.json().at("rows").size() == 4);
  const auto ruler = ran({"simulate", "retrieval", "--lengths", "400", "--depths", "1", "--kinds",
                          "multi_key,common_words", "--selector", "quoka", "--budget", "128"});
  CHECK_HAS(ruler.out, "full");
  const auto speculative = ran({"simulate", "speculative", "--prompt", "100", "--n-new", "8",
                                "--prompts", "1", "--json"})
                               .json()
                               .at("rows")
                               .at(1);
  CHECK(speculative.at("same_as_dense") == 1);
  CHECK(speculative.at("tokens_per_pass") ==
        speculative.at("acceptance_length").get<double>() + 1.0);
  const auto live = ran({"bench", "live", "--selector", "quoka", "--lengths", "256,384", "--budget",
                         "64", "--repeat", "1", "--json"});
  CHECK(live.json().at("rows").size() == 4);
}

TEST_CASE("simulate --match says setting and cost in every row, and marks what is not met") {
  const TempDir dir;
  const std::string out = dir.file("equal.json");
  const auto run = ran({"simulate", "retrieval", "--protocol", "decode", "--lengths", "200,300",
                        "--depths", "1", "--fed", "8", "--selector", "full,oracle-topk,vattention",
                        "--match", "keys=40", "--dense-layers", "0", "--out", out});
  CHECK_HAS(run.out, "equal cost", "oracle-topk keys=40 (tokens=40)",
            "* full, keys=40: no budget setting",
            "* vattention, keys=40: not reached: the least is keys=");
  const auto json = nlohmann::ordered_json::parse(read_file(out));
  REQUIRE(json.at("rows").size() == 6);
  for (const auto& row : json.at("rows")) {
    CHECK(row.at("match") == "keys=40");
    if (row.at("selector") != "oracle-topk") continue;
    CHECK(row.at("knob") == "tokens=40");
    CHECK(row.at("match_reached") == 40);
    CHECK(row.at("kept") == 40);
    CHECK(row.at("match_note") == "");
  }
  CHECK_HAS(json.at("command_line").get<std::string>(), "--match keys=40");
  const auto fails = [](const Words& more, const std::string& says) {
    refused(
        with({"simulate", "retrieval", "--protocol", "decode", "--selector", "full,quest"}, more),
        2, {says});
  };
  fails({"--match", "tokens=5"}, "match \"tokens=5\": expected density=X");
  fails({"--match", "density=0.1", "--budget", "64"}, "--match and --budget exclude each other");
  fails({"--text", "a.txt", "--text", "a.txt", "--budget", "64"}, "--text: ");
}

TEST_CASE("protocols, turns, intervals and doubts from the command line") {
  const Words needle = {"simulate", "retrieval", "--kinds",    "multi_key", "--lengths", "300",
                        "--depths", "1",         "--facts",    "3",         "--chunk",   "64",
                        "--budget", "64",        "--selector", "full,quoka"};
  const auto papers = ran(with(needle, {"--protocol", "papers", "--json"}));
  std::set<std::string> protocols;
  const auto printed = papers.json();
  for (const auto& row : printed.at("rows")) protocols.insert(row.at("protocol"));
  CHECK(protocols.size() == 8);
  CHECK(papers.json().at("config").at("protocols").size() == 8);
  CHECK(papers.json().at("doubts").is_array());
  CHECK(papers.json().at("comparisons").size() >= 8);
  CHECK(papers.json().at("rows").at(0).at("accuracy_high") == 1);

  CHECK_HAS(ran(with(needle, {"--turns", "2", "--show-prompts", "1"})).out,
            "--- multi_key, 300 tokens", "turn 2: What is the magic number", "expected: ");
  const auto saturated = ran({"simulate", "retrieval", "--protocol", "decode", "--lengths", "300",
                              "--depths", "2", "--selector", "full,quest", "--budget", "256"});
  CHECK_HAS(saturated.out, "100.0 % [34, 100]", "doubt (saturated): passkey, 300 tokens");
  const auto until = ran({"simulate", "retrieval", "--lengths", "200", "--depths", "2",
                          "--selector", "full", "--until-interval", "0.3", "--json"});
  CHECK(until.json().at("rows").at(0).at("accuracy_low") >= 0.7);
  CHECK(until.json().at("rows").at(0).at("prompts") > 2);
}

TEST_CASE("examples of a file and chains from the command line") {
  const TempDir dir;
  const auto file =
      dir.write(
             "mine.jsonl",
             "{\"context\": \" The magic number of the stone is 12345. The rest is prose.\", "
             "\"question\": \" What is the magic number of the stone?\", \"answer_prefix\": \" The "
             "magic number of the stone is\", \"answer\": \"12345\", \"max_new_tokens\": 8}\n")
          .string();
  const auto own = ran({"simulate", "retrieval", "--examples", file, "--lengths", "200",
                        "--selector", "recent", "--budget", "64", "--json"});
  CHECK(own.json().at("rows").at(0).at("kind") == "local");
  CHECK(own.json().at("rows").at(0).at("accuracy") == 1);
  const Words chain = {"simulate",       "retrieval", "--kinds",   "copy,passkey",
                       "--protocol",     "answer",    "--lengths", "110",
                       "--steps",        "8",         "--depths",  "1",
                       "--selector",     "quest",     "--budget",  "4096",
                       "--dense-layers", "0",         "--json"};
  const auto rows = ran(chain).json().at("rows");
  CHECK(rows.at(1).at("same_as_dense") == 1);  // a budget of everything
  CHECK(rows.at(1).at("first_difference").is_null());
  CHECK(rows.at(3).at("kind") == "passkey");
  CHECK(rows.at(3).at("steps_right").is_null());
  refused(with(chain, {"--chat"}), 2, {"--chat: a chain is a text that goes on"});
  refused(
      {"simulate", "retrieval", "--kinds", "chain", "--protocol", "inside", "--selector", "full"},
      2, {"a chain is decoded"});
}

TEST_CASE("wrong simulations end with a sentence and the right code") {
  const TempDir dir;
  const Words perplexity = {"simulate", "perplexity"};
  refused(perplexity, 2, {"--selector is missing"});
  refused({"simulate"}, 2, {"needs a kind"});
  refused(with(perplexity, {"--selector", "nothing"}), 2, {"unknown selector"});
  refused(with(perplexity, {"--selector", "quest"}), 2, {"quest: needs a budget"});
  refused(with(perplexity, {"--selector", "full", "--max-tokens", "500000"}), 2,
          {"expected at least 505000"});
  refused(with(perplexity, {"--selector", "full", "--max-tokens", "40000"}), 2,
          {"32768 positions"});
  refused(with(perplexity, {"--selector", "full", "--prefill", "2"}), 2,
          {"expected a value in [0, 1]"});
  refused(with(perplexity, {"--selector", "full", "--out", "x.txt"}), 2, {"ends in .csv"});
  refused(with(perplexity, {"--selector", "full", "--resume"}), 2, {"--resume needs --out"});
  refused(with(perplexity, {"--selector", "full", "--model", "nowhere"}), 3, {"nowhere"});
  refused(with(perplexity, {"--selector", "specattn", "--budget", "p=0.9", "--model", "./nowhere"}),
          3, {"nowhere"});
  const auto text = dir.write("short.txt", "A few words.").string();
  refused(with(perplexity, {"--selector", "full", "--text", text}), 2, {"short.txt has"});
  const Words retrieval = {"simulate", "retrieval", "--selector", "full"};
  refused(with(retrieval, {"--lengths", "32768"}), 2, {"positions"});
  refused(with(retrieval, {"--lengths", "0"}), 2, {"--lengths"});
  refused(with(retrieval, {"--lengths", "20"}), 2, {"too few"});
  refused(with(retrieval, {"--facts", "100"}), 2, {"--facts"});
  refused(with(retrieval, {"--facts", "8"}), 2, {"only --kinds multi_key"});
  refused(with(retrieval, {"--steps", "8"}), 2, {"only chains"});
  refused(with(retrieval, {"--kinds", "poem"}), 2, {"kinds: expected"});
  refused(with(retrieval, {"--protocol", "dence"}), 2,
          {"protocol: expected one of decode, all, inside, prefill, answer, question, compress, "
           "context"});
  refused(with(retrieval, {"--lengths", "300", "--turns", "2"}), 2, {"has 1 question"});
  refused(with(retrieval, {"--until-interval", "2"}), 2, {"wanted interval"});
  refused(with(retrieval, {"--examples", "nowhere.jsonl"}), 3, {"nowhere"});
  refused(with(retrieval, {"--kinds", "chain", "--steps", "40000"}), 2, {"positions"});
  refused({"simulate", "needle", "--selector", "full"}, 2,
          {"unknown kind \"needle\", expected one of perplexity, retrieval"});
  refused({"simulate", "speculative", "--gamma", "0"}, 2, {"--gamma"});
  refused({"simulate", "speculative", "--prompt", "32768", "--offset", "0", "--prompts", "1"}, 2,
          {"positions"});
  refused({"bench", "live", "--lengths", "40000"}, 2, {"positions"});

  // a draft with another tokenizer
  const auto source = testing::source_dir() / "traces" / "samples" / "draft";
  const auto other = dir.path() / "other";
  std::filesystem::copy(source, other);
  std::string tokenizer = read_file(other / "tokenizer.json");
  const std::string needle = "\"<|end_of_text|>\"";
  for (std::size_t at = tokenizer.find(needle); at != std::string::npos;
       at = tokenizer.find(needle, at + 1)) {
    tokenizer.replace(at, needle.size(), "\"<|end_of_talk|>\"");
  }
  std::ofstream(other / "tokenizer.json", std::ios::trunc) << tokenizer;
  refused({"simulate", "speculative", "--draft", other.string()}, 2, {"different tokenizers"});
}

}  // namespace kvscope::test::simulate_test
