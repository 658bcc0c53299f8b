// kvscope study report: a study as one page.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "analysis/base/json_rows.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/frame/signals.hpp"
#include "analysis/cli/runs/run_inside.hpp"
#include "analysis/cli/runs/run_job.hpp"
#include "analysis/cli/runs/study_setup.hpp"
#include "analysis/papers/page.hpp"
#include "analysis/runs/store.hpp"
#include "analysis/study/study_items.hpp"
#include "analysis/study/study_state.hpp"
#include "analysis/study/study_table.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "core/base/version.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostOfStudy = std::size_t{1} << 20U;

struct StudyDrawing {
  std::filesystem::path out;  // a folder
  std::string against;        // the method that differences are to; empty: the first
  bool overwrite = false;
};

/// Panels in one figure; a study of more models and texts has one for each model.
constexpr std::size_t kMostPanels = 24;
/// Methods whose bands can be told apart in one panel.
constexpr std::size_t kMostBands = 8;

/// A column of the rows as the figure's metric and the table's value.
struct Shown {
  const char* column;
  const char* metric;
};
constexpr Shown kOfLayers[] = {
    {"mass_mean", "mass"}, {"recall10", "recall10"}, {"output_error_rel", "output_error_rel"}};
constexpr Shown kOfRuns[] = {{"relative_increase", "relative_increase"},
                             {"accuracy", "accuracy"},
                             {"acceptance_length", "acceptance_length"}};
constexpr const char* kDifferences[] = {"mass_difference", "recall10_difference",
                                        "output_error_rel_difference"};

bool has_column(const Json& table, const char* name) {
  return std::ranges::any_of(table, [&](const Json& row) { return row.contains(name); });
}

/// A task's name as part of a file's.
std::string file_word(const std::string& task) {
  std::string word;
  for (const char c : task)
    word += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-'
                ? c
                : '_';
  return word;
}

/// Draws a task's metrics against the budget, a panel for each model and text (more than 24: for
/// each model, over its texts), into out/TASK-METRIC with a table beside each, and the rows behind
/// them as out/TASK.csv and out/TASK-means.csv; of an analysis tables of what was picked. A picture
/// that cannot be drawn says why. Paths in pictures are relative to out. Throws IoError for files
/// that are there already, and Interrupted.
class TaskDrawer {
 public:
  TaskDrawer(const LoadedStudy& study, const std::string& task, const StudyDrawing& drawing,
             const std::stop_token& stop)
      : study_(study), stem_(file_word(task)), drawing_(drawing), stop_(stop) {}

  std::vector<papers::DrawnPicture> draw(const StudyAnswers& answers, const std::string& task) {
    Json rows = answers.table(task, StudyRows::all);
    std::erase_if(rows.get_ref<Json::array_t&>(),
                  [](const Json& row) { return row.at("remark") != ""; });
    if (rows.empty()) return {};
    set_panels(rows);
    save(stem_ + ".csv", rows);
    const StudyTask& own = *std::ranges::find(study_.file.tasks, task, &StudyTask::name);
    if (own.is_analysis()) {
      for (const std::string& pick : own.picks) table(column_of_pick(pick), stem_ + ".csv", "");
      return std::move(pictures_);
    }
    const std::string& against =
        drawing_.against.empty() ? study_.file.methods[0].spec.text() : drawing_.against;
    const Json means = answers.with_differences(task, against);
    save(stem_ + "-means.csv", means);
    const bool is_sweep = is_sweep_ = has_column(rows, "mass_mean");
    save(stem_ + "-common.csv", is_sweep ? common_layers(rows) : rows, row_columns(rows));
    for (const Shown& shown : is_sweep ? std::span<const Shown>(kOfLayers) : kOfRuns) {
      if (!has_column(rows, shown.column)) continue;
      figure(stem_ + ".csv", shown.metric, "");
      table(shown.column, stem_ + "-common.csv",
            is_sweep ? "Means over the layers that no method leaves dense, as in the figure."
                     : "Means over what the items measured (lengths, kinds of prompts).");
      if (!is_sweep) break;
    }
    if (has_column(rows, "kept"))
      table("kept", stem_ + "-common.csv",
            "Keys that a query attends to, as measured: equal budgets are not equal keys.");
    for (const char* column : kDifferences) {
      if (has_column(means, column))
        figure(stem_ + "-means.csv", column,
               fmt::format(
                   "Zero is {}, of the same budget; heads of layers that every method acts in.",
                   against));
    }
    return std::move(pictures_);
  }

 private:
  void set_panels(Json& rows) {
    std::set<std::string> places;
    // Layers of different recordings are different layers.
    for (Json& row : rows) {
      row["trace"] = row_cell(row, "model") + " " + row_cell(row, "text");
      places.insert(row["trace"].get<std::string>());
    }
    is_by_text_ = places.size() <= kMostPanels;
    panels_ = study_.file.models.empty() ? "text" : is_by_text_ ? "model,text" : "model";
    if (study_.file.models.empty()) is_by_text_ = true;
    if (study_.file.protocols.size() > 1) panels_ += ",protocol";
  }

  void save(const std::string& name, const Json& table,
            const std::vector<std::string>& columns = {}) const {
    write_new_file(drawing_.out / name, rows_csv(table, columns), drawing_.overwrite);
  }

  /// Draws what a command says; `csv` is among its words, as typed in the folder of the pictures.
  void add(const std::string& what, Words words, const std::string& csv, const std::string& place,
           const Words& typed_beside, const std::string& more) {
    papers::DrawnPicture picture;
    Words typed = words;
    typed.insert(typed.end(), typed_beside.begin(), typed_beside.end());
    std::ranges::replace(words, csv, (drawing_.out / csv).string());
    try {
      picture = drawn_inside(words, drawing_.out, place, drawing_.overwrite, stop_);
      picture.caption += (picture.caption.empty() || more.empty() ? "" : " ") + more;
    } catch (const ConfigError& error) {
      picture.failed = fmt::format("{}: {}", what, error.what());
    }
    picture.command = command_line_of(typed);
    pictures_.push_back(std::move(picture));
  }

  void figure(const std::string& csv, const std::string& metric, const std::string& more) {
    const std::string folder = fmt::format("{}-{}", stem_, metric);
    Words words = {"figure", "budget", csv, "--metric", metric, "--panels", panels_};
    if (!more.empty()) words.insert(words.end(), {"--x", "budget"});  // which pairs are equal in
    if (study_.file.methods.size() > kMostBands) words.insert(words.end(), {"--band", "none"});
    add(metric, words, csv, folder, {"--out", folder, "--format", "svg,pdf"}, more);
  }

  /// Methods against budgets; of an analysis models and texts alone.
  void table(const std::string& column, const std::string& csv, const std::string& caption) {
    std::string rows = "model?,selector";
    if (is_by_text_) rows = "model?,text?,selector";
    if (study_.file.models.empty()) rows = "text?,selector";
    if (study_.file.protocols.size() > 1) rows = (is_sweep_ ? "phase?," : "protocol?,") + rows;
    Words words = {"table", "--rows", rows, "--columns", "budget", "--value", column, csv};
    if (caption.empty()) words = {"table", "--rows", "model?,text", "--value", column, csv};
    add("table of " + column, words, csv, fmt::format("{}-{}", stem_, column), {}, caption);
  }

  const LoadedStudy& study_;
  std::string stem_;
  const StudyDrawing& drawing_;
  const std::stop_token& stop_;
  std::string panels_;
  bool is_by_text_ = true;
  bool is_sweep_ = false;  // whose rows know phases, not protocols
  std::vector<papers::DrawnPicture> pictures_;
};

/// Throws UsageError for a method that the study does not have.
void require_method(const LoadedStudy& study, const std::string& method) {
  std::vector<std::string> names;
  for (const StudyMethod& one : study.file.methods) names.push_back(one.spec.text());
  if (std::ranges::find(names, method) == names.end())
    throw UsageError("--against: expected a method of {} ({}), found {}", study.file.file.string(),
                     fmt::join(names, ", "), quote(method));
}

using Setup = std::vector<std::pair<std::string, papers::Spans>>;

constexpr std::string_view kReading =
    "An item is a task of one model on one text under one method, budget and protocol; its key is "
    "made of the hashes below, so a number here is of exactly these contents. Intervals are of "
    "95 %; each figure says what they are of. Means of a sweep leave out layers with a "
    "sliding window and, but for NAME-means.csv, those that one method leaves dense.";

std::string counted(std::size_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string with_hash(const std::string& name, const std::string& hash) {
  return hash.empty() ? name : fmt::format("{} ({})", name, hash);
}

/// The question as its lists say it, where its writer gave none.
std::string question_of_study(const StudyFile& study) {
  if (!study.question.empty()) return study.question;
  std::vector<std::string> tasks;
  for (const StudyTask& task : study.tasks) tasks.push_back(task.name);
  std::string where = study.models.empty()
                          ? counted(study.recordings.size(), "recording")
                          : fmt::format("{} and {}", counted(study.models.size(), "model"),
                                        counted(study.texts.size(), "text"));
  return fmt::format("How do {} at {} compare on {}, in {}?",
                     counted(study.methods.size(), "method"),
                     counted(study.budgets.size(), "budget"), where, fmt::join(tasks, ", "));
}

/// Names with the hashes that decide numbers: models, drafts, texts, recordings, methods, budgets,
/// protocols, the options of recordings, the code.
Setup setup_of_study(const StudyFile& study, const StudyInputs& inputs) {
  Setup setup;
  const auto add = [&](const char* what, const std::vector<std::string>& words) {
    if (!words.empty()) setup.push_back({what, {{fmt::format("{}", fmt::join(words, ", "))}}});
  };
  std::vector<std::string> models, texts, recordings, methods, budgets;
  for (std::size_t m = 0; m < study.models.size(); ++m) {
    models.push_back(with_hash(study.models[m].name, inputs.models[m]));
    if (study.models[m].draft)
      models.back() += " with draft " + with_hash(*study.models[m].draft, inputs.drafts[m]);
  }
  for (std::size_t t = 0; t < study.texts.size(); ++t)
    texts.push_back(with_hash(study.texts[t].name, inputs.texts[t]));
  for (std::size_t r = 0; r < study.recordings.size(); ++r)
    recordings.push_back(with_hash(study.recordings[r].name, inputs.recordings[r]));
  for (const StudyMethod& method : study.methods) methods.push_back(method.spec.text());
  for (const Budget& budget : study.budgets) budgets.push_back(budget.to_string());
  add("Models", models);
  add("Texts", texts);
  add("Recordings", recordings);
  add("Methods", methods);
  add("Budgets", budgets);
  add("Protocols", study.protocols);
  add("Recorded with", option_words(study.record));
  add("Code", {std::string(code_version())});
  return setup;
}

class StudyReportCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "study report",
        "a study as one page: question, setup, tables, figures, failures, commands",
        "Writes report.html, which needs no other file, report.tex for pdflatex, and tables and "
        "figures beside them: what each task measured against the keys that were kept, a line "
        "per method and a panel per model and text (of more than 24 a panel per model, over its "
        "texts); of a sweep mass, recall and output error, and their differences to one method "
        "head by head, with paired intervals; of a simulation the increase of perplexity over "
        "full attention, accuracy or accepted tokens. Each figure's .json draws it again in "
        "another format, venue or theme (kvscope reproduce). Bands of more than eight methods "
        "are left out. The setup has the hashes that decide the numbers. The question is the "
        "study file's own (question = \"...\"), or what its lists ask.",
        {{"kvscope study report small.toml --out small-report", "small-report/report.html"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("FILE", "the study, a TOML file (analysis/study.md)", file_,
                       /*required=*/true);
    options.add("out", "DIR", "folder for the report", out_)
        .needed("expected a folder for the report")
        .short_name = 'o';
    options.add("against", "METHOD", "differences are to this one [the first of the file]",
                drawing_.against);
    options.flag("overwrite", "replace existing files", drawing_.overwrite);
  }
  int run(const OptionSet& options, const std::string&) override {
    LoadedStudy study = load_study(file_);
    if (!drawing_.against.empty()) require_method(study, drawing_.against);
    if (is_store(out_))
      throw UsageError("--out: {} is the store of a study: expected a folder of its own",
                       out_.string());
    for (const char* file : {"report.html", "report.tex"}) {
      fs::create_directories(out_);
      check_new_output(out_ / file, drawing_.overwrite);
    }
    const papers::Page page = page_of(study, options.command_line(name(), kOptionsOfNoNumber));
    write_new_file(out_ / "report.html", page.html(), drawing_.overwrite);
    write_new_file(out_ / "report.tex", page.tex(), drawing_.overwrite);
    print((out_ / "report.html").string() + "\n" + (out_ / "report.tex").string() + "\n");
    return kOk;
  }

 private:
  papers::Page page_of(const LoadedStudy& study, const std::string& command_line) {
    using papers::Style;
    const StudyAnswers answers(study.plan, study.store);
    drawing_.out = out_;
    double seconds = 0.0;                                    // of processor, of all that is known
    std::map<std::string, std::vector<std::string>> failed;  // items by what is said of them
    for (const StudyItem& item : study.plan.items) {
      if (const StoredAnswer* known = study.store.find(item.key)) seconds += known->seconds;
      const std::string sentence = failure_of(study.plan, study.store, item);
      if (!sentence.empty()) failed[sentence].push_back(label_of(item));
    }
    papers::Page page(fmt::format("The study {}", study.file.name), writer_name());
    page.paragraph({{question_of_study(study.file), Style::bold}});
    page.paragraph({{std::string(kReading)}});
    page.paragraph({{fmt::format("Made by {} with ", writer_name()), Style::soft},
                    {command_line, Style::code},
                    {fmt::format("; the items took {} of processor time.", seconds_text(seconds)),
                     Style::soft}});
    page.heading("Setup");
    page.terms(setup_of_study(study.file, study.inputs));
    add_counts(page, count_study(study.plan, study.store));
    const StopOnSignal stop;
    for (const StudyTask& task : study.file.tasks) {
      page.heading(task.name);
      page.commands({command_line_of(option_words(task.options), "kvscope " + task.command)});
      for (const papers::DrawnPicture& picture :
           TaskDrawer(study, task.name, drawing_, stop.token()).draw(answers, task.name)) {
        page.picture(picture);
        if (!picture.command.empty()) page.commands({picture.command}, "Command");
      }
    }
    std::vector<std::string> failures;
    for (const auto& [sentence, labels] : failed)
      failures.push_back(labels.size() == 1 ? fmt::format("{}: {}", labels[0], sentence)
                                            : fmt::format("{} items, {} first: {}", labels.size(),
                                                          labels[0], sentence));
    page.list("Failed", failures);
    page.list("Left out", study.plan.left_out);
    page.heading("How it was computed");
    const std::string file = shell_word(file_.string());
    page.commands(
        {"kvscope study run " + file, "kvscope study table --rows " + file, command_line});
    page.paragraph({{"The study file:"}});
    page.commands({read_regular_file(file_, kMostOfStudy)});
    return page;
  }

  static void add_counts(papers::Page& page, const Json& counts) {
    Json tasks = counts.at("tasks");
    tasks.push_back(counts);
    std::vector<std::vector<papers::Spans>> rows;
    for (const Json& task : tasks) {
      rows.push_back({{{task.value("task", "all")}}});
      for (const char* key : {"items", "known", "failed", "to_do"})
        rows.back().push_back({{task.at(key).dump()}});
    }
    page.table({{"Task", 0.3}, {"Items", 0.15}, {"Known", 0.15}, {"Failed", 0.15}, {"To do", 0.15}},
               rows);
  }

  static std::string label_of(const StudyItem& item) {
    std::string label = item.task;
    for (const std::string* part :
         {&item.model, &item.text, &item.protocol, &item.method, &item.budget}) {
      if (!part->empty()) label += " " + *part;
    }
    return label;
  }

  fs::path file_;
  fs::path out_;
  StudyDrawing drawing_;
};

}  // namespace

KVSCOPE_COMMAND(560, StudyReportCommand)

}  // namespace kvscope::cli
