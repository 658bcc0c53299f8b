// kvscope papers: every table, figure and known error of the three papers, made on a
// model and judged.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "analysis/base/mapped.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/cli/runs/papers_examples.hpp"
#include "analysis/cli/runs/papers_runner.hpp"
#include "analysis/cli/runs/run_inside.hpp"
#include "analysis/cli/runs/run_job.hpp"
#include "analysis/papers/plan.hpp"
#include "analysis/papers/report.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"
#include "core/base/shell_word.hpp"
#include "core/base/version.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

constexpr const char* kOwnDraftRemark =
    "No draft was given, so it is an early exit: the model's own first layers with a fitted head. "
    "In these layers it attends as the model does by construction; they are left out here, or "
    "dense under every method.";

/// A figure or table of an item, drawn by the program's own command into items/ID/. One that cannot
/// be drawn says why. Throws Interrupted.
papers::DrawnPicture draw_picture(const papers::Item& item, const std::string& command,
                                  PapersRunner& runner, const std::stop_token& stop) {
  papers::DrawnPicture picture;
  try {
    for (const std::string& name : papers::names_in(command)) {
      if (papers::is_choice(name)) continue;
      const papers::RunResult needed = runner.result(name);
      if (needed.view != nullptr) continue;
      picture.failed = needed.missing;
      picture.not_run = needed.not_run;
      return picture;
    }
    const fs::path& out = runner.folder().out;
    const std::string place = "items/" + item.id;
    const bool is_figure = command.starts_with("figure ");
    fs::create_directories(out / place);
    picture = drawn_inside(runner.words_of(command, "", /*in_folder=*/false), out,
                           is_figure ? place : place + "/table", /*overwrite=*/true, stop);
    picture.command = command_line_of(runner.words_of(command + (is_figure ? " --out {out}" : ""),
                                                      place + "/", /*in_folder=*/true));
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    picture.failed = error.what();
    picture.not_run = is_of_system(error);
  }
  return picture;
}

class PapersCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "papers",
        "what QuoKA, Quest and SpecAttn claim, item by item, judged on a model",
        "Makes every table and figure of the three papers, and shows the errors found in them, by "
        "running the program's own commands; results are in DIR/runs, pictures in DIR/items. The "
        "report (report.html, report.tex, items.json) has for each item the paper's claim and "
        "number, the number on this model with its interval, the command, and a verdict, of paired "
        "differences where methods were asked the same. --plan prints, before anything runs, what "
        "is asked, how small a difference the prompts can show, and what is known. A failed step "
        "is reported in its item, and the rest continues; where the system refused a write or "
        "memory the code is 4. The same command goes on with an interrupted report. Facts are "
        "asked in the model's chat template if the dense model answers less than half of them in "
        "plain words. A draft that is made here shares its layers with the model: they stay dense, "
        "or are left out, where a draft is judged. An hour and a half on two cores for the "
        "embedded pair.",
        {{"kvscope papers --quick --out papers",
          "the embedded pair, a few minutes; open papers/report.html"},
         {"kvscope papers --plan --quick", "what will be asked, of how many prompts"},
         {"kvscope papers --model ~/models/Llama-3.2-1B --out llama",
          "another model; its first layers are the draft of SpecAttn's items"}}};
  }
  void declare(OptionSet& options) override {
    options
        .add("out", "DIR", "folder of the report; made if it is missing, gone on with if it is not",
             folder_.out)
        .short_name = 'o';
    options.flag("quick", "short prompts and few of them: less certain, done in minutes",
                 folder_.quick);
    options.add("model", "MODEL", kModelHelp, folder_.model).kind = ValueKind::model;
    options
        .add("draft", "DIR",
             "draft model with the same tokenizer [the embedded draft, for the embedded verifier; "
             "else one that kvscope fit draft makes of the model's first layers]",
             folder_.draft)
        .kind = ValueKind::model;
    folder_.engine.declare_for_reports(options);
    options.flag("plan", "print the checks of every item, and what they can show; run nothing",
                 plan_);
    options.add("items", "LIST", "only these, as quoka-fig-4,error-theorem-b1 [all]", only_);
    options.add("example", "NAME",
                "write a constructed recording that contradicts a paper to --out instead: "
                "theorem-b1, error-bound",
                example_);
    workers_.declare(options);
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet& given, const std::string& command_line) override {
    if (!folder_.draft && folder_.model == "verifier") folder_.draft = "draft";
    if (plan_) return tell_plan();
    if (folder_.out.empty()) throw UsageError("--out is missing: expected a folder for the report");
    if (example_) {
      write_example(*example_, folder_.out, /*overwrite=*/false);
      return kOk;
    }
    folder_.engine.check();
    workers_.check();
    const std::vector<const papers::Item*> chosen = chosen_items();
    if (fs::exists(folder_.out) && !fs::is_directory(folder_.out))
      throw UsageError("--out: {} is no folder", folder_.out.string());
    for (const char* name : {"items.json", "report.html", "report.tex"})
      refuse_other_kind(folder_.out / name, kind_of_name(name));
    const bool is_report =
        is_store(folder_.out / "store") || fs::exists(folder_.out / "items.json");
    if (!is_report && !sorted_entries(folder_.out / "runs").empty())
      throw UsageError("--out: {} holds other files: expected a new folder, or that of a report",
                       (folder_.out / "runs").string());
    fs::create_directories(folder_.out);
    folder_.n_threads = work_.n_threads();
    PapersRunner runner(folder_, chosen,
                        [](const std::string& line) { note("kvscope papers: " + line); });
    do_runs(runner, given);
    if (workers_.is_worker()) return kOk;
    const StopOnSignal stop;
    const auto outcomes = mapped<papers::ItemOutcome>(
        chosen, [&](const papers::Item* item) { return outcome_of(*item, runner, stop.token()); });
    papers::ReportHead head;
    head.model = folder_.model;
    head.draft = runner.draft_text();
    head.quick = folder_.quick;
    head.formats = folder_.engine.number_formats();
    head.writer = writer_name();
    head.command_line = command_line;
    head.seconds = runner.seconds();
    write_reports(head, outcomes);
    tell(head, outcomes);
    return tell_not_run(outcomes) ? kPartlyFailed : kOk;
  }

 private:
  void do_runs(PapersRunner& runner, const OptionSet& given) const {
    if (!workers_.is_worker()) runner.forget_failed_and_changed(workers_.retries_failed());
    std::vector<std::string> words = given.words(name(), kOptionsOfNoNumber);
    insert_options(words, {"--out", folder_.out.string()});
    try {
      workers_.run(runner.work(), runner.store(), words, OnFailure::keep, work_);
    } catch (const Interrupted&) {
      throw Interrupted("papers: stopped; the same command continues from here");
    }
  }

  std::vector<const papers::Item*> chosen_items() const {
    std::vector<const papers::Item*> chosen;
    std::set<std::string> wanted;
    if (only_) {
      for (std::string& id : split_words(*only_, ',')) wanted.insert(std::move(id));
    }
    for (const papers::Item& item : papers::items()) {
      if (!only_ || wanted.erase(item.id) > 0) chosen.push_back(&item);
    }
    if (!wanted.empty()) {
      const auto ids = mapped<std::string>(papers::items(), &papers::Item::id);
      throw UsageError("--items: {} is no item; there are {}", *wanted.begin(),
                       fmt::join(ids, ", "));
    }
    return chosen;
  }

  int tell_plan() const {
    const std::vector<const papers::Item*> chosen = chosen_items();
    const auto plan = papers::plan_of(chosen, folder_.quick);
    Json json = papers::plan_json(plan);
    std::string known;
    if (is_store(folder_.out / "store")) {
      const Json forecast = PapersRunner(folder_, chosen, {}).forecast();
      json.update(forecast);
      const Json& seconds = forecast.at("seconds");
      const bool has_all = forecast.at("known") == forecast.at("commands");
      known = fmt::format("\n{} of the {} commands behind these items are known in {}{}.\n",
                          forecast.at("known").get<std::size_t>(),
                          forecast.at("commands").get<std::size_t>(), folder_.out.string(),
                          has_all ? ""
                          : seconds.is_null()
                              ? "; one of the others never ran"
                              : "; the others last took " + seconds_text(seconds.get<double>()));
    }
    json_ ? print_json(json) : print(papers::plan_text(plan) + known);
    return kOk;
  }

  static papers::ItemOutcome outcome_of(const papers::Item& item, PapersRunner& runner,
                                        const std::stop_token& stop) {
    papers::ItemOutcome outcome{.item = &item};
    const papers::FindRun find_run = [&](const std::string& run) { return runner.result(run); };
    outcome.measured = papers::measure(item, find_run);
    outcome.judgement = papers::judge(item, outcome.measured, find_run);
    outcome.doubts = papers::doubts_of(item, find_run);
    std::set<std::string> told;
    for (const papers::Value& value : item.values) {
      if (runner.uses_own_draft(value.run)) outcome.remark = kOwnDraftRemark;
      if (runner.result(value.run).view == nullptr || !told.insert(value.run).second) continue;
      outcome.commands.push_back(runner.typed(value.run));
      outcome.files.push_back(runner.file_of(value.run));
    }
    for (const std::string& command : item.pictures) {
      if (stop.stop_requested()) throw Interrupted("stopped; the same command continues from here");
      outcome.pictures.push_back(draw_picture(item, command, runner, stop));
    }
    return outcome;
  }

  /// Names the items that the system did not let be run, or drawn, those of one reason together;
  /// false if there are none.
  static bool tell_not_run(const std::vector<papers::ItemOutcome>& outcomes) {
    std::vector<std::pair<std::string, std::vector<std::string>>> by_reason;
    const auto add = [&](const papers::ItemOutcome& outcome, const char* what,
                         const std::string& why) {
      const std::string reason = fmt::format("not {}: {}", what, why);
      auto at = std::ranges::find_if(by_reason, [&](const auto& e) { return e.first == reason; });
      if (at == by_reason.end()) at = by_reason.insert(at, {reason, {}});
      if (at->second.empty() || at->second.back() != outcome.item->id)
        at->second.push_back(outcome.item->id);
    };
    for (const papers::ItemOutcome& outcome : outcomes) {
      if (outcome.judgement.verdict == papers::Verdict::not_run) {
        add(outcome, "run", outcome.judgement.reason);
        continue;
      }
      for (const papers::DrawnPicture& picture : outcome.pictures) {
        if (picture.not_run) add(outcome, "drawn", picture.failed);
      }
    }
    for (const auto& [reason, ids] : by_reason) {
      note("kvscope: papers: {} {} {}; the same command tries again", fmt::join(ids, ", "),
           ids.size() == 1 ? "was" : "were", reason);
    }
    return !by_reason.empty();
  }

  void write_reports(const papers::ReportHead& head,
                     const std::vector<papers::ItemOutcome>& outcomes) const {
    const auto json = papers::report_json(head, outcomes);
    write_new_file(folder_.out / "items.json", json_text(json, 1) + "\n", /*overwrite=*/true);
    const papers::Page page = papers::report_page(head, outcomes);
    write_new_file(folder_.out / "report.html", page.html(), /*overwrite=*/true);
    write_new_file(folder_.out / "report.tex", page.tex(), /*overwrite=*/true);
  }

  void tell(const papers::ReportHead& head,
            const std::vector<papers::ItemOutcome>& outcomes) const {
    if (json_) {
      print_json(papers::report_json(head, outcomes));
      return;
    }
    TextTable table({"item", "verdict", "ours", ""});
    for (const papers::ItemOutcome& outcome : outcomes) {
      const auto& values = outcome.item->values;
      table.add_row({outcome.item->id, papers::word_of(outcome.judgement),
                     values.empty() ? "-" : papers::number_of(outcome.measured[0], values[0].unit),
                     values.empty() ? "" : values[0].label});
    }
    print(table.text() + head.formats.line());
    print("Brackets: an interval. \"A to b\": the least and the greatest layer or head.\n");
    print("\npapers: {} of the claims; of the errors: {}; of the ambiguities: {}\nreport: {}\n",
          papers::tally(outcomes, papers::Kind::claim),
          papers::tally(outcomes, papers::Kind::error),
          papers::tally(outcomes, papers::Kind::ambiguity), (folder_.out / "report.html").string());
  }

  PapersFolder folder_;
  std::optional<std::string> only_;
  std::optional<std::string> example_;
  WorkerOptions workers_;
  bool plan_ = false;
  bool json_ = false;
  WorkOptions work_;
};

}  // namespace

KVSCOPE_COMMAND(510, PapersCommand)

}  // namespace kvscope::cli
