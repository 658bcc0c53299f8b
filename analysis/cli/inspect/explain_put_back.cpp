// kvscope explain --put-back: how an answer goes on with dropped keys put back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/inspect/explain_answer.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"
#include "core/trace/result.hpp"

namespace kvscope::cli {

namespace {

/// "layer 5, head 6, key 150".
std::string put_back_words(const PutBack& what) {
  if (what.layer < 0) return "all layers";
  std::string words = fmt::format("layer {}", what.layer);
  if (what.q_head >= 0) words += fmt::format(", head {}", what.q_head);
  if (what.key >= 0) words += fmt::format(", key {}", what.key);
  return words;
}

}  // namespace

PutBack parse_put_back(const std::string& text) {
  PutBack what;
  if (text == "all") return what;
  const std::vector<std::string> words = split_words(text, ':');
  const std::array<Index*, 3> parts = {&what.layer, &what.q_head, &what.key};
  bool is_right = !words.empty() && words.size() <= parts.size();
  for (std::size_t i = 0; is_right && i < words.size(); ++i) {
    const char* const end = words[i].data() + words[i].size();
    const auto read = std::from_chars(words[i].data(), end, *parts[i]);
    is_right = read.ec == std::errc() && read.ptr == end && *parts[i] >= 0;
  }
  if (!is_right)
    throw UsageError("--put-back: expected LAYER, LAYER:HEAD, LAYER:HEAD:KEY or all, found {}",
                     text);
  return what;
}

int ExplainAnswerOptions::run_mended(const AnswerQuestion& asked_question, const Transformer& model,
                                     const Tokenizer& tokenizer, const AnswerSource& source,
                                     Json config, bool json, const std::string& command_line,
                                     const WorkOptions& work) const {
  std::vector<PutBack> back;
  for (const std::string& what : put_back) back.push_back(parse_put_back(what));
  if (which && static_cast<std::size_t>(*which) > source.n_prompts)
    throw UsageError("--which {}: there are {} prompts", *which, source.n_prompts);
  config["put_back"] = put_back;
  AnswerQuestion question = asked_question;
  Working run(work);
  const auto decoded = [&](std::span<const TokenId> ids) { return tokenizer.decode(ids); };
  const auto word = [&](TokenId id) { return decoded({&id, 1}); };
  Json prompts = Json::array();
  std::string text;
  const std::size_t first = which ? static_cast<std::size_t>(*which) - 1 : 0;
  for (std::size_t i = first; i < (which ? first + 1 : source.n_prompts); ++i) {
    const AskedPrompt asked = source.prompt(i);
    question.n_new = asked.n_new;
    const MendedAnswer mended =
        mend_answer(model, asked.tokens, question, back, run.pool, run.progress, run.stop);
    std::vector<TokenId> dense;
    for (const AnswerStep& step : mended.steps) dense.push_back(step.dense);
    Json told = {{"prompt", asked.name}};
    told.update(asked.about);
    told.update({{"answer", decoded(dense)},
                 {"alone", decoded(mended.sparse_alone)},
                 {"mended_alone", decoded(mended.mended_alone)},
                 {"token", mended.step + 1},
                 {"position", mended.position},
                 {"steps", Json::array()}});
    for (std::size_t s = 0; s < mended.steps.size(); ++s) {
      const AnswerStep& step = mended.steps[s];
      const MendedStep& now = mended.mended[s];
      told["steps"].push_back({{"dense", word(step.dense)},
                               {"sparse", word(step.sparse)},
                               {"mended", word(now.says)},
                               {"dense_surprise", step.dense_surprise},
                               {"sparse_surprise", step.sparse_surprise},
                               {"mended_surprise", now.surprise},
                               {"kl", step.kl},
                               {"mended_kl", now.kl}});
    }
    const std::string steps = filled_table(told["steps"], {{"dense", "{dense:q}"},
                                                           {"under method", "{sparse:q}"},
                                                           {"put back", "{mended:q}"},
                                                           {"surprise", "{dense_surprise:3}"},
                                                           {"under method", "{sparse_surprise:3}"},
                                                           {"put back", "{mended_surprise:3}"},
                                                           {"KL", "{kl:3}"},
                                                           {"put back", "{mended_kl:3}"}});
    prompts.push_back(told);
    text += fmt::format(
        "{}: densely {}\n  under the method, fed its own tokens: {}\n  with these "
        "put back: {}\n{}\n",
        asked.name, quote(decoded(dense)), quote(decoded(mended.sparse_alone)),
        quote(decoded(mended.mended_alone)), steps);
  }
  if (json) {
    print_json({{"kind", "explain-answer-mended"},
                {"command_line", command_line},
                {"config", config},
                {"inputs", inputs_of({.config = config})},
                {"prompts", prompts}});
    return kOk;
  }
  std::vector<std::string> names;
  for (const PutBack& what : back) names.push_back(put_back_words(what));
  print("{}explain: put back {}, in {}\n", text, fmt::join(names, "; "),
        every_call ? "every call" : "the call of the explained token and those after it");
  return kOk;
}

}  // namespace kvscope::cli
