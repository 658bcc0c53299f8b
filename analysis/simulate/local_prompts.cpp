#include "analysis/simulate/local_prompts.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "analysis/simulate/prompt_kit.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMostBytes = std::size_t{256} << 20;
constexpr std::int64_t kMostNewTokens = 100'000;

std::vector<std::string> answers_of(const JsonObject& line) {
  const std::string field = line.has("answers") && !line.has("answer") ? "answers" : "answer";
  const nlohmann::json& value = line.require(field);
  std::vector<std::string> answers;
  for (const nlohmann::json& one : value.is_array() ? value : nlohmann::json::array({value})) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty())
      line.refuse(field, "a text or a list of texts, none of them empty");
    answers.push_back(one.get<std::string>());
  }
  if (answers.empty()) line.refuse(field, "at least one text");
  return answers;
}

}  // namespace

std::vector<LocalExample> read_local_examples(const std::filesystem::path& file) {
  const std::string text = read_whole_file(file, kMostBytes);
  std::vector<LocalExample> examples;
  std::size_t number = 0;
  for (const std::string& line : split_words(text, '\n')) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}, line {}", file.filename().string(), number);
    const nlohmann::json value = parse_json(line, where);
    const JsonObject object(value, where);
    LocalExample example;
    example.context = object.string("context");
    example.question = object.string_if("question").value_or("");
    example.answer_prefix = object.string_if("answer_prefix").value_or("");
    example.answers = answers_of(object);
    example.max_new_tokens = object.integer_or("max_new_tokens", 1, kMostNewTokens, 32);
    examples.push_back(std::move(example));
  }
  if (examples.empty()) {
    throw FormatError(
        "{}: expected one JSON object a line with context, question, answer_prefix, answer and "
        "max_new_tokens, found none",
        file.filename().string());
  }
  return examples;
}

std::string text_of(const std::vector<LocalExample>& examples) {
  std::string text;
  for (const LocalExample& example : examples) {
    text += fmt::format("{}\1{}\1{}\1{}\1{}\n", example.context, example.question,
                        example.answer_prefix, fmt::join(example.answers, "\2"),
                        example.max_new_tokens);
  }
  return text;
}

Prompt make_local_prompt(const LocalExample& example, const PromptSpec& spec,
                         const Tokenizer& tokenizer) {
  const std::vector<TokenId> head = tokenizer.encode(head_text(spec, ""));
  std::vector<TokenId> context = tokenizer.encode(example.context);
  const std::vector<TokenId> question = tokenizer.encode(
      example.question + (spec.chat != nullptr ? spec.chat->after : "") + example.answer_prefix);
  const Index room = spec.length - static_cast<Index>(spec.leading.size() + head.size()) -
                     static_cast<Index>(question.size());
  if (room < 1) {
    throw ConfigError("prompt: a question of {} tokens does not fit into {} tokens",
                      question.size(), spec.length);
  }
  const auto n_kept = static_cast<std::size_t>(room);
  if (context.size() > n_kept) {
    const std::size_t n_head = n_kept - n_kept / 2;
    context.erase(context.begin() + static_cast<Index>(n_head),
                  context.end() - static_cast<Index>(n_kept / 2));
  }
  Prompt prompt;
  prompt.tokens = spec.leading;
  prompt.tokens.insert(prompt.tokens.end(), head.begin(), head.end());
  prompt.tokens.insert(prompt.tokens.end(), context.begin(), context.end());
  prompt.n_context = static_cast<Index>(prompt.tokens.size());
  prompt.tokens.insert(prompt.tokens.end(), question.begin(), question.end());
  if (prompt.n_context == static_cast<Index>(prompt.tokens.size())) --prompt.n_context;
  prompt.answers = example.answers;
  prompt.n_answer_tokens = example.max_new_tokens;
  return prompt;
}

}  // namespace kvscope
