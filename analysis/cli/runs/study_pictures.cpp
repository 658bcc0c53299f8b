#include "analysis/cli/runs/study_pictures.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/base/json_rows.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/runs/run_inside.hpp"
#include "analysis/options/options.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostOfPicture = std::size_t{64} << 20U;
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
      for (const std::string& pick : own.picks)
        table(pick.substr(pick.rfind('.') + 1), stem_ + ".csv", "");
      return std::move(pictures_);
    }
    const std::string& against =
        drawing_.against.empty() ? study_.file.methods[0].spec.text() : drawing_.against;
    const Json means = answers.with_differences(task, against);
    save(stem_ + "-means.csv", means);
    const bool is_sweep = has_column(rows, "mass_mean");
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
               fmt::format("Zero is {}, of the same budget.", against));
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
    save_text(drawing_.out / name, rows_csv(table, columns), drawing_.overwrite);
  }

  /// Runs a command, given with paths as they are typed in the folder of the pictures.
  void run(Words words, const Words& files) const {
    for (std::string& word : words) {
      if (std::ranges::find(files, word) != files.end()) word = (drawing_.out / word).string();
    }
    if (drawing_.overwrite) words.emplace_back("--overwrite");
    const CommandOutcome outcome = run_inside(words, {}, stop_);
    if (stop_.stop_requested()) throw Interrupted("stopped; nothing of the store has changed");
    if (outcome.code == kOk) return;
    if (outcome.is_system) throw IoError(outcome.sentence());
    throw ConfigError(outcome.sentence());
  }

  std::string read(const std::string& name) const {
    return read_regular_file(drawing_.out / name, kMostOfPicture);
  }

  void figure(const std::string& csv, const std::string& metric, const std::string& more) {
    const std::string folder = fmt::format("{}-{}", stem_, metric);
    Words words = {"figure", "budget", csv, "--metric", metric, "--panels", panels_};
    if (!more.empty()) words.insert(words.end(), {"--x", "budget"});  // which pairs are equal in
    if (study_.file.methods.size() > kMostBands) words.insert(words.end(), {"--band", "none"});
    words.insert(words.end(), {"--out", folder, "--format", "svg,pdf"});
    papers::DrawnPicture picture;
    picture.command = command_line_of(words);
    try {
      run(words, {csv, folder});
      picture.svg = read(folder + "/budget.svg");
      picture.pdf = folder + "/budget.pdf";
      const auto manifest = parse_json(read(folder + "/budget.json"), folder + "/budget.json");
      for (const auto& sentence : manifest.at("caption"))
        picture.caption += sentence.get<std::string>() + " ";
      picture.caption += more;
    } catch (const ConfigError& error) {
      picture.failed = fmt::format("{}: {}", metric, error.what());
    }
    pictures_.push_back(std::move(picture));
  }

  /// Methods against budgets; of an analysis models and texts alone.
  void table(const std::string& column, const std::string& csv, const std::string& caption) {
    const std::string file = fmt::format("{}-{}", stem_, column);
    std::string rows = "model?,selector";
    if (is_by_text_) rows = "model?,text?,selector";
    if (study_.file.models.empty()) rows = "text?,selector";
    if (study_.file.protocols.size() > 1) rows = "protocol?," + rows;
    Words words = {"table", "--rows", rows, "--columns", "budget", "--value", column, csv};
    if (caption.empty()) words = {"table", "--rows", "model?,text", "--value", column, csv};
    papers::DrawnPicture picture;
    picture.command = command_line_of(words);
    try {
      for (const char* format : {"markdown", "tabular"}) {
        const bool is_tex = format == std::string_view("tabular");
        const std::string out = file + (is_tex ? ".tex" : ".md");
        Words all = words;
        all.insert(all.end(), {"--format", format, "--out", out});
        run(all, {csv, out});
        if (is_tex)
          picture.tex = out;
        else
          picture.markdown = read(out);
      }
      picture.caption = caption;
    } catch (const ConfigError& error) {
      picture.failed = fmt::format("table of {}: {}", column, error.what());
    }
    pictures_.push_back(std::move(picture));
  }

  const LoadedStudy& study_;
  std::string stem_;
  const StudyDrawing& drawing_;
  const std::stop_token& stop_;
  std::string panels_;
  bool is_by_text_ = true;
  std::vector<papers::DrawnPicture> pictures_;
};

}  // namespace

std::vector<papers::DrawnPicture> draw_task(const LoadedStudy& study, const StudyAnswers& answers,
                                            const std::string& task, const StudyDrawing& drawing,
                                            const std::stop_token& stop) {
  return TaskDrawer(study, task, drawing, stop).draw(answers, task);
}

void require_method(const LoadedStudy& study, const std::string& method) {
  std::vector<std::string> names;
  for (const StudyMethod& one : study.file.methods) names.push_back(one.spec.text());
  if (std::ranges::find(names, method) == names.end())
    throw UsageError("--against: expected a method of {} ({}), found {}", study.file.file.string(),
                     fmt::join(names, ", "), quote(method));
}

}  // namespace kvscope::cli
