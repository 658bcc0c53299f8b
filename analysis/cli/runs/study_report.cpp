// kvscope study report: a study as one page.
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/frame/signals.hpp"
#include "analysis/cli/runs/run_job.hpp"
#include "analysis/cli/runs/study_page.hpp"
#include "analysis/cli/runs/study_pictures.hpp"
#include "analysis/runs/store.hpp"
#include "core/base/error.hpp"
#include "core/base/version.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostOfStudy = std::size_t{1} << 20U;

class StudyReportCommand final : public Command {
 public:
  std::string name() const override { return "study report"; }
  std::string summary() const override {
    return "a study as one page: question, setup, tables, figures, failures, commands";
  }
  std::string description() const override {
    return "Writes report.html, which needs no other file, report.tex for pdflatex, and tables and "
           "figures beside them: what each task measured against the keys that were kept, a line "
           "per method and a panel per model and text (of more than 24 a panel per model, over its "
           "texts); of a sweep mass, recall and output error, and their differences to one method "
           "head by head, with paired intervals; of a simulation the increase of perplexity over "
           "full attention, accuracy or accepted tokens. Each figure's .json draws it again in "
           "another format, venue or theme (kvscope reproduce). Bands of more than eight methods "
           "are left out. The setup has the hashes that decide the numbers. The question is the "
           "study file's own (question = \"...\"), or what its lists ask.";
  }
  std::vector<Example> examples() const override {
    return {{"kvscope study report small.toml --out small-report", "small-report/report.html"}};
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
      check_new_output(out_ / file, drawing_.overwrite, "--overwrite");
    }
    const StudyReport report = report_of(study, options.command_line(name(), kOptionsOfNoNumber));
    save_text(out_ / "report.html", study_html(report), drawing_.overwrite);
    save_text(out_ / "report.tex", study_tex(report), drawing_.overwrite);
    print((out_ / "report.html").string() + "\n" + (out_ / "report.tex").string() + "\n");
    return kOk;
  }

 private:
  StudyReport report_of(const LoadedStudy& study, const std::string& command_line) {
    const StudyAnswers answers(study.plan, study.store);
    drawing_.out = out_;
    StudyReport report;
    report.title = fmt::format("The study {}", study.file.name);
    report.question = question_of_study(study.file);
    report.writer = writer_name();
    report.command_line = command_line;
    report.setup = setup_of_study(study.file, study.inputs);
    report.counts = count_study(study.plan, study.store);
    report.left_out = study.plan.left_out;
    const StopOnSignal stop;
    for (const StudyTask& task : study.file.tasks) {
      report.tasks.push_back(
          {task.name, command_line_of(option_words(task.options), "kvscope " + task.command),
           draw_task(study, answers, task.name, drawing_, stop.token())});
    }
    std::map<std::string, std::vector<std::string>> failed;  // items by what is said of them
    for (const StudyItem& item : study.plan.items) {
      if (const StoredAnswer* known = study.store.find(item.key)) report.seconds += known->seconds;
      const std::string sentence = failure_of(study.plan, study.store, item);
      if (!sentence.empty()) failed[sentence].push_back(label_of(item));
    }
    for (const auto& [sentence, labels] : failed)
      report.failures.push_back(
          labels.size() == 1
              ? fmt::format("{}: {}", labels[0], sentence)
              : fmt::format("{} items, {} first: {}", labels.size(), labels[0], sentence));
    const std::string file = shell_word(file_.string());
    report.commands = {"kvscope study run " + file, "kvscope study table --rows " + file,
                       command_line};
    report.source = read_regular_file(file_, kMostOfStudy);
    return report;
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
