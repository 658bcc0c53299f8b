// kvscope explain: why an answer changed under a method, and which dropped keys bring it back; or,
// of a recording, why one key of one query was kept or dropped.
#include <fmt/format.h>

#include <filesystem>

#include "analysis/base/number_formats.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/signals.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "analysis/cli/inspect/explain_answer.hpp"
#include "analysis/cli/models/chat_prompt.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/cli/models/prompt.hpp"
#include "analysis/kinds/explain_key.hpp"
#include "analysis/options/options.hpp"
#include "analysis/simulate/prompts.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {
namespace {

/// The positions of the tokens that spell `answer` where it first occurs.
std::vector<Index> tokens_that_spell(const std::string& answer, std::span<const TokenId> tokens,
                                     const Tokenizer& tokenizer) {
  std::string text;
  std::vector<std::size_t> begins;
  for (const TokenId& token : tokens) {
    begins.push_back(text.size());
    text += tokenizer.decode({&token, 1});
  }
  const std::size_t at = text.find(answer);
  std::vector<Index> positions;
  if (at == text.npos)
    throw ConfigError("the answer {} does not stand in the prompt's tokens as text", answer);
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::size_t end = i + 1 < begins.size() ? begins[i + 1] : text.size();
    if (begins[i] < at + answer.size() && end > at && end > begins[i])
      positions.push_back(static_cast<Index>(i));
  }
  return positions;
}

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

/// The options that a question about a recording has beside the method and its budget.
struct ExplainKeyOptions {
  std::optional<std::filesystem::path> trace;
  std::optional<std::filesystem::path> draft;
  std::optional<std::filesystem::path> calibration;
  std::optional<Index> layer;
  std::optional<Index> head;
  std::optional<Index> query;
  std::optional<Index> key;
  Index top = 10;
  bool as_step = false;

  void declare(OptionSet& options);
  /// Prints the answer. `question`: selector, budget, chunk and dense layers; the rest is filled
  /// from the options. Throws UsageError for what is missing, and what look_at_query throws.
  int run(KeyQuestion question, bool json, const std::string& command_line, int n_threads) const;
};

void ExplainKeyOptions::declare(OptionSet& options) {
  options
      .positional("trace", "a recording: explain one query and key of it instead of prompts", trace,
                  /*required=*/false)
      .of({FileKind::trace});
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
                   {"keeping_budget_of", budget.is_exact ? "all" : "powers of two"},
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

class ExplainCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "explain",
        "why a key was dropped, what that cost the answer, what mends it",
        "Of prompts: the dense model answers, and the model under the method is fed the same "
        "tokens. For the first token that changes, dropped keys are put back and the model runs "
        "again each time: all of them, a layer's, a query head's, and single keys of the heads "
        "that matter most. It prints the share of the loss (in nats) that each recovers. Prompts "
        "are those of kvscope simulate retrieval (same lengths, depths, trials and seed: same "
        "prompts), or --prompt. For needles a table lists each head whose dense attention on the "
        "fact is at least --least: that share, the share under the method, how many of the fact's "
        "tokens are kept, the best one's rank by the method's score (of pages where it ranks "
        "pages), and its score minus the last kept one's.\n\n"
        "With a trace, one query of it is asked instead: what the method keeps for it, and for "
        "a key its weight, score and rank, the cut-off, its page, the representative queries "
        "that gave it its score (QuoKA), and a budget that keeps it: the smallest, where a larger "
        "one keeps all that a smaller one does.",
        {{"kvscope explain trace.h5 --layers 3 --heads 5 --query 4000 --selector quoka --budget "
          "256",
          "the heaviest key that the query lost, and why"},
         {"kvscope explain --facts 8 --selector quoka --budget ratio=0.25 --lengths 1024 --depths "
          "5 --out answer.h5",
          "which dropped keys cost the answers of that grid"},
         {"kvscope explain --selector quest --budget 64 --prompt @story.txt --n-new 32",
          "which dropped keys change what the model says after that text"}}};
  }
  void declare(OptionSet& options) override {
    key_.declare(options);
    answer_.declare(options);
    options.add("model", "MODEL", kModelHelp, model_).kind = ValueKind::model;
    options.add("selector", "NAME", "the method, with options as NAME:option=value", selector_)
        .needed("expected a method, as quoka");
    options.add("budget", "BUDGET", "tokens=256, ratio=0.25, ...; a bare number is tokens",
                budget_);
    options.add("text", "FILE", "UTF-8 text to fill prompts with [embedded book]", text_);
    options.add("lengths", "N", "tokens of a prompt", length_, at_least(1));
    options.add("facts", "N", "facts hidden; 1 is a pass key, more are magic numbers", n_facts_,
                at_least(1));
    options.add("depths", "N", "depths of the fact, equally spaced; 1 is in the middle", n_depths_,
                in(1, 1000));
    options.add("trials", "N", "prompts per depth", n_trials_, in(1, 100'000));
    options.flag("chat", "ask in the model's own chat template", chat_);
    options.add("least", "X", "share of a head's attention on the fact from which it is shown",
                answer_.least);
    options.flag("all", "explain prompts whose answer does not change, too", answer_.all);
    options.add("dense-layers", "N", "leading layers left dense [the method's own]", dense_layers_);
    options.add("chunk", "N", "B_CP: tokens per prefill call", chunk_, at_least(1));
    options.add("seed", "N", "seed of everything that is drawn", seed_);
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string& command_line) override {
    if (key_.trace) return key_.run(asked<KeyQuestion>(), json_, command_line, work_.n_threads());
    const auto question = asked<AnswerQuestion>();
    check(question.selector);
    const auto dir = model_dir(model_);
    const Transformer model = load_transformer(dir, {});
    const Tokenizer tokenizer = load_tokenizer(dir);
    prompt_.leading = leading_special_tokens(tokenizer);  // as kvscope simulate
    std::optional<ChatFrame> frame;
    std::string chat_source;
    if (chat_) {
      const ChatTemplate chat = load_chat_template(dir, tokenizer);
      chat_source = chat_words(chat);
      frame = chat_frame(chat);
      prompt_.chat = &*frame;
      prompt_.leading = leading_in_chat(*frame, prompt_.leading, tokenizer);
    }
    return explain_answers(question, dir, model, tokenizer, chat_source, command_line);
  }

 private:
  std::vector<TokenId> filler_tokens(const Tokenizer& tokenizer) const {
    PromptOptions source{.text = text_};
    source.max_tokens = Index{1} << 40;  // all of it
    source.no_special = true;
    return source.load(&tokenizer).ids;
  }

  int explain_answers(const AnswerQuestion& question, const std::filesystem::path& dir,
                      const Transformer& model, const Tokenizer& tokenizer,
                      const std::string& chat_source, const std::string& command_line) {
    Json config = {{"model", model_},
                   {"model_hash", hash_of_model(dir, model)},
                   {"selector", question.selector.text()},
                   {"budget", question.budget ? Json(question.budget->to_string()) : Json(nullptr)},
                   {"dense_layers", or_null(dense_layers_)},
                   {"chunk", chunk_},
                   {"chat", chat_ ? Json(chat_source) : Json(nullptr)}};
    AnswerSource source;
    if (answer_.words) {
      PromptOptions words{.chat = chat_};
      if (answer_.words->starts_with("@")) {
        words.text = answer_.words->substr(1);
      } else {
        words.prompt = answer_.words;
      }
      const Prompt prompt = words.load(&tokenizer, dir);
      config["prompt"] = prompt.source;
      source.n_prompts = 1;
      source.prompt = [=, n_new = answer_.n_new](std::size_t) {
        return AskedPrompt{prompt.source, {{"tokens", prompt.ids.size()}}, prompt.ids, n_new, {}};
      };
    } else {
      config["needles"] = {{"lengths", length_},
                           {"facts", n_facts_},
                           {"depths", n_depths_},
                           {"trials", n_trials_},
                           {"seed", seed_},
                           {"all", answer_.all},
                           {"text", text_ ? Json(text_->filename().string()) : Json(nullptr)}};
      source.n_prompts = static_cast<std::size_t>(n_depths_ * n_trials_);
      source.prompt = [this, &tokenizer, filler = filler_tokens(tokenizer)](std::size_t i) {
        const auto at = static_cast<Index>(i);
        const auto depth = static_cast<double>(at / n_trials_);
        prompt_.depth = n_depths_ == 1 ? 0.5 : depth / static_cast<double>(n_depths_ - 1);
        prompt_.trial = at % n_trials_;
        const kvscope::Prompt needle = make_prompt(prompt_, filler, tokenizer);
        const std::string& expected = needle.answers.at(0);
        return AskedPrompt{
            fmt::format("depth {}, trial {}", number_text(prompt_.depth), prompt_.trial),
            {{"depth", prompt_.depth}, {"trial", prompt_.trial}, {"expected", expected}},
            needle.tokens,
            needle.n_answer_tokens,
            tokens_that_spell(expected, needle.tokens, tokenizer)};
      };
    }
    return answer_.run(question, model, tokenizer, source, config, json_, command_line, work_);
  }

  /// The method, its budget, and what of calls decides: of either question.
  template <class Question>
  Question asked() const {
    Question question;
    question.selector = as_usage([&] { return MethodSpec(selector_); });
    if (!budget_.empty()) question.budget = as_usage([&] { return Budget::parse(budget_); });
    question.chunk = chunk_;
    question.dense_layers = dense_layers_;
    return question;
  }

  void check(const MethodSpec& selector) {
    answer_.check();
    if (selector.caps().needs_draft || selector.caps().needs_calibration)
      throw UsageError("{} needs a draft or a calibration, which explain has not", selector.text());
    prompt_.kind = n_facts_ > 1 ? PromptKind::multi_key : PromptKind::passkey;
    prompt_.length = length_;
    prompt_.n_facts = n_facts_;
    prompt_.seed = seed_;
  }

  PromptSpec prompt_;
  ExplainKeyOptions key_;
  ExplainAnswerOptions answer_;
  std::string model_ = "verifier";
  std::string selector_;
  std::string budget_;
  std::optional<std::filesystem::path> text_;
  Index length_ = 2048;
  Index n_facts_ = 1;
  Index n_depths_ = 5;
  Index n_trials_ = 1;
  bool chat_ = false;
  std::optional<Index> dense_layers_;
  Index chunk_ = 128;
  Index seed_ = 0;
  bool json_ = false;
  WorkOptions work_;
};

}  // namespace

KVSCOPE_COMMAND(220, ExplainCommand)

}  // namespace kvscope::cli
