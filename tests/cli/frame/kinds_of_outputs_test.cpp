// No command replaces what is not of the kind that it writes, whatever --overwrite says; work that
// is finished already is said to be complete.
#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"

namespace kvscope::test::kinds_of_outputs_test {

TEST_CASE("no command that writes replaces a file of another kind") {
  const TempDir dir;
  const std::string trace = recording(64);
  const std::string table = dir.file("sweep.csv");
  const Words sweep = {"sweep", trace, "--selector", "quest", "--budget", "8", "--resamples", "5"};
  ran(with(sweep, {"--out", table}));
  const std::string result = dir.file("result.h5");
  ran(with(sweep, {"--out", result}));
  struct Writer {
    Words command;
    std::string ending;
    std::string own;  // a file that it may replace is made of this one; no other of `others`
  };
  const std::vector<Writer> writers = {
      {{"record", "--max-tokens", "8"}, ".h5", trace},
      {sweep, ".h5", result},
      {sweep, ".csv", table},
      {sweep, ".json", ""},
      {{"analyze", "quest", trace}, ".h5", result},
      {{"fit", "kascade", trace}, ".json", ""},
      {{"table", table, "--rows", "selector", "--columns", "budget", "--value", "mass_mean"},
       ".tex",
       ""},
      {{"export", trace, "--html"}, ".html", ""},
      {{"notebook", "recall", result}, ".ipynb", ""}};
  std::vector<std::string> others = {
      trace,
      result,
      table,
      dir.write("model.gguf", std::string("GGUF\3\0\0\0", 8)).string(),
      dir.write("book", "Once upon a time, there was a text.\n").string(),
      dir.write("foreign", std::string("\1\0\2", 3)).string(),
      dir.write("config", "{\"hidden_size\": 8}\n").string(),
      dir.write("session", "{\"kind\": \"kvscope-session\"}\n").string(),
      dir.write("manifest", "{\"format\": \"kvscope-figure\"}\n").string(),
      dir.write("journal", "{\"sum\":\"0123456789abcdef\",\"data\":{}}\n").string()};
  for (const Writer& writer : writers) {
    for (const std::string& other : others) {
      if (other == writer.own) continue;
      for (const char* link : {"copy", "hard", "soft"}) {
        const fs::path out = dir.path() / (std::string("out") + writer.ending);
        fs::remove(out);
        const std::string file = dir.file("other");
        fs::copy_file(other, file, fs::copy_options::overwrite_existing);
        if (std::string_view(link) == "copy") fs::copy_file(file, out);
        if (std::string_view(link) == "hard") fs::create_hard_link(file, out);
        if (std::string_view(link) == "soft") fs::create_symlink(file, out);
        const RunResult run =
            kvscope_run(with(writer.command, {"--out", out.string(), "--overwrite"}));
        INFO(writer.command[0] << writer.ending << " over " << other << " (" << link << ")");
        INFO(run.err);
        CHECK(run.code == 3);
        CHECK(read_file(out) == read_file(other));
        fs::remove(out);
        fs::remove(file);
      }
    }
  }
}

TEST_CASE("record says what was probably meant by an input as its output") {
  const TempDir dir;
  const std::string model = dir.write("m.gguf", std::string("GGUF\3\0\0\0", 8)).string();
  const std::string text = dir.write("book.txt", "Once upon a time\n").string();
  refused({"record", model, "--overwrite"}, 3, {"a GGUF model", "--model " + model});
  refused({"record", text}, 3, {"a text", "--text " + text});
  refused({"record", "Once upon a time"}, 2, {"ends in .h5", "--prompt"});
}

TEST_CASE("finished work is complete with --resume, and other work is not") {
  const TempDir dir;
  const Words record = {"record", dir.file("t.h5"), "--max-tokens", "8", "--resume"};
  ran(record);
  const std::string before = read_file(dir.file("t.h5"));
  const std::string left = dir.write("t.h5.0123456789abcdef.part", "x").string();
  CHECK_HAS(ran(record).err, "is complete");
  CHECK(read_file(dir.file("t.h5")) == before);
  CHECK_FALSE(fs::exists(left));
  CHECK_HAS(kvscope_run({"record", dir.file("t.h5"), "--max-tokens", "9", "--resume"}).err,
            "another recording");
  for (const char* name : {"s.csv", "s.json", "s.h5"}) {
    const auto sweep = [&](const char* budget) {
      return Words{"sweep", recording(64), "--selector",   "quest",   "--budget",
                   budget,  "--out",       dir.file(name), "--resume"};
    };
    ran(sweep("8"));
    CHECK_HAS(ran(sweep("8")).err, "is complete");
    refused(sweep("9"), 3, {"another configuration"});
    if (!std::string_view(name).ends_with("5")) {  // a row of another method
      const std::string whole = read_file(dir.file(name));
      std::string changed = whole;
      dir.write(name, changed.replace(changed.rfind("quest"), 5, "quoka"));
      refused(sweep("8"), 3, {"--overwrite replaces it"});
      dir.write(name, whole);
    }
    fs::resize_file(dir.file(name), fs::file_size(dir.file(name)) * 3 / 4);
    refused(sweep("8"), 3, {"--overwrite replaces it"});  // cut
  }
}

TEST_CASE("record --chat ends with the answer, which --past-end goes on behind") {
  const TempDir dir;
  const fs::path model = dir.path() / "m";
  fs::copy(testing::source_dir() / "traces/samples/draft", model);
  auto config = nlohmann::json::parse(read_file(model / "config.json"));
  config["eos_token_id"] = nlohmann::json::array();
  for (int id = 0; id < config.at("vocab_size"); ++id) config["eos_token_id"].push_back(id);
  std::ofstream(model / "config.json") << config.dump();
  std::ofstream(model / "chat_template.jinja")
      << "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% endfor %}";
  const std::string out = dir.file("t.h5");
  const Words chat = {"record", out,        "--model", model.string(), "--prompt", "The key is",
                      "--chat", "--decode", "8"};
  CHECK_HAS(ran(chat).err, "the answer ended before 8 decode steps", "+ 1 decoded");
  CHECK_HAS(ran(with(chat, {"--resume"})).err, "is complete");
  CHECK_HAS(kvscope_run(with(chat, {"--resume", "--past-end"})).err, "another recording");
  ran({"verify", out});
  CHECK(ran({"info", out, "--json"}).json().at("planned_tokens") ==
        ran({"info", out, "--json"}).json().at("n_tokens").get<int>() + 7);
  CHECK_HAS(ran(with(chat, {"--past-end", "--overwrite"})).err, "+ 8 decoded");
}

TEST_CASE("settings that change what another program decodes are told, and refused by --strict") {
  const TempDir dir;
  const fs::path model = dir.path() / "m";
  fs::copy(testing::source_dir() / "traces/samples/draft", model);
  const auto say = [&](const char* settings) {
    std::ofstream(model / "generation_config.json", std::ios::trunc) << settings;
  };
  const Words decode = {"record",     dir.file("t.h5"), "--model", model.string(), "--prompt",
                        "The key is", "--decode",       "2",       "--overwrite"};
  say(R"({"do_sample": true, "temperature": 0.6, "repetition_penalty": 1.0, "num_beams": 1,
          "suppress_tokens": [], "min_length": 0, "bad_words_ids": null})");
  ran(with(decode, {"--strict"}));
  say(R"({"repetition_penalty": 1.1, "suppress_tokens": [5, 7]})");
  CHECK_HAS(ran(decode).err, "repetition_penalty = 1.1, suppress_tokens = [5,7]", "not applied");
  refused(with(decode, {"--strict"}), 3, {"repetition_penalty = 1.1", "without --strict"});
}

}  // namespace kvscope::test::kinds_of_outputs_test
