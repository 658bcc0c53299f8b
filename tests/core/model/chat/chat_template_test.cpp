// Chat templates: what Python's jinja2 makes of them byte by byte, hostile ones, where models keep
// theirs.
#include "core/model/chat/chat_template.hpp"

#include <nlohmann/json.hpp>

#include "core/base/data_dir.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/places.hpp"
#include "tests/support/test.hpp"

namespace kvscope::chat_template_test {

using nlohmann::ordered_json;

const fs::path kGolden = testing::source_dir() / "tests/golden/chat";

std::string rendered(const std::string& source, const std::string& words = "Hi") {
  const ChatTemplate chat(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, "TEST", "t.jinja");
  const ChatMessage message{"user", words};
  return chat.render({&message, 1});
}

TEST_CASE("templates give the bytes that Python's jinja2 gives") {
  const ordered_json golden = ordered_json::parse(testing::read_file(kGolden / "cases.json"));
  ChatTemplate::SpecialTokens special;
  for (const auto& [name, text] : golden["special"].items())
    special.emplace_back(name, text.get<std::string>());
  std::size_t n_compared = 0;
  for (const auto& [name, cases] : golden["cases"].items()) {
    const ChatTemplate chat(testing::read_file(kGolden / (name + ".jinja")), special, name, "");
    for (const auto& [said, expected] : cases.items()) {
      INFO(name << ", " << said);
      const auto render = [&] { return chat.render_values(golden["conversations"][said]); };
      if (expected.is_null()) {  // the template refuses the conversation, or fails on it
        CHECK_THROWS_AS(render(), FormatError);
      } else {
        CHECK(render() == expected.get<std::string>());
      }
      ++n_compared;
    }
  }
  CHECK(n_compared == 81);
}

std::string repeated(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

TEST_CASE("a template that is none, fails, or asks for too much is refused in a sentence") {
  const std::pair<std::string, const char*> cases[] = {
      {"a\n{% if %}", "line 2: TemplateSyntaxError: Expected an expression"},
      {"{{ messages|shout }}", "line 1: TemplateAssertionError: No filter named 'shout'"},
      {"\n\n{{ a.b.c }}", "line 3: UndefinedError: 'a' is undefined"},
      {"{{ 'a' + 1 }}", "line 1: TypeError: "},
      {"\n{{ raise_exception('no tools') }}", "line 2: TemplateError: it refuses the conversation"},
      {"{% include '/etc/passwd' %}", "line 1: TypeError: no loader"},
      {"{{ '\xff' }}", "in UTF-8"},
      {"{{ '\\ud800' }}", "UnicodeEncodeError"},
      {std::string(5 << 20, 'a'), "expected at most 4194304 bytes"},
      // what the sandbox is for
      {"{{ ''.__class__.__mro__ }}", "line 1: SecurityError: access to attribute '__class__'"},
      {"{{ messages.append(1) }}", "line 1: SecurityError: "},
      {"{{ range(1000000000) }}", "line 1: OverflowError: Range too big"},
      // what the limits of the process are for
      {"{% macro f(n) %}{{ f(n + 1) ~ f(n + 1) }}{% endmacro %}{{ f(0) }}", "RecursionError"},
      {"{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}"
       "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
       "line 1: MemoryError: it takes more than 512 MiB of memory"},
      {"{{ 'a' * 999999999999 }}", "MemoryError"},
      {"{% set x = 'a' * 1000000 %}{{ x.replace('a', x) }}", "MemoryError"},
      {"{{ messages[0].content * 35000000 }}", "at most 67108864 bytes"},
      {"{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}", "RecursionError"},
      {"{{ 1" + repeated(" + 1", 100'000) + " }}", ""},
      {repeated("{% if 1 %}", 100'000), ""}};
  for (const auto& [source, expected] : cases) {
    INFO(source.substr(0, 80));
    CHECK_SAYS_AS(Error, rendered(source), "chat template of TEST (t.jinja): ", expected);
  }
}

TEST_CASE("a template that does not end is stopped, and the next one is rendered", "[slow]") {
  const ChatTemplate chat(
      "{% if messages[0].content %}{% for i in range(99999) %}{% for j in range(99999) %}"
      "{% endfor %}{% endfor %}{% else %}done{% endif %}",
      {}, "TEST", "t.jinja");
  const ChatMessage messages[] = {{"user", "Hi"}, {"user", ""}};
  CHECK_SAYS_AS(FormatError, chat.render({messages, 1}),
                "line 1: TimeoutError: it takes more than 10 s");
  CHECK(chat.render({messages + 1, 1}) == "done");
}

TEST_CASE("a frame is what stands around a user's words") {
  const ChatTemplate chat(testing::read_file(kGolden / "frame.jinja"), {}, "M", "f");
  const ChatFrame frame = chat_frame(chat);
  CHECK(frame.before == "[rules] none [end]\n[user] ");
  CHECK(frame.after == " [end]\n[answer] ");
  CHECK(frame.between == " [end]\n[user] ");
  const auto frame_of = [](const char* source) {
    return chat_frame(ChatTemplate(source, {}, "M", "f"));
  };
  CHECK_SAYS_AS(FormatError, frame_of("{{ messages[0].content|upper }}"),
                "found them gone or changed");
  CHECK_SAYS_AS(FormatError, frame_of("{{ messages[0].content * 2 }}"), "found them twice");
}

TEST_CASE("a model's template is found where the hub and GGUF files keep it") {
  const testing::TempDir dir;
  const Tokenizer tokenizer = Tokenizer::load(embedded_verifier());
  const ChatMessage message{"user", "Hi"};
  const auto said = [&] {
    const auto chat = ChatTemplate::find(dir.path(), tokenizer);
    return chat ? chat->render({&message, 1}) : "none";
  };
  CHECK(said() == "none");
  dir.write("tokenizer_config.json", R"({"bos_token": {"content": "<b>"}, "eos_token": null})");
  CHECK(said() == "none");
  dir.write("chat_template.json", R"({"chat_template": "p{{ bos_token }}"})");
  CHECK(said() == "p<b>");
  dir.write(
      "tokenizer_config.json",
      R"({"bos_token": "<b>", "chat_template": "c{{ bos_token }}{{ messages[0].content }}"})");
  CHECK(said() == "c<b>Hi");
  dir.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                         {"name": "default", "template": "d"}]})");
  CHECK(said() == "d");
  dir.write("chat_template.jinja", "j{{ messages[0]['content'] }}");
  CHECK(said() == "jHi");
  fs::remove(dir.path() / "chat_template.jinja");
  dir.write("tokenizer_config.json", R"({"chat_template": [{"name": "a", "template": "t"},
                                         {"name": "b", "template": "d"}]})");
  CHECK_SAYS_AS(FormatError, said(), "one template of the name \"default\"");
  dir.write("tokenizer_config.json", R"({"chat_template": 7})");
  CHECK_THROWS_AS(said(), FormatError);
  dir.write("tokenizer_config.json", "{");
  CHECK_THROWS_AS(said(), FormatError);
}

TEST_CASE("a GGUF file's template knows the file's special tokens") {
  const testing::TempDir dir;
  testing::GgufBuilder builder;
  const fs::path file =
      dir.write("m.gguf", builder.string("general.architecture", "llama")
                              .string("tokenizer.ggml.model", "llama")
                              .strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a"})
                              .numbers("tokenizer.ggml.scores", std::vector<float>(4))
                              .u32("tokenizer.ggml.bos_token_id", 1)
                              .u32("tokenizer.ggml.eos_token_id", 2)
                              .string("tokenizer.chat_template", "{{ bos_token ~ eos_token }}!")
                              .bytes());
  const auto chat = ChatTemplate::find(file, Tokenizer::load(file));
  REQUIRE(chat);
  CHECK(chat->where() == "chat template of m.gguf (tokenizer.chat_template)");
  const ChatMessage message{"user", "Hi"};
  CHECK(chat->render({&message, 1}) == "<s></s>!");
}

TEST_CASE("long conversations are no hostile ones") {
  const std::string words(3'000'000, 'x');
  CHECK(rendered("{% for m in messages %}{{ '<u>' + m.content.strip() + '</u>' }}{% endfor %}",
                 words) == "<u>" + words + "</u>");
}

}  // namespace kvscope::chat_template_test
