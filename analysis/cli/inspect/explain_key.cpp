#include "analysis/cli/inspect/explain_key.hpp"

#include <fmt/format.h>

#include "analysis/base/number_formats.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/signals.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {

namespace {

std::string word_of(const std::vector<std::string>& texts, Index pos) {
  return pos >= 0 && pos < static_cast<Index>(texts.size())
             ? quote(texts[static_cast<std::size_t>(pos)])
             : std::string("-");
}

std::string list_words(const QueryLook& look) {
  if (look.is_dense) return "everything";
  const TokenRange heads = look.owner_heads;
  return fmt::format("{} keys with {} of its attention; the list {}", look.kept.size(),
                     percent_text(look.kept_mass),
                     heads.size() == 1
                         ? std::string("is the head's own")
                         : fmt::format("serves heads {} to {}", heads.begin, heads.end - 1));
}

Json json_of(const QueryLook& look, const KeyOutcome& outcome) {
  Json row = {{"key", outcome.key},
              {"end", std::string(enum_name(outcome.end))},
              {"weight", outcome.weight},
              {"weight_rank", outcome.weight_rank},
              {"logit", outcome.logit}};
  if (!outcome.is_ranked) return row;
  row.update({{"score", json_number(outcome.score)},
              {"rank", outcome.rank},
              {"ranked", outcome.n_ranked},
              {"earned", look.n_earned},
              {"cut", json_number(look.cut)},
              {"page_begin", outcome.page.begin},
              {"page_end", outcome.page.end},
              {"page_logit", outcome.page_logit}});
  if (outcome.best_query) row["queries"] = look.representatives[*outcome.best_query].queries;
  return row;
}

}  // namespace

void ExplainKeyOptions::declare(OptionSet& options) {
  options
      .positional("trace", "a recording: explain one query and key of it instead of prompts", trace,
                  /*required=*/false)
      .kind = ValueKind::file;
  options.add("layers", "N", "with a trace: the layer", layer);
  options.add("heads", "N", "with a trace: the query head", head);
  options.add("query", "N", "with a trace: position of the query", query);
  options.add("key", "N", "with a trace: position of the key [the heaviest that was dropped]", key);
  options.add("top", "N", "with a trace: heaviest keys that are listed", top, in(0, 100'000));
  options.flag("as-step", "with a trace: take a query of the prompt as a decode step", as_step);
  options.add("draft", "TRACE", "with a trace: the draft model's, over the same tokens", draft)
      .kind = ValueKind::file;
  options
      .add("calibration", "TRACE", "with a trace: the same model's over another text", calibration)
      .kind = ValueKind::file;
  options.need({"layers", "heads", "query", "key", "top", "as-step", "draft", "calibration"},
               {"trace"});
  options.exclude_each(
      {"model", "text", "lengths", "facts", "depths", "trials", "least", "all", "chat", "seed",
       "prompt", "token", "dense-prompt", "every-call", "runs", "out", "put-back"},
      {"trace"}, ": the first is of prompts");
}

int ExplainKeyOptions::run(KeyQuestion question, bool json, const std::string& command_line,
                           int n_threads) const {
  if (!layer || !head || !query) {
    throw UsageError(
        "a trace needs --layers, --heads and --query: the layer, the query head and "
        "the position that is explained");
  }
  const TraceFile recording = TraceFile::open(*trace, {});
  std::optional<TraceFile> second;
  if (draft) second.emplace(TraceFile::open(*draft, {}));
  std::optional<TraceFile> text;
  if (calibration) text.emplace(TraceFile::open(*calibration, {}));
  const KeySources sources{recording, second ? &*second : nullptr, text ? &*text : nullptr};
  question.layer = *layer;
  question.q_head = *head;
  question.query = *query;
  question.as_step = as_step;
  const StopOnSignal stop;
  ThreadPool pool(n_threads);
  const QueryLook look = look_at_query(sources, question, pool, stop.token());
  std::vector<KeyOutcome> listed;
  for (const Index heavy : look.heaviest(static_cast<std::size_t>(top)))
    listed.push_back(outcome_of(look, heavy));
  const Index asked = key ? *key : heaviest_dropped(look).value_or(*query);
  const KeyOutcome outcome = outcome_of(look, asked);
  const KeepingBudget budget = budget_that_keeps(sources, question, asked, pool, stop.token());
  const std::vector<std::string> texts = recording.token_bytes();
  const NumberFormats formats = NumberFormats::of(recording.info());
  if (json) {
    Json report = {{"kind", "explain-key"},
                   {"command_line", command_line},
                   {"selector", question.selector.text()},
                   {"budget", question.budget ? Json(question.budget->to_string()) : Json(nullptr)},
                   {"layer", *layer},
                   {"q_head", *head},
                   {"query", *query},
                   {"dense", look.is_dense},
                   {"kept", look.is_dense ? Json(nullptr) : Json(look.kept.size())},
                   {"kept_mass", look.is_dense ? 1.0 : look.kept_mass},
                   {"key", json_of(look, outcome)},
                   {"keeping_budget", or_null(budget.tokens)},
                   {"sentence", outcome_sentence(look, outcome)},
                   {"heaviest", Json::array()}};
    for (const KeyOutcome& one : listed) report["heaviest"].push_back(json_of(look, one));
    formats.add_to(report);
    print_json(report);
    return kOk;
  }
  std::string out = fmt::format(
      "{}, layer {}, query head {}, query {} {}: {}{} keeps {}\n\n", trace->filename().string(),
      *layer, *head, *query, word_of(texts, *query), question.selector.text(),
      question.budget ? " at " + question.budget->to_string() : std::string(), list_words(look));
  out += fmt::format("key {} {}: weight {} (number {} of {})\n{}{}{}\n\n", asked,
                     word_of(texts, asked), number_text(outcome.weight, 3), outcome.weight_rank,
                     look.visible.size(), outcome_sentence(look, outcome),
                     outcome.end == KeyEnd::dropped || outcome.end == KeyEnd::kept ? " " : "",
                     budget_sentence(outcome, budget));
  const std::string more = score_sentence(look, outcome, [&](Index pos) {
    return fmt::format("position {} {}", pos, word_of(texts, pos));
  });
  if (!more.empty()) out += more + "\n\n";
  TextTable table({"key", "token", "weight", "", "score", "rank", "margin"});
  for (const KeyOutcome& one : listed) {
    table.add_row({fmt::format("{}", one.key), word_of(texts, one.key), number_text(one.weight, 3),
                   std::string(end_words(one.end)),
                   one.is_ranked ? number_text(one.score) : std::string("-"),
                   one.is_ranked ? fmt::format("{}", one.rank) : std::string("-"),
                   one.is_ranked ? number_text(one.score - look.cut, 3) : std::string("-")});
  }
  print(out + table.text() + formats.line());
  return kOk;
}

}  // namespace kvscope::cli
