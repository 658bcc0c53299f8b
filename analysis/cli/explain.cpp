// kvscope explain: which layers and heads look at a needle, and which choice of keys lost it; or,
// of a recording, why one key of one query was kept or dropped.
#include "analysis/kinds/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "analysis/base/statistics.hpp"
#include "analysis/cli/chat_prompt.hpp"
#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/explain_answer.hpp"
#include "analysis/cli/explain_key.hpp"
#include "analysis/cli/list_options.hpp"
#include "analysis/cli/model_source.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/prompt.hpp"
#include "analysis/cli/text_table.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
namespace {

class ExplainCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "explain",
        "why a needle was missed or a key dropped: ranks, cut-off, budget",
        "Asks the prompts of kvscope simulate retrieval (same lengths, depths, trials and seed: "
        "same prompts; chunks and answer under the method). For each miss the prompt is "
        "answered densely too, and for the first token that differs a table shows the heads "
        "that put at least --least of their attention on the fact when they attend to "
        "everything: their layer, that share, the share that the same head's query would put "
        "there under the method, how many of the fact's tokens its list holds, the rank of the "
        "best of them by the method's score, and the margin to the last key that was kept (in "
        "units of the score, negative if lost).\n\n"
        "With a trace, one query of it is asked instead: what the method keeps for it, and for "
        "a key its weight, score and rank, the cut-off, its page, the representative queries "
        "that gave it its score (QuoKA), and the smallest budget that keeps it.\n\n"
        "With --answer, dropped keys are put back, and the model runs again each time: all of "
        "them, a layer's, a query head's, and single keys of the heads that matter most. Told "
        "is which share of the loss each brings back: how much surer the model gets of the "
        "token that it says densely, where it was fed the dense answer so far.",
        {{"kvscope explain --facts 8 --selector quoka --budget ratio=0.25 --lengths 4096 --depths "
          "5 --trials 3",
          "the misses of that grid"},
         {"kvscope explain trace.h5 --layers 3 --heads 5 --query 4000 --selector quoka --budget "
          "256",
          "the heaviest key that the query lost, and why"},
         {"kvscope explain --answer --selector quest --budget 64 --prompt @story.txt --n-new 32 "
          "--out answer.h5",
          "which dropped keys change what the model says after that text"}}};
  }
  void declare(OptionSet& options) override {
    key_.declare(options);
    answer_.declare(options);
    options.add("model", "MODEL", kModelHelp, model_).kind = ValueKind::file;
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
    options.add("least", "X", "share of a head's attention from which it is shown", least_);
    options.flag("all", "explain prompts that were answered, too", all_);
    options.add("dense-layers", "N", "leading layers left dense [the method's own]", dense_layers_);
    options.add("chunk", "N", "B_CP: tokens per prefill call", chunk_, at_least(1));
    options.add("seed", "N", "seed of everything that is drawn", seed_);
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string& command_line) override {
    if (key_.trace) return key_.run(question(), json_, command_line, work_.n_threads());
    check();
    const auto dir = model_dir(model_);
    const Transformer model = load_transformer(dir, {});
    const Tokenizer tokenizer = load_tokenizer(dir);
    options_.prompt.leading = leading_special_tokens(tokenizer);  // as kvscope simulate
    std::optional<ChatFrame> frame;
    std::string chat_source;
    if (chat_) {
      const ChatTemplate chat = load_chat_template(dir, tokenizer);
      chat_source = chat_words(chat);
      frame = chat_frame(chat);
      options_.prompt.chat = &*frame;
      options_.prompt.leading = leading_in_chat(*frame, options_.prompt.leading, tokenizer);
    }
    if (answer_.wanted) return explain_answers(dir, model, tokenizer, chat_source, command_line);
    const auto filler = filler_tokens(tokenizer);
    Working run(work_);
    Json json = {{"kind", "explain"},
                 {"command_line", command_line},
                 {"model_hash", hash_of_model(dir, model)},
                 {"selector", options_.selector.text()},
                 {"budget", budget_},
                 {"prompts", Json::array()},
                 {"rows", Json::array()}};
    if (chat_) json["chat"] = chat_source;
    std::string text;
    Index n_missed = 0, n_missed_densely = 0;
    for (Index depth = 0; depth < n_depths_; ++depth) {
      for (Index trial = 0; trial < n_trials_; ++trial) {
        set_place(depth, trial);
        const Explanation found =
            explain_prompt(model, tokenizer, filler, options_, all_, run.pool, run.stop);
        if (found.sparse.score < 1.0) {
          ++n_missed;
          if (found.dense.score < 1.0) ++n_missed_densely;
        }
        add(found, json, text);
        if (run.progress)
          run.progress(
              {"prompts", depth * n_trials_ + trial + 1, n_depths_ * n_trials_, "prompts"});
      }
    }
    json["missed"] = n_missed;
    json["missed_densely"] = n_missed_densely;
    if (json_) {
      print_json(json);
    } else {
      print(
          "{}explain: {} of {} prompts of {} tokens missed by {}{}{}\n", text, n_missed,
          n_depths_ * n_trials_, length_, options_.selector.text(),
          n_missed > 0 ? fmt::format(", {} of these by full attention too", n_missed_densely) : "",
          chat_ ? fmt::format(" (chat: {})", chat_source) : "");
    }
    return kOk;
  }

 private:
  std::vector<TokenId> filler_tokens(const Tokenizer& tokenizer) const {
    PromptOptions source{.text = text_};
    source.max_tokens = Index{1} << 40;  // all of it
    source.no_special = true;
    return source.load(&tokenizer).ids;
  }

  void set_place(Index depth, Index trial) {
    options_.prompt.depth =
        n_depths_ == 1 ? 0.5 : static_cast<double>(depth) / static_cast<double>(n_depths_ - 1);
    options_.prompt.trial = trial;
  }

  int explain_answers(const std::filesystem::path& dir, const Transformer& model,
                      const Tokenizer& tokenizer, const std::string& chat_source,
                      const std::string& command_line) {
    AnswerQuestion question;
    question.selector = options_.selector;
    question.budget = options_.budget;
    question.dense_layers = dense_layers_;
    question.chunk = chunk_;
    Json config = {{"model", model_},
                   {"model_hash", hash_of_model(dir, model)},
                   {"selector", options_.selector.text()},
                   {"budget", question.budget ? Json(question.budget->to_string()) : Json(nullptr)},
                   {"dense_layers", dense_layers_ ? Json(*dense_layers_) : Json(nullptr)},
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
        return AskedPrompt{prompt.source, {{"tokens", prompt.ids.size()}}, prompt.ids, n_new};
      };
    } else {
      config["needles"] = {{"lengths", length_},
                           {"facts", n_facts_},
                           {"depths", n_depths_},
                           {"trials", n_trials_},
                           {"seed", seed_},
                           {"all", all_},
                           {"text", text_ ? Json(text_->filename().string()) : Json(nullptr)}};
      source.n_prompts = static_cast<std::size_t>(n_depths_ * n_trials_);
      source.prompt = [this, &tokenizer, filler = filler_tokens(tokenizer)](std::size_t i) {
        const auto at = static_cast<Index>(i);
        set_place(at / n_trials_, at % n_trials_);
        const kvscope::Prompt needle = make_prompt(options_.prompt, filler, tokenizer);
        return AskedPrompt{fmt::format("depth {}, trial {}", number_text(options_.prompt.depth),
                                       options_.prompt.trial),
                           {{"depth", options_.prompt.depth},
                            {"trial", options_.prompt.trial},
                            {"expected", needle.answers.at(0)}},
                           needle.tokens,
                           needle.n_answer_tokens};
      };
    }
    return answer_.run(question, model, tokenizer, source, config, all_, json_, command_line,
                       work_);
  }

  KeyQuestion question() const {
    KeyQuestion question;
    question.selector = as_usage([&] { return MethodSpec(selector_); });
    if (!budget_.empty()) question.budget = as_usage([&] { return Budget::parse(budget_); });
    question.chunk = chunk_;
    question.dense_layers = dense_layers_;
    return question;
  }

  void check() {
    answer_.check();
    options_.selector = as_usage([&] { return MethodSpec(selector_); });
    if (options_.selector.caps().needs_draft || options_.selector.caps().needs_calibration)
      throw UsageError("{} needs a draft or a calibration, which explain has not",
                       options_.selector.text());
    if (!budget_.empty()) options_.budget = as_usage([&] { return Budget::parse(budget_); });
    options_.dense_layers = dense_layers_;
    options_.chunk = chunk_;
    options_.prompt.kind = n_facts_ > 1 ? PromptKind::multi_key : PromptKind::passkey;
    options_.prompt.length = length_;
    options_.prompt.n_facts = n_facts_;
    options_.prompt.seed = seed_;
  }

  void add(const Explanation& found, Json& json, std::string& text) const {
    Json prompt = {{"depth", options_.prompt.depth},   {"trial", options_.prompt.trial},
                   {"expected", found.expected},       {"generated", found.sparse.generated},
                   {"dense", found.dense.generated},   {"found", found.sparse.score >= 1.0},
                   {"fact_begin", found.fact.front()}, {"first_wrong", found.first_wrong}};
    json["prompts"].push_back(prompt);
    if (found.dense.tokens.empty()) return;
    const Index step = std::max<Index>(found.first_wrong, 0);
    text += fmt::format("depth {}, trial {}: expected {}, got {}, densely {}\n",
                        number_text(options_.prompt.depth), options_.prompt.trial, found.expected,
                        quote(found.sparse.generated),
                        found.first_wrong < 0 ? "the same" : quote(found.dense.generated));
    const std::string where = fmt::format("Token {} of the answer{}", step + 1,
                                          found.first_wrong < 0 ? "" : " (the first that differs)");
    TextTable table({"layer", "q_head", "dense weight", "weight under method", "fact kept", "rank",
                     "of", "budget", "margin"});
    const std::vector<LookPair> pairs = heads_that_look(found, step, least_);
    if (pairs.empty()) {
      text += fmt::format(
          "{}: densely no head puts {} or more of its attention on the fact (--least).\n\n", where,
          percent_text(least_));
      return;
    }
    text += where + ":\n";
    for (const LookPair& pair : pairs) {
      Json row = {{"depth", options_.prompt.depth},
                  {"trial", options_.prompt.trial},
                  {"step", step},
                  {"layer", pair.dense->layer},
                  {"q_head", pair.dense->q_head},
                  {"dense_weight", pair.dense->weight}};
      std::vector<std::string> cells = {fmt::format("{}", pair.dense->layer),
                                        fmt::format("{}", pair.dense->q_head),
                                        number_text(pair.dense->weight, 3)};
      const FactLook* look = pair.sparse;
      if (look == nullptr) {
        cells.insert(cells.end(), {"-", "not asked", "-", "-", "-", "-"});
      } else {
        const bool ranked = look->rank > 0;
        const double margin = ranked ? look->score - look->cut : kNan;
        row.update({{"weight", look->weight},
                    {"kept", look->kept},
                    {"fact_tokens", found.fact.size()},
                    {"rank", ranked ? Json(look->rank) : Json(nullptr)},
                    {"scored", look->scored},
                    {"budget", look->budget},
                    {"margin", json_number(margin)}});
        cells.insert(
            cells.end(),
            {number_text(look->weight, 3),
             look->answered ? fmt::format("{} of {}", look->kept, found.fact.size()) : "dense",
             ranked ? fmt::format("{}", look->rank) : "-",
             ranked ? fmt::format("{}", look->scored) : "-",
             look->answered ? fmt::format("{}", look->budget) : "-", number_text(margin, 3)});
      }
      json["rows"].push_back(row);
      table.add_row(cells);
    }
    text += table.text() + "\n";
  }

  ExplainOptions options_;
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
  double least_ = 0.2;
  bool all_ = false;
  bool chat_ = false;
  std::optional<Index> dense_layers_;
  Index chunk_ = 128;
  Index seed_ = 0;
  bool json_ = false;
  WorkOptions work_;
};

}  // namespace

KVSCOPE_COMMAND(610, ExplainCommand)

}  // namespace kvscope::cli
