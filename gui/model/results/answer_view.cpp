#include "gui/model/results/answer_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/shell_word.hpp"
#include "core/trace/result.hpp"
#include "gui/model/runs/child_program.hpp"

namespace kvscope::gui {

namespace {

std::vector<AnswerToken> tokens_of(const Json& steps) {
  std::vector<AnswerToken> tokens;
  for (const Json& step : steps) {
    tokens.push_back({.dense = step.at("dense").get<std::string>(),
                      .sparse = step.at("sparse").get<std::string>(),
                      .mended = step.value("mended", ""),
                      .dense_surprise = number_at(step, "dense_surprise"),
                      .sparse_surprise = number_at(step, "sparse_surprise"),
                      .mended_surprise = number_at(step, "mended_surprise")});
  }
  return tokens;
}

std::vector<BlamedKeys> blamed_of(const Json& prompt, const char* list) {
  std::vector<BlamedKeys> all;
  if (!prompt.contains(list)) return all;
  for (const Json& one : prompt[list]) {
    all.push_back({.what = {one.at("layer").get<Index>(), one.value("q_head", Index{-1}),
                            one.value("key", Index{-1})},
                   .text = one.value("text", ""),
                   .recovered = number_at(one, "recovered"),
                   .says = one.value("says", "")});
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, [](const BlamedKeys& keys) {
    return std::isnan(keys.recovered) ? -1e9 : keys.recovered;
  });
  return all;
}

/// As a message of a FormatError, whatever is wrong with the JSON.
template <class Read>
auto reading(const std::string& name, const Read& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    throw FormatError("{}: expected an explanation of answers, found: {}", name, error.what());
  }
}

}  // namespace

std::vector<ExplainedPrompt> explained_prompts(const ResultView& result) {
  return reading(result.name(), [&] {
    std::vector<ExplainedPrompt> prompts;
    for (const Json& json : result.summary().at("prompts")) {
      ExplainedPrompt prompt;
      prompt.name = json.at("prompt").get<std::string>();
      prompt.sentence = json.value("sentence", "");
      prompt.token =
          static_cast<std::size_t>(std::max<Index>(1, json.value("token", Index{1}))) - 1;
      prompt.tokens = tokens_of(json.at("steps"));
      prompt.layers = blamed_of(json, "layers");
      prompt.heads = blamed_of(json, "heads");
      prompt.keys = blamed_of(json, "keys");
      prompts.push_back(std::move(prompt));
    }
    return prompts;
  });
}

std::vector<std::string> put_back_words(const ResultView& result, std::size_t prompt,
                                        const std::vector<PutBack>& back) {
  const std::vector<std::string> all = words_of_line(result.info().command_line);
  if (all.size() < 2 || all[1] != "explain") {
    throw FormatError(
        "{}: it does not say with which command it was made, so nothing can be put back",
        result.name());
  }
  std::vector<std::string> words;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const bool has_value = all[i] == "--out" || all[i] == "-o" || all[i] == "--progress";
    if (has_value) ++i;
    // --answer: of explanations made before every one was of an answer
    if (has_value || all[i] == "--json" || all[i] == "--overwrite" || all[i] == "--answer" ||
        all[i].starts_with("--out=") || all[i].starts_with("--progress="))
      continue;
    words.push_back(all[i]);
  }
  for (const PutBack& what : back) {
    words.emplace_back("--put-back");
    words.push_back(what.text());
  }
  words.insert(words.end(), {"--which", fmt::format("{}", prompt + 1), "--json"});
  return words;
}

PutBackAnswer put_back_answer(const std::string& json) {
  const Json told = parse_ordered_json(json, "kvscope explain --put-back");
  return reading("kvscope explain --put-back", [&] {
    const Json& prompt = told.at("prompts").at(0);
    return PutBackAnswer{.tokens = tokens_of(prompt.at("steps")),
                         .dense = prompt.at("answer").get<std::string>(),
                         .sparse = prompt.at("alone").get<std::string>(),
                         .mended = prompt.at("mended_alone").get<std::string>()};
  });
}

PutBackAnswer run_put_back(const std::string& program, std::vector<std::string> words,
                           JobContext& job) {
  words.insert(words.begin(), program);
  words.insert(words.end(), {"--progress", "json"});
  return put_back_answer(answer_of_program(words, job));
}

}  // namespace kvscope::gui
