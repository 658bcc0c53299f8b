// kvscope explain: why an answer changed under a method, and which dropped keys bring it back; or,
// of a recording, why one key of one query was kept or dropped.
#include <fmt/format.h>

#include <filesystem>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/inspect/explain_answer.hpp"
#include "analysis/cli/inspect/explain_key.hpp"
#include "analysis/cli/models/chat_prompt.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/cli/models/prompt.hpp"
#include "analysis/simulate/prompts.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"

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

class ExplainCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "explain",
        "why a key was dropped, what that cost the answer, what mends it",
        "Of prompts: the dense model answers, and the model under the method is fed the same "
        "tokens. For the first token that changes, dropped keys are put back and the model runs "
        "again each time: all of them, a layer's, a query head's, and single keys of the heads "
        "that matter most. Told is which share of the loss (in nats) each brings back. Prompts are "
        "those of kvscope simulate retrieval (same lengths, depths, trials and seed: same "
        "prompts), or --prompt. Of needles a table also shows the heads that put at least --least "
        "of their attention on the fact densely: that share, the share that the same head's query "
        "would put there under the method, how many of the fact's tokens its list holds, the rank "
        "of the best of them by the method's score, and the margin to the last key that was kept "
        "(in units of the score, negative if lost).\n\n"
        "With a trace, one query of it is asked instead: what the method keeps for it, and for "
        "a key its weight, score and rank, the cut-off, its page, the representative queries "
        "that gave it its score (QuoKA), and the smallest budget that keeps it.",
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
    if (key_.trace) return key_.run(question(), json_, command_line, work_.n_threads());
    check();
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
    return explain_answers(dir, model, tokenizer, chat_source, command_line);
  }

 private:
  std::vector<TokenId> filler_tokens(const Tokenizer& tokenizer) const {
    PromptOptions source{.text = text_};
    source.max_tokens = Index{1} << 40;  // all of it
    source.no_special = true;
    return source.load(&tokenizer).ids;
  }

  void set_place(Index depth, Index trial) {
    prompt_.depth =
        n_depths_ == 1 ? 0.5 : static_cast<double>(depth) / static_cast<double>(n_depths_ - 1);
    prompt_.trial = trial;
  }

  int explain_answers(const std::filesystem::path& dir, const Transformer& model,
                      const Tokenizer& tokenizer, const std::string& chat_source,
                      const std::string& command_line) {
    AnswerQuestion question;
    question.selector = as_usage([&] { return MethodSpec(selector_); });
    if (!budget_.empty()) question.budget = as_usage([&] { return Budget::parse(budget_); });
    question.dense_layers = dense_layers_;
    question.chunk = chunk_;
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
        set_place(at / n_trials_, at % n_trials_);
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
    const MethodSpec selector = as_usage([&] { return MethodSpec(selector_); });
    if (selector.caps().needs_draft || selector.caps().needs_calibration)
      throw UsageError("{} needs a draft or a calibration, which explain has not", selector.text());
    if (!budget_.empty()) as_usage([&] { return Budget::parse(budget_); });
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
