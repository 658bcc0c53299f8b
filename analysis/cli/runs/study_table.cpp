// kvscope study table: all results of a study as one table.
#include "analysis/study/study_table.hpp"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "analysis/base/json_rows.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "analysis/cli/runs/study_setup.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
enum class StudyTableFormat { csv, markdown, json };

namespace {

namespace fs = std::filesystem;

class StudyTableCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "study table",
        "all results of a study as one table",
        "A line for each item: task, model, text, protocol, method, budget, then what the task "
        "measured (empty in lines of other tasks). An analysis' line has its own totals; a sweep's "
        "means over the layers without a sliding window, dense ones too (of mass_min the least), "
        "and no intervals; the report leaves out for all what one method leaves dense; --rows has "
        "a line for every layer, and columns selector, budget_kind and budget as results have "
        "them, for kvscope table. Items that failed, or that the task leaves out, have a remark.",
        {{"kvscope study table small.toml --out small.csv", "for a spreadsheet or pandas"},
         {"kvscope study table small.toml --format markdown", "for a page"},
         {"kvscope study table small.toml --task perplexity --rows --out ppl.csv",
          "one task's rows, which kvscope table turns into a table for a paper"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("FILE", "the study, a TOML file (analysis/study.md)", file_,
                       /*required=*/true);
    options.add("format", "WORD", "how the table is written [csv; on a terminal in columns]",
                format_);
    options.add("task", "NAME", "the results of one task [all]", task_);
    options.flag("rows", "every row, as the task's command has it", rows_);
    options.add("out", "FILE", "write it there instead of printing it", out_).short_name = 'o';
    options.flag("overwrite", "replace an existing file", overwrite_);
  }
  int run(const OptionSet&, const std::string&) override {
    if (out_) check_new_output(*out_, overwrite_, kind_of(format_.value_or(StudyTableFormat::csv)));
    LoadedStudy study = load_study(file_);
    if (task_) require_task(study, *task_);
    const StudyAnswers answers(study.plan, study.store);
    const std::string task = task_.value_or("");
    const Json table = answers.table(task, rows_ ? StudyRows::all : StudyRows::means);
    if (out_ && table.empty())
      throw ConfigError("{}: nothing is known yet: kvscope study run computes it", file_.string());
    const std::string text = text_of(table);
    if (const std::size_t n_unknown = answers.n_unknown(task); n_unknown > 0)
      note("kvscope: {} items are not known yet: kvscope study run {} computes them", n_unknown,
           file_.string());
    if (out_)
      write_new_file(*out_, text, overwrite_);
    else
      print_data(text);
    return kOk;
  }

 private:
  static FileKind kind_of(StudyTableFormat format) {
    if (format == StudyTableFormat::json) return FileKind::own_json;
    return format == StudyTableFormat::markdown ? FileKind::markdown : FileKind::csv;
  }

  std::string text_of(const Json& table) const {
    if (format_ == StudyTableFormat::json) return json_text(study_json(table), 1) + "\n";
    if (format_ == StudyTableFormat::markdown) return study_markdown(table);
    if (format_ || out_ || ::isatty(STDOUT_FILENO) == 0) return rows_csv(table);
    const std::vector<std::string> names = row_columns(table);
    TextTable columns(names);
    for (const Json& row : table) {
      std::vector<std::string> cells;
      for (const std::string& name : names) {
        const std::string cell = row_cell(row, name);
        const auto number = number_from<double>(cell);
        cells.push_back(number ? number_text(*number, 4) : cell);
      }
      columns.add_row(std::move(cells));
    }
    return columns.text();
  }

  fs::path file_;
  std::optional<StudyTableFormat> format_;
  std::optional<std::string> task_;
  bool rows_ = false;
  std::optional<fs::path> out_;
  bool overwrite_ = false;
};

}  // namespace

KVSCOPE_COMMAND(550, StudyTableCommand)

}  // namespace kvscope::cli
