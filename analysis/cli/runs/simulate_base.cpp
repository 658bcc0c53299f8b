#include "analysis/cli/runs/simulate_base.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/base/number_formats.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "analysis/cli/models/model_advice.hpp"
#include "analysis/cli/models/prompt.hpp"
#include "analysis/simulate/match_live.hpp"
#include "analysis/simulate/prompts.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/json.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"
#include "core/base/version.hpp"
#include "core/selectors/spec_lists.hpp"
#include "core/sim/draft_runner.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

/// The doubts below a table, the first of many; empty if there are none.
std::string doubts_text(const std::vector<Doubt>& doubts) {
  constexpr std::size_t kShown = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, doubts.size()); ++i)
    text += fmt::format("{}doubt ({}): {}\n", i == 0 ? "\n" : "", doubts[i].gate,
                        clean_text(doubts[i].sentence));
  if (doubts.size() > kShown)
    text += fmt::format("and {} doubts more; --json and .json results have all\n",
                        doubts.size() - kShown);
  return text;
}

/// "quest tokens=256": selector and budget of a row; of a match, "quest density=0.05 (tokens=205)".
std::string method_of(const Json& row) {
  const std::string selector = text_at(row, "selector");
  if (const std::string setting = text_at(row, "knob"); !setting.empty())
    return fmt::format("{} {} ({})", selector, text_at(row, "match"), setting);
  const double budget = number_at(row, "budget");
  return std::isnan(budget)
             ? selector
             : fmt::format("{} {}={}", selector, text_at(row, "budget_kind"), budget);
}

/// The rows as they are printed, each with its "method": without those of methods that refused
/// every value of their setting.
Json answered_rows(Json rows) {
  std::erase_if(rows.get_ref<Json::array_t&>(), [](const Json& row) {
    return std::none_of(row.begin(), row.end(), [](const Json& x) { return x.is_number(); });
  });
  for (Json& row : rows) row["method"] = method_of(row);
  return rows;
}

/// The value of every method's budget setting and what came of it, over the rows of a match;
/// empty without one.
std::string matches_text(const Json& rows) {
  if (!rows.front().contains("match")) return "";
  TextTable text({"equal cost", "to meet", "setting", "reached"});
  std::vector<std::string> done;
  std::string notes;
  const auto label_of = [](const Json& row) {
    return text_at(row, "selector") + ", " + text_at(row, "match");
  };
  for (const Json& row : rows) {
    const std::string label = label_of(row);
    if (text_at(row, "match").empty() || std::ranges::find(done, label) != done.end()) continue;
    done.push_back(label);
    double least = std::nan("");
    double most = least;
    std::string note;
    for (const Json& other : rows) {
      if (label_of(other) != label) continue;
      const double reached = number_at(other, "match_reached");
      least = std::fmin(least, reached);
      most = std::fmax(most, reached);
      if (note.empty()) note = text_at(other, "match_note");
    }
    const std::string range = std::isnan(least) ? "-"
                              : number_text(least) == number_text(most)
                                  ? number_text(least)
                                  : number_text(least) + " to " + number_text(most);
    const std::string setting = text_at(row, "knob");
    text.add_row({text_at(row, "selector"), text_at(row, "match"), setting.empty() ? "-" : setting,
                  range + (note.empty() ? "" : " *")});
    if (!note.empty()) notes += fmt::format("* {}: {}\n", label, clean_text(note));
  }
  return "\n" + text.text() + notes;
}

/// Why there are no intervals, where there are none; else empty.
std::string missing_intervals(const Table& table) {
  if (!table.has("perplexity_low") || table.n_rows() == 0) return "";
  const auto has_one = [](double low) { return !std::isnan(low); };
  if (std::ranges::any_of(table.numbers("perplexity_low"), has_one)) return "";
  return "no intervals: they are drawn from blocks of 64 scored tokens, and there are fewer than "
         "8; score more (--max-tokens, --windows or another --text)";
}

}  // namespace

void SimulateCommand::declare(OptionSet& options) {
  options.add("model", "MODEL", kModelHelp, model_).kind = ValueKind::model;
  options
      .add("draft", "DIR",
           "draft model with the same tokenizer [the embedded draft, for the embedded verifier]",
           draft_)
      .kind = ValueKind::model;
  options.add("selector", "NAME[,NAME]",
              "methods, with options as NAME:option=value (kvscope selectors lists them)",
              selectors_);
  options.add("budget", "LIST",
              "tokens=64,128 or pages=..., ratio=0.25,... or p=0.95,...; a bare number is tokens",
              budgets_);
  options.add(
      "match", "LIST",
      "instead of --budget: density=0.05,0.1 (keys kept of those a query sees), keys=128 (kept per "
      "query) or bytes=65536 (read per call and layer), as measured; every method's own budget "
      "setting is turned until it costs that",
      match_);
  options.add("text", "FILE",
              "UTF-8 text to read; several: intervals are over texts too [embedded book]", texts_);
  options.add("tokens", "FILE", "token ids instead of text, as in kvscope record", tokens_);
  options.flag("no-special-tokens",
               "do not put the tokenizer's special tokens (BOS) in front of prompts and windows",
               no_special_);
  declare_task(options);
  options.add("dense-layers", "N",
              "leading layers that every method leaves dense [the method's own]",
              options_.dense_layers);
  options.add("chunk", "N", "B_CP: tokens per prefill call", options_.chunk);
  options.add("seed", "N", "seed of everything that is drawn", options_.seed);
  if (shows_prompts()) {
    options.add("show-prompts", "N",
                "print the first N prompts, what was expected and what every method answered",
                n_shown_, at_least(0));
  }
  job_.declare_table(options, "curves and grids", "run");
  engine_.declare(options);
  job_.declare_work(options);
  options.exclude({"text", "tokens"});
  options.exclude({"match", "budget"}, ": a match finds every method's budget");
}

std::optional<std::string> SimulateCommand::draft_word() const {
  if (draft_) return draft_;
  if (model_ == "verifier") return "draft";
  return std::nullopt;
}

SimulationOptions SimulateCommand::simulation_options() const {
  SimulationOptions options = options_;
  options.selectors = selectors_of(selectors_);
  if (options.selectors.empty()) options.selectors = default_selectors();
  if (options.selectors.empty())
    throw UsageError("--selector is missing: expected at least one method");
  const auto full = std::ranges::find(options.selectors, "full");
  if (adds_full() && full == options.selectors.end())
    options.selectors.insert(options.selectors.begin(), "full");
  options.budgets = budgets_of(budgets_);
  options.match = as_usage([&] { return parse_matches(match_); });
  options.matmul = engine_.matmul_name();
  options.kv_dtype = engine_.kv_dtype;
  return options;
}

void SimulateCommand::check_usage() const {
  job_.check();
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (std::find(texts_.begin(), texts_.begin() + static_cast<std::ptrdiff_t>(i), texts_[i]) !=
        texts_.begin() + static_cast<std::ptrdiff_t>(i))
      throw UsageError("--text: {} is given twice", texts_[i].string());
  }
}

std::optional<Transformer> SimulateCommand::load_draft(const SimulationOptions& options,
                                                       SimulationModels& models) const {
  const bool is_wanted =
      needs_draft() || std::ranges::any_of(options.selectors, [](const MethodSpec& spec) {
        return spec.caps().needs_draft;
      });
  std::optional<Transformer> draft;
  if (!is_wanted || !draft_word()) return draft;
  const fs::path dir = model_dir(*draft_word());
  // A draft that kvscope fit makes of a GGUF file's first layers speaks the file's tokenizer.
  if (has_tokenizer(dir)) require_same_tokenizer(*models.tokenizer, load_tokenizer(dir));
  draft.emplace(load_transformer(dir, engine_));
  const Index n_vocab = models.verifier->config().n_vocab;
  if (draft->config().n_vocab != n_vocab && !has_tokenizer(dir)) {
    throw FormatError("{} has no tokenizer and {} tokens: expected the verifier's {}",
                      model_name(dir), draft->config().n_vocab, n_vocab);
  }
  models.draft_name = model_name(dir);
  models.draft_hash = hash_of_model(dir, *draft);
  return draft;
}

std::vector<Prompt> SimulateCommand::load_texts(SimulationModels& models) const {
  std::vector<Prompt> texts;
  for (std::size_t i = 0; i < std::max<std::size_t>(1, texts_.size()); ++i) {
    PromptOptions source;
    if (!texts_.empty()) source.text = texts_[i];
    source.tokens = tokens_;
    source.max_tokens = Index{1} << 40;  // all of it
    source.no_special = true;
    texts.push_back(source.load(models.tokenizer));
    for (const TokenId id : texts.back().ids) {
      if (id < 0 || id >= models.verifier->config().n_vocab) {
        throw FormatError("{}: token {} is not in the model's vocabulary of {}",
                          texts.back().source, id, models.verifier->config().n_vocab);
      }
    }
  }
  models.text = texts.front().ids;
  models.text_name = texts.front().source;
  for (std::size_t i = 1; i < texts.size(); ++i)
    models.more_texts.push_back({texts[i].ids, texts[i].source});
  return texts;
}

int SimulateCommand::run(const OptionSet& given, const std::string&) {
  check_usage();
  check_task();
  job_.check_table();
  job_.check_command(given.command_line(name(), kOptionsOfNoNumber));
  const SimulationOptions options = simulation_options();
  const int n_threads = job_.work.n_threads();
  engine_.check();

  const fs::path dir = model_dir(model_);
  const Transformer verifier = load_transformer(dir, engine_);
  const Tokenizer tokenizer = load_tokenizer(dir);
  SimulationModels models;
  models.verifier = &verifier;
  models.tokenizer = &tokenizer;
  models.verifier_name = model_name(dir);
  models.verifier_hash = hash_of_model(dir, verifier);
  const std::optional<Transformer> draft = load_draft(options, models);
  if (draft) models.draft = &*draft;
  const std::vector<Prompt> texts = load_texts(models);
  if (!no_special_) models.leading = leading_special_tokens(tokenizer);

  ThreadPool pool(n_threads);
  SimulationSetup setup = set_up_simulation(models, options, phases(), pool);
  prepare(dir, setup, pool);
  if (setup.is_matched()) {
    const Running run(job_.work.progress);
    match_setup(
        setup, [&](const SimulationSetup& alone) { return make_task(alone); }, pool, run.progress,
        run.stop);
  }
  const auto task = make_task(setup);
  job_.check_inputs();
  const Work work = simulation_work(*task, setup, pool);
  const std::string hash = simulation_hash(*task, setup);
  const auto empty_csv = [&] {
    return table_csv(simulation_result(*task, setup, work, all_failed(work)).table, hash);
  };
  if (job_.is_complete(
          {{"version", writer_name()}, {"config_hash", hash}, {"skipped", setup.skipped}},
          empty_csv))
    return kOk;
  for (const std::string& sentence : setup.skipped) note("kvscope: left out: {}", sentence);
  std::set<std::string> told;  // methods, by what they are called
  for (const LivePair& pair : setup.pairs) {
    if (engine_.is_on_gpu() && told.insert(pair.options.selector.text()).second)
      note_host_choice(pair.options.selector, pair.options.budget);
  }
  SimulationResult result;
  if (job_.is_split()) {
    require_known_items(*task, setup);
    if (const auto code = job_.finish(work, given, name())) return *code;
    result = simulation_result(*task, setup, work, job_.store());
  } else {
    Store& store = job_.open(work);
    job_.compute([&](const ProgressFn& progress, const std::stop_token& stop) {
      result = run_simulation(*task, setup, store, pool, progress, stop);
    });
  }
  return tell(*task, result, given);
}

int SimulateCommand::tell(const SimulationTask& task, SimulationResult& result,
                          const OptionSet& given) {
  // threads, files and interruptions do not decide the numbers
  result.command_line = given.command_line(name(), kOptionsOfNoNumber);
  if (job_.writes()) {
    write_table_output(
        {[&] { return table_csv(result.table, result.config_hash); },
         [&] { return simulation_json(task, result); },
         [&](ResultWriter& output) { write_simulation(task, result, output, writer_name()); }},
        *job_.out, job_.may_replace());
  }
  const int code = job_.end();
  if (const std::string sentence = missing_intervals(result.table); !sentence.empty())
    note("kvscope: " + sentence);
  if (job_.json) {
    print_json(simulation_json(task, result));
    return code;
  }
  if (n_shown_ > 0) print(task.show(result.units, static_cast<std::size_t>(n_shown_)) + "\n");
  const Json rows = table_json(result.table, result.config_hash);
  print(summary_table(answered_rows(rows)) + NumberFormats::of(result.config).line() +
        matches_text(rows) + doubts_text(result.doubts));
  return code;
}

}  // namespace kvscope::cli
