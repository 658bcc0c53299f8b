// kvscope study figures: the results of a study as figures.
#include <fmt/format.h>

#include "analysis/cli/command.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/signals.hpp"
#include "analysis/cli/study_pictures.hpp"
#include "core/base/error.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;

class StudyFiguresCommand final : public Command {
 public:
  std::string name() const override { return "study figures"; }
  std::string summary() const override { return "the results of a study as figures"; }
  std::string description() const override {
    return "Draws what each task measured against the keys that were kept, a line per method and a "
           "panel per model and text, by the figure budget: of a sweep mass, recall and output "
           "error, and their differences to one method head by head, with paired intervals; of a "
           "simulation the increase of perplexity over full attention, accuracy or accepted "
           "tokens. The tables that they are drawn from lie beside them, and each figure's .json "
           "names the kvscope figure command that draws it again in another format, venue or "
           "theme. Intervals of more than eight methods would hide each other: their bands are "
           "left out. Of more than 24 models and texts there is a panel per model, over its texts. "
           "Items that are not known are left out and counted.";
  }
  std::vector<Example> examples() const override {
    return {{"kvscope study figures small.toml --out figures", "every task, in every format"},
            {"kvscope study figures small.toml --task sweep --against streamingllm --format pdf "
             "--out figures",
             "one task; differences to another method than the first of the file"}};
  }
  void declare(OptionSet& options) override {
    options.positional("FILE", "the study, a TOML file (analysis/study.md)", file_,
                       /*required=*/true);
    options.add("out", "DIR", "folder for tables and figures", out_)
        .needed("expected a folder for the figures")
        .short_name = 'o';
    options.add("task", "NAME", "figures of one task [all]", task_);
    options.add("against", "METHOD", "differences are to this one [the first of the file]",
                drawing_.against);
    options.add("format", "LIST", "what to write: svg, pdf, png, tex", drawing_.formats);
    options.flag("overwrite", "replace existing files", drawing_.overwrite);
  }
  int run(const OptionSet&, const std::string&) override {
    LoadedStudy study = load_study(file_);
    if (task_) require_task(study, *task_);
    if (!drawing_.against.empty()) require_method(study, drawing_.against);
    const StudyAnswers answers(study.plan, study.store);
    drawing_.out = out_;
    fs::create_directories(out_);
    const StopOnSignal stop;
    std::string paths;
    std::string why;
    for (const StudyTask& task : study.file.tasks) {
      if (task_ && task.name != *task_) continue;
      for (const auto& picture : draw_task(study, answers, task.name, drawing_, stop.token())) {
        if (picture.failed.empty()) {
          paths += picture.command + "\n";
          continue;
        }
        why = fmt::format("{}: not drawn: {}", task.name, picture.failed);
        note("kvscope: " + why);
      }
    }
    if (paths.empty())
      throw ConfigError(
          "{}: nothing can be drawn: {}", file_.string(),
          why.empty() ? "no item of these tasks is known; kvscope study run computes them" : why);
    if (const std::size_t n_unknown = answers.n_unknown(task_.value_or("")); n_unknown > 0)
      note("kvscope: {} items are not known yet: kvscope study run {} computes them", n_unknown,
           file_.string());
    print(paths);
    return kOk;
  }

 private:
  fs::path file_;
  fs::path out_;
  std::optional<std::string> task_;
  StudyDrawing drawing_;
};

}  // namespace

KVSCOPE_COMMAND(550, StudyFiguresCommand)

}  // namespace kvscope::cli
