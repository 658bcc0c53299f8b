// kvscope record, info, verify and recover, run as a user runs them.
#include <chrono>
#include <csignal>
#include <map>
#include <random>
#include <thread>

#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"

namespace kvscope::test::record_test {

Words draft_run(const fs::path& out, const Words& more = {}) {
  return with({"record", "--model", "draft", "--out", out.string()}, more);
}

TEST_CASE("a recording says everything on standard error, and its trace verifies") {
  const TempDir dir;
  const fs::path out = dir.path() / "a trace.h5";
  const auto run = ran(draft_run(out, {"--max-tokens", "48", "--decode", "3", "--chunk", "20"}));
  CHECK(run.out.empty());
  CHECK_HAS(run.err, "about");  // the estimate comes first
  CHECK_HAS(run.err, "wrote");
  CHECK_FALSE(fs::exists(out.string() + ".part"));

  const auto info = kvscope_run({"info", out.string(), "--json"}).json();
  CHECK(info.at("what") == "trace");
  CHECK(info.at("status") == "complete");
  CHECK(info.at("n_prompt") == 48);
  CHECK(info.at("n_tokens") == 51);
  CHECK(info.at("n_units") == 6);  // 20 + 20 + 8, then three steps
  CHECK(info.at("model").at("name") == "draft");
  CHECK(info.at("capture") == nlohmann::json({"qkv", "lse"}));
  CHECK(info.at("text_source") == "kidnapped.txt");
  CHECK_HAS(info.at("command_line").get<std::string>(), "--chunk 20");
  CHECK_HAS(info.at("writer").get<std::string>(), "kvscope 0.1.0");
  CHECK_HAS(kvscope_run({"info", out.string()}).out, "n_tokens");

  const auto verify = ran({"verify", out.string(), "--json"});
  CHECK(verify.json().at("ok") == true);
  CHECK(verify.json().at("n_rows_checked") > 0);
}

TEST_CASE("a recording is as large as the first hour's formula says") {
  CHECK_HAS(read_file(testing::source_dir() / "FIRST_HOUR.md"),
            "layers x ((query heads + 2 x KV heads) x channels x bytes of a "
            "number + 4 x query\nheads) bytes");
  const TempDir dir;
  const fs::path out = dir.path() / "t.h5";
  ran({"record", out.string(), "--max-tokens", "1024"});
  const double expected = 1024.0 * 8 * ((8 + 2 * 2) * 64 * 4 + 4 * 8);  // the verifier, in f32
  const auto found = static_cast<double>(fs::file_size(out));
  CHECK(found > expected);
  CHECK(found < 1.02 * expected);
}

TEST_CASE("record --json reports on standard output; thread count does not change the content") {
  const TempDir dir;
  const auto one = kvscope_run(draft_run(dir.path() / "1.h5",
                                         {"--max-tokens", "40", "--threads", "1", "--json"}))
                       .json();
  const auto two = kvscope_run(draft_run(dir.path() / "2.h5",
                                         {"--max-tokens", "40", "--threads", "2", "--json"}))
                       .json();
  CHECK(one.at("status") == "complete");
  CHECK(one.at("n_prompt") == 40);
  CHECK(one.at("decode_tokens_per_second").is_null());
  CHECK(one.at("content_hash") == two.at("content_hash"));
}

TEST_CASE("prompts: text, words, standard input, ids in three spellings, the tokens of a trace") {
  const TempDir dir;
  const std::string text = "It was a bright day, and the ship lay off the coast.";
  const auto ids_json = kvscope_run({"tokenize", "--prompt", text, "--json"}).json();
  const auto ids = ids_json.at("ids").get<std::vector<int>>();
  REQUIRE(ids.size() > 5);
  std::string plain;
  for (int id : ids) plain += std::to_string(id) + ",\n";
  const auto text_file = dir.write("text.txt", text).string();
  const auto list_file = dir.write("list.json", nlohmann::json(ids).dump()).string();
  const auto object_file = dir.write("object.json", ids_json.dump()).string();
  const auto plain_file = dir.write("ids.txt", plain).string();

  std::vector<std::string> hashes;
  int n = 0;
  const auto record = [&](const Words& source, const std::string& input = "") {
    const Words words = draft_run(dir.path() / (std::to_string(n++) + ".h5"), {"--json"});
    const auto run = ran(with(words, source), RunSetup{.input = input});
    hashes.push_back(run.json().at("content_hash"));
    CHECK(run.json().at("n_prompt") == ids.size());
  };
  record({"--text", text_file});
  record({"--text", "-"}, text);
  record({"--prompt", text});
  record({"--tokens", list_file});
  record({"--tokens", object_file});
  record({"--tokens", plain_file});
  record({"--tokens", "-"}, plain);
  record({"--tokens", dir.file("0.h5")});
  for (const auto& hash : hashes) CHECK(hash == hashes.front());
}

TEST_CASE("filters and captures reach the file") {
  const TempDir dir;
  const fs::path out = dir.path() / "t.h5";
  ran(draft_run(out, {"--max-tokens", "40", "--layers", "0,2-3", "--heads", "3", "--rows", "8:40",
                      "--dtype", "bf16", "--capture", "attn,logits", "--capture",
                      "attn-topk=4,stats", "--compression", "gzip:1"}));
  const auto info = kvscope_run({"info", out.string(), "--json"}).json();
  CHECK(info.at("layers") == nlohmann::json({0, 2, 3}));
  CHECK(info.at("q_heads") == nlohmann::json({3}));
  CHECK(info.at("kv_heads") == nlohmann::json({1}));
  CHECK(info.at("rows") == nlohmann::json({8, 40}));
  CHECK(info.at("dtype") == "bf16");
  CHECK(info.at("capture") ==
        nlohmann::json({"qkv", "lse", "logits", "attn", "attn-topk=4", "stats"}));
  ran({"verify", out.string()});
}

TEST_CASE("16 bits say by how much they move scores; auto takes those that move them least") {
  const TempDir dir;
  const auto record = [&](const std::string& dtype) {
    const fs::path out = dir.path() / (dtype + ".h5");
    const auto run = ran(draft_run(out, {"--max-tokens", "40", "--dtype", dtype}));
    CHECK((run.err.find("--dtype auto: f16 (f16 moves scores of the first chunk by at most") !=
           std::string::npos) == (dtype == "auto"));
    return kvscope_run({"info", out.string(), "--json"}).json();
  };
  const auto bf16 = record("bf16");
  CHECK(bf16.at("moved_scores") > 0.0);
  CHECK(bf16.at("formats").get<std::string>().find("moved scores by at most 0.") !=
        std::string::npos);
  const auto chosen = record("auto");
  CHECK(chosen.at("dtype") == "f16");
  CHECK(chosen.at("moved_scores") < bf16.at("moved_scores"));
  CHECK_FALSE(record("f32").contains("moved_scores"));
  // Rows behind the first chunk are judged by the chunk all the same.
  const auto late = ran(draft_run(dir.path() / "late.h5", {"--max-tokens", "40", "--chunk", "20",
                                                           "--rows", "30:40", "--dtype", "auto"}));
  CHECK(late.err.find("--dtype auto: f16") != std::string::npos);
  CHECK(late.err.find("by at most 0 nats") == std::string::npos);
}

TEST_CASE("what cannot be recorded is refused in one sentence, and nothing is written") {
  const TempDir dir;
  const fs::path out = dir.path() / "t.h5";
  const auto empty = dir.write("empty.txt", "").string();
  const auto latin1 = dir.write("latin1.txt", "caf\xe9").string();
  const auto wild = dir.write("wild.json", "[1, 2, 99999]").string();
  const auto words = dir.write("words.txt", "1 2 three").string();
  const auto broken = dir.write("broken.json", "[1, 2").string();
  struct Case {
    Words args;
    int code;
    const char* expected;
  };
  for (const Case& c :
       std::initializer_list<Case>{{{"--text", empty}, 2, "empty"},
                                   {{"--prompt", ""}, 2, "empty"},
                                   {{"--text", latin1}, 3, "UTF-8"},
                                   {{"--text", "/no/such/file"}, 3, "/no/such/file"},
                                   {{"--text", dir.path().string()}, 3, "folder"},
                                   {{"--tokens", wild}, 3, "99999"},
                                   {{"--tokens", words}, 3, "\"three\""},
                                   {{"--tokens", broken}, 3, "JSON"},
                                   {{"--tokens", empty}, 2, "empty"},
                                   {{"--max-tokens", "40000"}, 2, "32768"},
                                   {{"--max-tokens", "32768", "--decode", "1"}, 2, "--max-tokens"},
                                   {{"--max-tokens", "8", "--layers", "0,9"}, 2, "layer"},
                                   {{"--max-tokens", "8", "--heads", "6"}, 2, "head"},
                                   {{"--max-tokens", "8", "--rows", "0:9"}, 2, "row"},
                                   {{"--max-tokens", "8192", "--capture", "attn"}, 2, "GiB"}}) {
    const auto run = kvscope_run(draft_run(out, c.args));
    INFO(c.args[0] << " " << c.args[1] << "\n" << run.err);
    CHECK(run.code == c.code);
    CHECK(run.out.empty());
    CHECK_HAS(run.err, c.expected);
    CHECK_FALSE(fs::exists(out));
    CHECK_FALSE(fs::exists(out.string() + ".part"));
  }
}

TEST_CASE("a given text beyond the context names both numbers and the way out") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 40000; ++i) text += "1";  // digits are single tokens
  const auto file = dir.write("long.txt", text).string();
  refused(draft_run(dir.path() / "t.h5", {"--text", file}), 2, {"40000", "32768", "--max-tokens"});
}

TEST_CASE("models that cannot be used: no folder, a file, a broken config, truncated weights") {
  const TempDir dir;
  const auto record = [&](const fs::path& model) {
    return kvscope_run(
        {"record", "--model", model.string(), "--max-tokens", "8", dir.file("t.h5")});
  };
  CHECK(record("/no/such/model").code == 3);
  CHECK(record(dir.write("file", "x")).code == 3);

  const fs::path draft = testing::source_dir() / "traces/samples/draft";
  const fs::path copy = dir.path() / "model";
  fs::create_directory(copy);
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"})
    fs::copy(draft / name, copy / name);
  REQUIRE(record(copy).code == 0);
  fs::remove(dir.path() / "t.h5");

  std::string config = read_file(copy / "config.json");
  config.replace(config.find("\"num_attention_heads\": 6"), 24, "\"num_attention_heads\": 5");
  testing::TempDir other;
  fs::remove(copy / "config.json");
  fs::copy(other.write("config.json", config), copy / "config.json");
  auto run = record(copy);
  INFO(run.err);
  CHECK(run.code == 3);
  CHECK(run.err_is_one_line());

  fs::remove(copy / "config.json");
  fs::copy(draft / "config.json", copy / "config.json");
  fs::resize_file(copy / "model.safetensors", 1000000);
  run = record(copy);
  INFO(run.err);
  CHECK(run.code == 3);
  CHECK_FALSE(fs::exists(dir.path() / "t.h5"));
}

TEST_CASE("an existing file is kept unless --overwrite is given") {
  const TempDir dir;
  const fs::path out = dir.path() / "t.h5";
  ran(draft_run(out, {"--max-tokens", "9"}));
  const std::string before = read_file(out);
  refused(draft_run(out, {"--max-tokens", "8"}), 3, {"--overwrite"});
  CHECK(read_file(out) == before);
  ran(draft_run(out, {"--max-tokens", "8", "--overwrite"}));
  CHECK(read_file(out) != before);
  ran({"verify", out.string()});
  CHECK(kvscope_run(draft_run(dir.path() / "no folder" / "t.h5", {"--max-tokens", "8"})).code == 3);
  CHECK(kvscope_run(draft_run(dir.path(), {"--max-tokens", "8"})).code == 3);
}

// A long recording, stopped by `signal` once two calls are in the file.
RunResult stop_recording(const fs::path& out, int signal) {
  RunningProgram program(
      {"record", "--out", out.string(), "--max-tokens", "24000", "--chunk", "64"});
  const std::string part = out.string() + ".part";
  for (int i = 0; i < 600; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (!fs::exists(part)) continue;
    const auto info = kvscope_run({"info", part, "--json"});
    if (info.code == 0 && info.json().at("n_units") >= 2) break;
  }
  REQUIRE(program.is_running());
  program.send(signal);
  return program.wait();
}

TEST_CASE("Ctrl-C and SIGTERM leave a valid file marked as interrupted") {
  const TempDir dir;
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    const fs::path out = dir.path() / (std::to_string(signal) + ".h5");
    const auto run = stop_recording(out, signal);
    INFO(run.err);
    CHECK(run.code == code);
    CHECK_HAS(run.err, "interrupted");
    REQUIRE(fs::exists(out));
    CHECK_FALSE(fs::exists(out.string() + ".part"));
    const auto info = kvscope_run({"info", out.string(), "--json"}).json();
    CHECK(info.at("status") == "interrupted");
    CHECK(info.at("n_tokens") >= 128);
    CHECK(info.at("n_tokens") < 24000);
    CHECK(info.at("planned_tokens") == 24000);
    ran({"verify", out.string()});
  }
}

TEST_CASE("kill -9 leaves a .part that recover turns into a valid trace") {
  const TempDir dir;
  const fs::path out = dir.path() / "t.h5";
  CHECK(stop_recording(out, SIGKILL).code == 137);
  CHECK_FALSE(fs::exists(out));
  const std::string part = out.string() + ".part";
  CHECK_HAS(kvscope_run({"record", out.string(), "--max-tokens", "64"}).err, "kvscope recover");
  const auto recovered = ran({"recover", part, "--json"});
  CHECK(recovered.json().at("n_units") >= 2);
  ran({"verify", out.string()});
  CHECK(kvscope_run({"info", out.string(), "--json"}).json().at("status") == "recovered");
  CHECK(kvscope_run({"recover", part}).code == 3);  // the trace exists now
  ran({"recover", part, "--overwrite"});
}

TEST_CASE("kill -9 again and again, then --resume: the file of a run that was left alone") {
  const TempDir dir;
  const std::string out = dir.file("t.h5");
  const Words words = {"record", "--out",    out, "--max-tokens", "1600", "--chunk",
                       "64",     "--decode", "4", "--resume"};
  const RunSetup same_time{"", {"SOURCE_DATE_EPOCH=1700000000"}};
  ran(words, same_time);
  const std::string whole = read_file(out);
  fs::remove(out);
  std::mt19937 random(11);
  int n_kills = 0;
  for (int i = 0; i < 12 && !fs::exists(out); ++i) {
    RunningProgram program(words, same_time);
    std::this_thread::sleep_for(std::chrono::milliseconds(60 + random() % 300));
    program.send(SIGKILL);
    n_kills += program.wait().code == 137 ? 1 : 0;
  }
  INFO("killed " << n_kills << " times");
  CHECK(n_kills > 0);
  if (!fs::exists(out)) ran(words, same_time);
  CHECK((read_file(out) == whole));  // nothing to print
  ran({"verify", out});
}

TEST_CASE("Ctrl-C with --resume leaves a .part for the next run, and the next run takes it") {
  const TempDir dir;
  const std::string out = dir.file("t.h5");
  const Words words = {"record", "--out", out, "--max-tokens", "8000", "--chunk", "64", "--resume"};
  RunningProgram program(words);
  for (int i = 0; i < 600 && !fs::exists(out + ".part"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  program.send(SIGINT);
  const RunResult stopped = program.wait();
  CHECK(stopped.code == 130);
  CHECK_HAS(stopped.err, "the same command goes on with them");
  CHECK_FALSE(fs::exists(out));
  const RunResult run = ran(with(words, {"--json"}));
  CHECK(run.json().at("n_kept") > 0);
  CHECK(run.json().at("n_kept").get<int>() + run.json().at("n_prompt").get<int>() == 8000);
  // What cannot go on is said before anything is loaded, and what is another's stays.
  refused({"record", dir.file("u.h5"), "--resume", "--dtype", "bf16"}, 2, {"--resume", "rounded"});
  refused({"record", dir.file("u.h5"), "--resume", "--layers", "1"}, 2, {"--resume", "layers"});
}

TEST_CASE("verify finds a flipped byte, a truncation and a file of another kind") {
  const TempDir dir;
  const fs::path out = dir.path() / "t.h5";
  ran(draft_run(out, {"--max-tokens", "64"}));
  const std::string whole = read_file(out);
  std::string flipped = whole;
  flipped[whole.size() * 3 / 4] = static_cast<char>(flipped[whole.size() * 3 / 4] ^ 0x40);
  auto run = refused({"verify", dir.write("flipped.h5", flipped).string()}, 3, {"problem"});
  for (const char* command : {"verify", "info"}) {
    INFO(command);
    run = kvscope_run({command, dir.write("cut.h5", whole.substr(0, whole.size() / 2)).string()});
    CHECK(run.code == 3);
    run = kvscope_run({command, dir.write("text.h5", "no trace at all").string()});
    CHECK(run.code == 3);
    run = kvscope_run({command, dir.write("empty.h5", "").string()});
    CHECK(run.code == 3);
    run = kvscope_run({command, "/no/such/file.h5"});
    CHECK(run.code == 3);
    CHECK(run.err_is_one_line());
  }
}

TEST_CASE("verify says what it did not look at") {
  const TempDir dir;
  const std::string out = dir.file("b\xe9.h5");  // no UTF-8: every command takes it all the same
  ran(draft_run(out, {"--max-tokens", "64", "--capture", "no-qkv,attn"}));
  CHECK_HAS(ran({"verify", out}).err, "no attention was recomputed");
  CHECK(ran({"verify", out, "--json"}).json().at("notes").size() == 1);
  ran(draft_run(out, {"--max-tokens", "64", "--overwrite"}));
  for (const char* command : {"sweep", "cost"})
    ran({command, out, "--selector", "quest", "--budget", "16", "--hardware", "h200", "--json"});
}

TEST_CASE("info of a folder has a line for each recording, and names damaged ones") {
  const TempDir dir;
  const fs::path folder = dir.path() / "many";
  fs::create_directory(folder);
  fs::copy_file(recording(64), folder / "b.h5");
  fs::copy_file(recording(96), folder / "a.h5");
  std::ofstream(folder / "c.h5") << "no trace";
  std::ofstream(folder / "notes.txt") << "no recording";
  ran({"record", (folder / "s.h5").string(), "--max-tokens", "32"});
  const auto json = kvscope_run({"info", folder.string(), "--json"}).json();
  REQUIRE(json.at("n_files") == 4);
  CHECK(json.at("n_tokens") == 96 + 64 + 32);
  CHECK(json.at("n_damaged") == 1);
  auto alone = kvscope_run({"info", (folder / "a.h5").string(), "--json"}).json();
  CHECK(json.at("files")[0] == alone);
  const RunResult text = ran({"info", folder.string()});
  CHECK_HAS(text.out, "4 files, 192 tokens", "1 damaged", "damaged: ", "c.h5");
}

TEST_CASE("record --plan says the size and writes nothing") {
  const TempDir dir;
  const fs::path out = dir.path() / "t.h5";
  const auto plan =
      kvscope_run({"record", out.string(), "--max-tokens", "512", "--plan", "--json"}).json();
  CHECK(fs::is_empty(dir.path()));
  ran({"record", out.string(), "--max-tokens", "512"});
  const auto found = static_cast<double>(fs::file_size(out));
  CHECK(std::abs(plan.at("bytes").get<double>() - found) < 0.01 * found);
}

TEST_CASE("verify --time and --share say how much they looked at") {
  const std::string trace = recording(96);
  const RunResult part = ran({"verify", trace, "--share", "0.1"});
  CHECK_HAS(part.out, "nothing wrong in what was looked at", " of 16 layers' KV heads");
  const auto json = ran({"verify", trace, "--time", "0.001", "--json"}).json();
  CHECK(json.at("n_heads_checked").get<int>() < json.at("n_all_heads").get<int>());
  refused({"verify", trace, "--share", "0"}, 2, {"--share", "(0, 1]"});
  refused({"verify", trace, "--time", "0"}, 2, {"--time"});
}

TEST_CASE("progress goes to standard error in the form that was asked for") {
  const TempDir dir;
  const auto run = [&](const char* how) {
    const auto result = ran(draft_run(dir.path() / "t.h5", {"--max-tokens", "64", "--chunk", "16",
                                                            "--overwrite", "--progress", how}));
    CHECK(result.out.empty());
    return result.err;
  };
  CHECK_HAS(run("json"), "\"stage\":\"prefill\"");
  CHECK_HAS(run("plain"), "prefill: 64/64 tokens");
  CHECK_HAS(run("bar"), "100%");
  CHECK_THAT(run("none"), !has("prefill"));
  CHECK_THAT(run("auto"), !has("prefill"));  // not a terminal
}

#ifndef __SANITIZE_ADDRESS__  // a sanitizer's shadow memory is not the program's
// What a recording of n tokens may take: the weights as floats, the KV cache, and 512 MiB.
double allowed_kib(const std::string& model, int n_tokens) {
  const auto info = kvscope_run({"info", model, "--json"}).json();
  const double weights = 4.0 * info.at("n_parameters").get<double>();
  const double cache = 2.0 * 4.0 * n_tokens * info.at("n_layers").get<double>() *
                       info.at("n_kv").get<double>() * info.at("d_head").get<double>();
  return (weights + cache) / 1024.0 + 512.0 * 1024.0;
}

TEST_CASE("memory of a recording is bounded by model, cache and half a gigabyte") {
  const TempDir dir;
  const auto run = ran(draft_run(dir.path() / "t.h5", {"--max-tokens", "8000"}));
  CHECK(static_cast<double>(run.max_rss_kib) < allowed_kib("draft", 8000));
}

TEST_CASE("memory of a recording of 32k tokens is bounded", "[heavy]") {
  const TempDir dir;
  const auto run = ran({"record", dir.file("t.h5"), "--max-tokens", "32768"});
  INFO(run.max_rss_kib << " KiB");
  CHECK(static_cast<double>(run.max_rss_kib) < allowed_kib("verifier", 32768));
}
#endif

TEST_CASE("a model's name with a line break begins no line of its own") {
  const testing::TempDir dir;
  const auto model = dir.path() / "llm\nkvscope: fake line";
  std::filesystem::copy(testing::source_dir() / "traces/samples/draft", model);
  const auto run = ran({"record", dir.file("t.h5"), "--model", model.string(), "--max-tokens", "8",
                        "--layers", "0"});
  CHECK_HAS(run.err, "fake line");
  CHECK(run.err.find("\nkvscope: fake") == std::string::npos);
}

}  // namespace kvscope::test::record_test
