#include "analysis/cli/inspect/explain_answer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "analysis/base/analysis.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/options/exit_code.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"
#include "core/base/version.hpp"
#include "core/trace/result.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

namespace {

constexpr std::size_t kShown = 8;  // rows of a table

/// What of one prompt is told.
class AnswerReport {
 public:
  AnswerReport(const AskedPrompt& asked, const AnswerBlame& blame, const Tokenizer& tokenizer,
               const ExplainAnswerOptions& options)
      : asked_(asked), blame_(blame), tokenizer_(tokenizer), options_(options) {}

  Json json() const {
    Json out = {{"prompt", asked_.name}};
    out.update(asked_.about);
    out["answer"] = words_of(&AnswerStep::dense);
    if (is_mended()) {
      out["alone"] = tokenizer_.decode(blame_.sparse_alone);
      out["mended_alone"] = tokenizer_.decode(blame_.mended_alone);
    }
    out["changed"] = blame_.changes();
    out["steps"] = Json::array();
    for (const AnswerStep& step : blame_.steps) {
      out["steps"].push_back({{"dense", token(step.dense)},
                              {"sparse", token(step.sparse)},
                              {"dense_surprise", step.dense_surprise},
                              {"sparse_surprise", step.sparse_surprise},
                              {"kl", step.kl}});
      if (is_mended())
        out["steps"].back().update({{"mended", token(step.mended)},
                                    {"mended_surprise", step.mended_surprise},
                                    {"mended_kl", step.mended_kl}});
    }
    if (!blame_.is_explained) return out;
    out["token"] = blame_.step + 1;
    out["position"] = blame_.position;
    if (blame_.n_runs == 0) return out;
    out["everything"] = json_of(blame_.everything);
    for (const auto& [key, list] :
         {std::pair{"layers", &blame_.layers}, std::pair{"heads", &blame_.heads},
          std::pair{"keys", &blame_.keys}}) {
      out[key] = Json::array();
      for (const Restored& one : *list) out[key].push_back(json_of(one));
    }
    out["all_heads"] = blame_.all_heads;
    if (!blame_.why_no_heads.empty()) out["why_no_heads"] = blame_.why_no_heads;
    out["runs"] = blame_.n_runs;
    out["sentence"] = sentence();
    return out;
  }

  /// `told`: json().
  std::string text(const Json& told) const {
    std::string out =
        fmt::format("{}: densely {}\n", asked_.name, quote(words_of(&AnswerStep::dense)));
    if (is_mended())
      return out +
             fmt::format(
                 "  under the method, fed its own tokens: {}\n  with these put back: {}\n{}\n",
                 quote(tokenizer_.decode(blame_.sparse_alone)),
                 quote(tokenizer_.decode(blame_.mended_alone)),
                 filled_table(told["steps"], {{"dense", "{dense:q}"},
                                              {"under method", "{sparse:q}"},
                                              {"put back", "{mended:q}"},
                                              {"surprise", "{dense_surprise:3}"},
                                              {"under method", "{sparse_surprise:3}"},
                                              {"put back", "{mended_surprise:3}"},
                                              {"KL", "{kl:3}"},
                                              {"put back", "{mended_kl:3}"}}));
    out += filled_table(told["steps"], {{"dense", "{dense:q}"},
                                        {"surprise", "{dense_surprise:3}"},
                                        {"under method", "{sparse:q}"},
                                        {"surprise of dense", "{sparse_surprise:3}"},
                                        {"KL", "{kl:3}"}});
    if (!blame_.is_explained) return out + "No token changes.\n\n";
    out += looks_text();
    if (blame_.n_runs > 0) out += "\n" + sentence() + "\n" + tables(told);
    return out + "\n";
  }

  /// The heads that look at the fact, as rows of a table.
  void add_rows(Json& rows) const {
    for (const HeadLook& look : blame_.looks) {
      if (!(look.dense_weight >= options_.least)) continue;
      const bool is_ranked = look.rank > 0;
      Json row = asked_.about;
      row.erase("expected");
      row.update({{"step", blame_.step},
                  {"layer", look.layer},
                  {"q_head", look.q_head},
                  {"dense_weight", look.dense_weight},
                  {"weight", look.weight},
                  {"kept", look.kept},
                  {"fact_tokens", asked_.fact.size()},
                  {"rank", is_ranked ? Json(look.rank) : Json(nullptr)},
                  {"scored", look.scored},
                  {"budget", look.budget},
                  {"margin", json_number(is_ranked ? look.score - look.cut : kNan)}});
      rows.push_back(std::move(row));
    }
  }

  std::string sentence() const {
    const AnswerStep& step = blame_.steps[static_cast<std::size_t>(blame_.step)];
    std::string out = fmt::format("Token {} ({}, predicted at position {}): ", blame_.step + 1,
                                  quote(token(step.dense)), blame_.position);
    const double lost = step.sparse_surprise - step.dense_surprise;
    if (std::isnan(blame_.everything.recovered) || lost < 0.0)
      return out + fmt::format("nothing is lost ({:.3f} nats).", lost);
    out += fmt::format(
        "under the method {:.3f} nats are lost; all keys put back in {} bring {} of "
        "them back",
        lost, options_.every_call ? "every call" : "its call",
        recovered_text(blame_.everything.recovered));
    const auto heads = ranked(blame_.heads);
    if (!heads.empty())
      out += fmt::format("; head {} of layer {} alone {}{}", heads[0]->what.q_head,
                         heads[0]->what.layer, recovered_text(heads[0]->recovered),
                         verdict(*heads[0]));
    if (!blame_.keys.empty()) {
      const Restored& key = blame_.keys[0];
      out += fmt::format("; key {} ({}) of head {} of layer {} alone {}{}", key.what.key,
                         quote(prompt_token(key.what.key)), key.what.q_head, key.what.layer,
                         recovered_text(key.recovered), verdict(key));
    }
    out += fmt::format(". {} runs.", blame_.n_runs);
    if (!options_.every_call && blame_.everything.recovered < 0.5)
      out += " The rest was lost in earlier calls: --every-call.";
    return out;
  }

 private:
  bool is_mended() const { return !blame_.mended_alone.empty(); }

  std::string looks_text() const {
    if (asked_.fact.empty()) return "";
    Json looks = Json::array();
    add_rows(looks);
    std::size_t at = 0;
    for (const HeadLook& look : blame_.looks) {
      if (!(look.dense_weight >= options_.least)) continue;
      Json& row = looks[at++];
      row["kept"] =
          look.answered ? fmt::format("{} of {}", look.kept, asked_.fact.size()) : "dense";
      if (!look.answered) row["budget"] = nullptr;
      if (look.rank == 0) row["scored"] = nullptr;
    }
    if (looks.empty())
      return fmt::format(
          "\nDensely no head puts {} or more of its attention on the fact (--least).\n",
          percent_text(options_.least));
    return fmt::format("\nheads that look at the fact, when token {} is due\n{}", blame_.step + 1,
                       filled_table(looks, {{"layer", "{layer}"},
                                            {"q_head", "{q_head}"},
                                            {"dense weight", "{dense_weight:3}"},
                                            {"weight under method", "{weight:3}"},
                                            {"fact kept", "{kept}"},
                                            {"rank", "{rank}"},
                                            {"of", "{scored}"},
                                            {"budget", "{budget}"},
                                            {"margin", "{margin:3}"}}));
  }

  std::string verdict(const Restored& one) const {
    const AnswerStep& step = blame_.steps[static_cast<std::size_t>(blame_.step)];
    if (step.dense == step.sparse || one.says != step.dense) return "";
    return fmt::format(", and the model says {} again", quote(token(step.dense)));
  }

  std::string tables(const Json& told) const {
    std::string out = "\nput back, a layer at a time\n" +
                      filled_table(told["layers"], {{"layer", "{layer}"},
                                                    {"comes back", "{recovered:back}"},
                                                    {"says", "{says:q}"}});
    if (!blame_.why_no_heads.empty()) return out + blame_.why_no_heads + "\n";
    const auto heads = ranked(blame_.heads);
    Json best = Json::array();
    for (std::size_t i = 0; i < std::min(heads.size(), kShown); ++i)
      best.push_back(json_of(*heads[i]));
    out += fmt::format("\nput back, a query head at a time, the best of {}{}\n{}", heads.size(),
                       blame_.all_heads ? "" : " (--runs left the others out)",
                       filled_table(best, {{"layer", "{layer}"},
                                           {"q_head", "{q_head}"},
                                           {"comes back", "{recovered:back}"},
                                           {"says", "{says:q}"}}));
    Json keys = Json::array();
    for (std::size_t i = 0; i < std::min(blame_.keys.size(), kShown); ++i)
      keys.push_back(json_of(blame_.keys[i]));
    if (keys.empty()) return out;
    return out + fmt::format("\nput back, a key at a time, the best of {}\n{}", blame_.keys.size(),
                             filled_table(keys, {{"layer", "{layer}"},
                                                 {"q_head", "{q_head}"},
                                                 {"key", "{key}"},
                                                 {"token", "{text:q}"},
                                                 {"weight under method", "{weight:3}"},
                                                 {"comes back", "{recovered:back}"},
                                                 {"says", "{says:q}"}}));
  }

  Json json_of(const Restored& one) const {
    Json out = Json::object();
    if (one.what.layer >= 0) out["layer"] = one.what.layer;
    if (one.what.q_head >= 0) out["q_head"] = one.what.q_head;
    if (one.what.key >= 0)
      out.update(
          {{"key", one.what.key}, {"text", prompt_token(one.what.key)}, {"weight", one.weight}});
    out.update({{"surprise", one.surprise},
                {"recovered", json_number(one.recovered)},
                {"says", token(one.says)}});
    return out;
  }

  std::string token(TokenId id) const { return tokenizer_.decode({&id, 1}); }
  std::string prompt_token(Index key) const {
    const auto at = static_cast<std::size_t>(key);
    if (at < asked_.tokens.size()) return token(asked_.tokens[at]);
    return token(blame_.steps[at - asked_.tokens.size()].dense);
  }
  std::string words_of(TokenId AnswerStep::*which) const {
    std::vector<TokenId> ids;
    for (const AnswerStep& step : blame_.steps) ids.push_back(step.*which);
    return tokenizer_.decode(ids);
  }

  const AskedPrompt& asked_;
  const AnswerBlame& blame_;
  const Tokenizer& tokenizer_;
  const ExplainAnswerOptions& options_;
};

/// A row of `shape` for each prompt, which `fill` fills where it has something.
template <class Fill>
void write_rows(ResultWriter& output, const std::string& name, const Shape& shape,
                std::vector<std::string> axes, const std::string& units, const std::string& text,
                std::span<const AnswerBlame> blames, const Fill& fill) {
  Shape all{n_of(blames)};
  for (int axis = 0; axis < shape.rank; ++axis)
    all.dim[static_cast<std::size_t>(all.rank++)] = shape[axis];
  axes.insert(axes.begin(), "prompt");
  output.declare({name, ResultType::f64, all, std::move(axes), units, text});
  for (Index i = 0; i < n_of(blames); ++i) {
    std::vector<double> row(static_cast<std::size_t>(shape.count()), kNan);
    fill(blames[static_cast<std::size_t>(i)], row);
    output.write<double>(name, i, row);
  }
}

/// Arrays of several prompts, NaN where one has nothing.
void write_blames(std::span<const AnswerBlame> blames, const ModelConfig& config,
                  ResultWriter& output) {
  write_axis(output, "layer", all_in(0, config.n_layers), "1", "layer");
  write_axis(output, "q_head", all_in(0, config.n_q), "1", "query head");
  Index n_steps = 0;
  for (const AnswerBlame& blame : blames) n_steps = std::max(n_steps, n_of(blame.steps));
  const auto steps = [&](const char* name, const char* text, double AnswerStep::*number) {
    write_rows(output, name, {n_steps}, {"step"}, "nat", text, blames,
               [&](const AnswerBlame& blame, std::vector<double>& row) {
                 std::ranges::transform(blame.steps, row.begin(),
                                        [&](const AnswerStep& step) { return step.*number; });
               });
  };
  steps("steps/dense_surprise", "surprise of the dense model's token, densely",
        &AnswerStep::dense_surprise);
  steps("steps/sparse_surprise", "surprise of the dense model's token under the method",
        &AnswerStep::sparse_surprise);
  steps("steps/kl", "KL of the next token's distributions, dense to sparse", &AnswerStep::kl);
  const char* const share = "share of the loss that comes back";
  write_rows(output, "layers/recovered", {config.n_layers}, {"layer"}, "1", share, blames,
             [](const AnswerBlame& blame, std::vector<double>& row) {
               for (const Restored& one : blame.layers)
                 row[static_cast<std::size_t>(one.what.layer)] = one.recovered;
             });
  write_rows(output, "heads/recovered", {config.n_layers, config.n_q}, {"layer", "q_head"}, "1",
             share, blames, [&](const AnswerBlame& blame, std::vector<double>& row) {
               for (const Restored& one : blame.heads)
                 row[static_cast<std::size_t>(one.what.layer * config.n_q + one.what.q_head)] =
                     one.recovered;
             });
}

}  // namespace

void ExplainAnswerOptions::declare(OptionSet& options) {
  options.add("prompt", "WORDS",
              "explain what the model says after these words (@FILE: a file's) instead of needles",
              words);
  options.add("n-new", "N", "with --prompt: tokens of the answer", n_new, in(1, 4096));
  options.add("token", "N",
              "the token that is explained, from 1 [the first that changes, else the one of "
              "largest KL]",
              token, at_least(1));
  options.flag("dense-prompt", "the method answers in the steps after the prompt alone",
               dense_prompt);
  options.flag("every-call",
               "put back in every call, not in the token's own alone; each run takes the whole "
               "prompt",
               every_call);
  options.add("runs", "N",
              "most runs of a prompt; beyond, heads of the layers that matter least are left out; "
              "0: nothing is put back",
              most_runs, in(0, 10'000'000));
  options.add("out", "FILE", "write an HDF5 file for the figure answer", out).short_name = 'o';
  options.flag("overwrite", "replace an existing file", overwrite);
  options.add("put-back", "WHAT",
              "put keys back and say how the answer goes on, instead of looking for what matters: "
              "LAYER, LAYER:HEAD, LAYER:HEAD:KEY or all; repeatable",
              put_back);
  options.add("which", "N", "with --put-back: of several prompts only this one, from 1", which,
              at_least(1));
  options.need({"which"}, {"put-back"});
  options.exclude({"put-back", "out"}, ": the file is of what is looked for");
  options.exclude_each({"lengths", "facts", "depths", "trials", "seed", "text"}, {"prompt"},
                       ": the first is of needles");
  options.need({"n-new"}, {"prompt"}, ": a needle's answer has its own length");
}

std::vector<PutBack> ExplainAnswerOptions::parsed_put_back() const {
  return as_usage([&] { return mapped<PutBack>(put_back, PutBack::parse); });
}

void ExplainAnswerOptions::check() const {
  parsed_put_back();
  if (out && most_runs == 0)
    throw UsageError("--out is of what comes back, and --runs 0 puts nothing back: use --json");
  if (out) check_new_output(*out, overwrite, FileKind::result);
}

int ExplainAnswerOptions::run(AnswerQuestion question, const Transformer& model,
                              const Tokenizer& tokenizer, const AnswerSource& source, Json config,
                              bool json, const std::string& command_line,
                              const WorkOptions& work) const {
  question.prefill = dense_prompt ? PrefillMode::dense : PrefillMode::sparse;
  if (token) question.token = *token - 1;
  question.every_call = every_call;
  question.only_changes = !all && !token;
  question.most_runs = most_runs;
  config.update({{"n_new", n_new},
                 {"token", or_null(token)},
                 {"dense_prompt", dense_prompt},
                 {"every_call", every_call},
                 {"runs", most_runs}});
  const std::vector<PutBack> back = parsed_put_back();
  if (!back.empty()) {
    question.back = back;
    config["put_back"] = put_back;
  }
  if (which && static_cast<std::size_t>(*which) > source.n_prompts)
    throw UsageError("--which {}: there are {} prompts", *which, source.n_prompts);
  Working run(work);
  Json prompts = Json::array();
  Json rows = Json::array();
  std::string text;
  std::vector<AnswerBlame> blames;
  std::size_t n_changed = 0;
  const std::size_t first = which ? static_cast<std::size_t>(*which) - 1 : 0;
  const std::size_t end = which ? first + 1 : source.n_prompts;
  for (std::size_t i = first; i < end; ++i) {
    const AskedPrompt asked = source.prompt(i);
    question.n_new = asked.n_new;
    if (back.empty()) question.watched = asked.fact;
    AnswerBlame blame =
        blame_answer(model, asked.tokens, question, run.pool, run.progress, run.stop);
    const AnswerReport told(asked, blame, tokenizer, *this);
    prompts.push_back(told.json());
    told.add_rows(rows);
    text += told.text(prompts.back());
    n_changed += blame.changes() ? 1 : 0;
    if (blame.is_explained) blames.push_back(std::move(blame));
  }
  const Json totals = {
      {"prompts", end - first}, {"changed", n_changed}, {"explained", blames.size()}};
  if (out && !blames.empty()) {
    ResultInfo info;
    info.kind = "explain-answer";
    info.config = config;
    info.command_line = command_line;
    info.writer = writer_name();
    const auto output = create_result_file(*out, overwrite);
    output->begin(info);
    write_blames(blames, model.config(), *output);
    output->finish({{"prompts", prompts}, {"totals", totals}});
  } else if (out) {
    note(
        "kvscope: {} was not written: no token of any answer changes (--all or --token explains "
        "one all the same)",
        out->string());
  }
  if (json) {
    print_json({{"kind", "explain-answer"},
                {"command_line", command_line},
                {"config", config},
                {"inputs", inputs_of({.config = config})},
                {"prompts", prompts},
                {"rows", rows},
                {"totals", totals}});
    return kOk;
  }
  print(text);
  if (!back.empty())
    print("explain: put back {}, in {}\n",
          fmt::join(mapped<std::string>(back, &PutBack::words), "; "),
          every_call ? "every call" : "the call of the explained token and those after it");
  print("explain: the answer changes in {} of {} prompts\n", n_changed, end - first);
  return kOk;
}

}  // namespace kvscope::cli
