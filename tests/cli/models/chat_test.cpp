// --chat: prompts in a model's own template, for every command that makes some.
#include "core/base/data_dir.hpp"
#include "tests/cli/run_program.hpp"

namespace kvscope::test::chat_test {

using nlohmann::json;

// The embedded verifier with a template.
struct ChatModel {
  TempDir dir;
  std::string path = dir.file("model");

  explicit ChatModel(const std::string& source) {
    fs::create_directories(path);
    for (const auto& entry : fs::directory_iterator(embedded_verifier()))
      fs::create_symlink(entry.path(), fs::path(path) / entry.path().filename());
    dir.write("model/chat_template.jinja", source);
  }
};

const std::string kTalk =
    "{% for m in messages %}{{ '{' + m.role + '} ' + m.content|trim + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '{assistant}' }}{% endif %}";

std::string text_of(const std::vector<std::string>& args) {
  std::string text;
  const json result = kvscope_run(with({"tokenize", "--json"}, args)).json();
  for (const json& piece : result.at("pieces")) text += piece.get<std::string>();
  return text;
}

TEST_CASE("tokenize shows what a template makes of a text") {
  const ChatModel model(kTalk);
  const Words ask = {"--model", model.path, "--prompt", " Who was it that spoke to Alan? ",
                     "--chat"};
  CHECK(text_of(ask) == "{user} Who was it that spoke to Alan?\n{assistant}");
  // What is cut is the user's text, not the template's.
  const std::string cut = text_of(with(ask, {"--max-tokens", "14"}));
  CHECK(cut.starts_with("{user} Who"));
  CHECK(cut.ends_with("\n{assistant}"));
  CHECK(cut.size() < text_of(ask).size());
  refused(with({"tokenize"}, with(ask, {"--max-tokens", "2"})), 3,
          {"chat template of model (chat_template.jinja) alone takes"});
  CHECK(kvscope_run({"tokenize", "--chat", "--decode", "5"}).code == 2);
}

TEST_CASE("a model without a template, and one with a broken one, are refused") {
  for (const Words& command :
       {Words{"tokenize", "--prompt", "a", "--chat"},
        Words{"record", "--prompt", "a", "--chat", "--out", "never.h5"},
        Words{"explain", "--chat", "--selector", "quoka", "--budget", "64"},
        Words{"simulate", "retrieval", "--chat", "--selector", "quoka", "--budget", "64"}}) {
    INFO(command.front());
    refused(command, 3, {"verifier has no chat template"});
  }
  const ChatModel broken("a\n{% if %}");
  refused({"tokenize", "--model", broken.path, "--prompt", "a", "--chat"}, 3,
          {"model (chat_template.jinja): line 2: TemplateSyntaxError"});
  CHECK(kvscope_run({"record", "--tokens", "x.json", "--chat", "--out", "never.h5"}).code == 2);
}

TEST_CASE("a Python that does not render is told of in a sentence") {
  const ChatModel model(kTalk);
  const auto check = [&](const std::string& script, int code, const std::string& message) {
    INFO(script);
    const fs::path python = model.dir.write("python", "#!/bin/sh\n" + script);
    fs::permissions(python, fs::perms::owner_all);
    const auto run = kvscope_run({"tokenize", "--model", model.path, "--prompt", "a", "--chat"},
                                 {"", {"KVSCOPE_PYTHON=" + python.string()}});
    CHECK(run.code == code);
    CHECK_HAS(run.err, message);
    CHECK(std::ranges::count(run.err, '\n') == 1);
  };
  check("exit 3", 2, "python, which renders chat templates, ended with code 3): install it (apt");
  check("printf '15\\n{\"error\": \"no\"}'", 2, "python: \"no\"): install it");
  check("yes", 2, "expected the length of an answer");
  const std::string ready = "printf '2\\n{}'; read length; ";
  check(ready + "kill -9 $$", 3, "model (chat_template.jinja): ");
  check(ready + "kill -9 $$", 3, "was ended by signal 9");
  check(ready + "printf '99999999999\\n'", 3, "at most 67108864 bytes");
  check(ready + "printf '2\\n{}'", 3, "text");
  check(ready + "printf '2\\n]['", 3, "answer of");
}

TEST_CASE("a recording says that its text stood in a template") {
  const ChatModel model(kTalk);
  const std::string trace = model.dir.file("t.h5");
  ran({"record", "--model", model.path, "--prompt", "Who was it?", "--chat", "--out", trace});
  CHECK_HAS(kvscope_run({"info", trace, "--json"}).out, "command line (chat: template of model)");
}

TEST_CASE("a simulation in chat says so in its table, configuration and rows") {
  const ChatModel model(kTalk);
  const Words ask = {"simulate",   "retrieval",  "--model",  model.path, "--kinds",   "multi_key",
                     "--selector", "full,quoka", "--budget", "64",       "--lengths", "512",
                     "--depths",   "1",          "--facts",  "2",        "--turns",   "2"};
  const auto plain = kvscope_run(with(ask, {"--json"})).json();
  CHECK_FALSE(plain.at("config").contains("chat"));
  CHECK_FALSE(plain.at("rows").at(0).contains("wording"));
  CHECK(kvscope_run(with(ask, {"--json", "--chat=never"})).json().at("config_hash") ==
        plain.at("config_hash"));

  const auto chat = kvscope_run(with(ask, {"--json", "--chat"})).json();
  CHECK(chat.at("config").at("chat") == "template of model");
  CHECK(chat.at("config").at("wordings").at("multi_key") == "chat");
  CHECK(chat.at("rows").at(0).at("wording") == "chat");
  CHECK(chat.at("config_hash") != plain.at("config_hash"));
  const auto shown = ran(with(ask, {"--chat=always", "--show-prompts", "1"}));
  CHECK_HAS(shown.out, "\n{user}");
  CHECK_THAT(shown.out, has("? {assistant} The magic number of the") ||
                            has("? {assistant}The magic number of the"));
  CHECK_HAS(shown.out, "{user} What is the magic number of the",
            "chat: template of model (multi_key)");
  CHECK(kvscope_run(with(ask, {"--chat=often"})).code == 2);
}

TEST_CASE("auto leaves kinds in plain words that the dense model answers") {
  const ChatModel model(
      "{{ messages[0].content }} Nothing? Nothing{{ "
      "messages[1:]|map(attribute='content')|join(' ') }}");
  const auto run = ran({"simulate", "retrieval", "--model", model.path, "--selector",
                        "streamingllm", "--budget", "64", "--lengths", "512", "--depths", "1",
                        "--trials", "1", "--kinds", "passkey,math_find", "--chat=auto", "--json"});
  const auto result = run.json();
  CHECK(result.at("config").at("wordings").at("passkey") == "plain");
  CHECK(result.at("config").at("wordings").at("math_find") == "plain");
  CHECK_HAS(run.err,
            "passkey is asked plainly: of 5 other prompts the dense "
            "model answers 100",
            "in its template");
  // Without a template there is no second try, and nothing is said.
  const auto none = ran({"simulate", "retrieval", "--selector", "streamingllm", "--budget", "64",
                         "--lengths", "512", "--depths", "1", "--chat=auto", "--json"});
  CHECK_FALSE(none.json().at("config").contains("chat"));
}

// A model that answers in its template alone: what it was trained to hear stands in the template.
TEST_CASE("auto chooses the template for what the dense model answers only there") {
  const ChatModel model(
      "{{ messages|map(attribute='content')|join(' ') }} What is the pass key? The pass key is");
  const TempDir dir;
  std::string lines;
  for (const char* key : {"48151", "62342", "16815", "30427"}) {
    lines += json{{"context", "It was late, and nobody was on the road. The pass key is " +
                                  std::string(key) + ". Remember it. " + key +
                                  " is the pass key. The rain had stopped, and we went on."},
                  {"question", " Then we spoke of it."},
                  {"answers", {key}},
                  {"max_new_tokens", 8}}
                 .dump() +
             "\n";
  }
  dir.write("asked.jsonl", lines);
  const Words ask = {"simulate",   "retrieval",
                     "--model",    model.path,
                     "--examples", dir.file("asked.jsonl"),
                     "--selector", "streamingllm",
                     "--budget",   "64",
                     "--lengths",  "512",
                     "--depths",   "1",
                     "--trials",   "4"};
  const auto accuracy = [&](const std::string& chat, const char* wording) {
    const auto run = ran(with(ask, {"--json", "--chat=" + chat}));
    const json result = run.json();
    if (result.at("config").contains("wordings"))
      CHECK(result.at("config").at("wordings").at("local") == wording);
    for (const json& row : result.at("rows"))
      if (row.at("selector") == "full") return row.at("accuracy").get<double>();
    return -1.0;
  };
  CHECK(accuracy("never", "plain") == 0.0);
  CHECK(accuracy("always", "chat") == 1.0);
  CHECK(accuracy("auto", "chat") == 1.0);
  const auto said = kvscope_run(with(ask, {"--chat=auto"}));
  CHECK_HAS(said.err, "local is asked in the template of model",
            "answers 0.0 % in plain words and 100.0 % in its");
  CHECK_HAS(said.out, "chat: template of model (local)");
}

TEST_CASE("explain asks in chat") {
  const ChatModel model(kTalk);
  const auto run = ran({"explain", "--model", model.path, "--chat", "--selector", "streamingllm",
                        "--budget", "64", "--lengths", "512", "--depths", "1", "--json"});
  CHECK(run.json().at("config").at("chat") == "template of model");
}

}  // namespace kvscope::test::chat_test
