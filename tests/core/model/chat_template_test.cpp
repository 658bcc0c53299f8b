// Chat templates: what Python's jinja2 makes of them byte by byte, hostile ones, where models keep
// theirs.
#include "core/model/chat/chat_template.hpp"

#include <chrono>
#include <nlohmann/json.hpp>

#include "core/base/data_dir.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/places.hpp"
#include "tests/support/test.hpp"

namespace kvscope::chat_template_test {

using nlohmann::ordered_json;

const fs::path kGolden = testing::source_dir() / "tests/golden/chat";

jinja::Value value_of(const ordered_json& json) {
  using jinja::Value;
  if (json.is_string()) return Value::text(json.get<std::string>());
  if (json.is_boolean()) return Value::truth(json.get<bool>());
  if (json.is_number_integer()) return Value::integer(json.get<std::int64_t>());
  if (json.is_number()) return Value::number(json.get<double>());
  if (json.is_array()) {
    std::vector<Value> items;
    for (const ordered_json& item : json) items.push_back(value_of(item));
    return Value::list(std::move(items));
  }
  if (json.is_object()) {
    std::vector<jinja::Entry> entries;
    for (const auto& [key, value] : json.items()) entries.emplace_back(key, value_of(value));
    return Value::mapping(std::move(entries));
  }
  return Value::none();
}

std::string rendered(const std::string& source, const std::string& words = "Hi") {
  const ChatTemplate chat(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, "TEST");
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
    const ChatTemplate chat(testing::read_file(kGolden / (name + ".jinja")), special, name);
    for (const auto& [said, expected] : cases.items()) {
      INFO(name << ", " << said);
      const ordered_json& conversation = golden["conversations"][said];
      std::vector<jinja::Entry> more;
      for (const auto& [key, value] : conversation.items())
        if (key != "messages") more.emplace_back(key, value_of(value));
      const auto render = [&] {
        return chat.render_values(value_of(conversation["messages"]), more);
      };
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

TEST_CASE("a template that does not end, or grows, is stopped with a sentence") {
  const std::string source = GENERATE(
      "{% for i in range(100000) %}{% for j in range(100000) %}{{ i }}{% endfor %}{% endfor %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(n) %}{{ f(n + 1) ~ f(n + 1) }}{% endmacro %}{{ f(0) }}",
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}"
      "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == ns.x }}{{ ns.x|tojson }}",
      "{% set ns = namespace(x=1) %}{% for i in range(9999999) %}{% endfor %}",
      "{{ 'a' * 999999999999 }}", "{{ range(1000000000)|length }}", "{{ 'a'|indent(9000000000) }}",
      "{{ {'a': 1}|tojson(indent=9000000000) }}",
      "{% set x = 'a' * 1000000 %}{{ x.replace('a', x) }}",
      "{% set x = 'a' * 1000000 %}{{ x.replace('', x) }}",
      "{% set x = 'ab' * 1000000 %}{% for i in range(100000) %}{% if 'c' in x %}{% endif %}"
      "{% endfor %}",
      "{% set x = range(100000)|list %}{% for i in x %}{% if i in x %}{% endif %}{% endfor %}",
      "{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 * 2 }}", "{{ 2 ** 99 }}",
      "{{ 1 % 0 }}", "{{ raise_exception('no') }}");
  INFO(source);
  const auto start = std::chrono::steady_clock::now();
  CHECK_SAYS_AS(FormatError, rendered(source), "chat template of TEST: line 1: ");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("what nests too deep to run or to read is refused") {
  const auto repeated = [](const std::string& text, int n) {
    std::string all;
    for (int i = 0; i < n; ++i) all += text;
    return all;
  };
  constexpr int kMany = 100'000;
  for (const std::string& source :
       {"{{ " + repeated("(", kMany) + "1" + repeated(")", kMany) + " }}",
        "{{ " + repeated("[", kMany) + repeated("]", kMany) + " }}",
        "{{ a" + repeated(".a", kMany) + " }}", "{{ 1" + repeated(" + 1", kMany) + " }}",
        "{{ " + repeated("not ", kMany) + "1 }}", "{{ " + repeated("-", kMany) + "1 }}",
        "{{ a" + repeated("|list", kMany) + " }}", repeated("{% if 1 %}", kMany),
        "{% if 1 %}" + repeated("{% elif 1 %}", kMany) + "{% endif %}",
        "{{ 1" + repeated(" if 1 else 1", kMany) + " }}"}) {
    INFO(source.substr(0, 40));
    CHECK_THROWS_AS(rendered(source), FormatError);
  }
  // A ring of namespaces is let go of.
  CHECK(rendered("{% set a = namespace() %}{% set a.a = a %}{{ a.a.a is defined }}") == "True");
}

TEST_CASE("what is no template is refused with the line and what was expected") {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{% if %}", "line 2: expected a value, found %}"},
      {"{% if 1 %}", "expected {% elif or else or endif %}, found its end"},
      {"{{ 1", "a tag does not end: expected }}"},
      {"{# 1", "a comment {# does not end"},
      {"{{ 'a }}", "a string does not end"},
      {"{% include 'x' %}", "expected if, for, set, macro, generation"},
      {"{{ (1] }}", "unexpected ]"},
      {"{{ a ! b }}", "unexpected \"!\""},
      {"{% break %}", "or break or continue in a loop"},
      {"{{ messages|shout }}", "filter shout is not known here"},
      {"{{ 1 is green }}", "test green is not known here"},
      {"{{ messages.append(1) }}", "a list has no method append that templates may call"},
      {"{{ a.b.c }}", "there is no b of an undefined value"},
      {"{{ a() }}", "a is called, but it is undefined"},
      {"{{ 'a' + 1 }}", "a text + a whole number has no meaning"},
      {"{{ raise_exception('no tools') }}", "it refuses the conversation: \"no tools\""}};
  for (const auto& [source, expected] : cases) {
    INFO(source);
    CHECK_SAYS_AS(FormatError, rendered(source), expected);
  }
  CHECK_THROWS_AS(rendered("\xFF"), FormatError);
}

TEST_CASE("a frame is what stands around a user's words") {
  const ChatTemplate chat(testing::read_file(kGolden / "frame.jinja"), {}, "M");
  const ChatFrame frame = chat_frame(chat);
  CHECK(frame.before == "[rules] none [end]\n[user] ");
  CHECK(frame.after == " [end]\n[answer] ");
  CHECK(frame.between == " [end]\n[user] ");
  const auto frame_of = [](const char* source) {
    return chat_frame(ChatTemplate(source, {}, "M"));
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
  CHECK(chat->where() == "chat template of m.gguf");
  const ChatMessage message{"user", "Hi"};
  CHECK(chat->render({&message, 1}) == "<s></s>!");
}

TEST_CASE("long conversations are no hostile ones") {
  const std::string words(3'000'000, 'x');
  CHECK(rendered("{% for m in messages %}{{ '<u>' + m.content.strip() + '</u>' }}{% endfor %}",
                 words) == "<u>" + words + "</u>");
}

}  // namespace kvscope::chat_template_test
