#include "analysis/cli/runs/study_page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/escape.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {

namespace {

using Cells = std::vector<std::vector<std::string>>;

constexpr std::string_view kReading =
    "An item is a task of one model on one text under one method, budget and protocol; its key is "
    "made of the hashes below, so a number here is of exactly these contents. Intervals are of "
    "95 %; each figure says what they are of. Means of a sweep are over the layers without a "
    "sliding window.";

std::string counted(std::size_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string with_hash(const std::string& name, const std::string& hash) {
  return hash.empty() ? name : fmt::format("{} ({})", name, hash);
}

Cells count_cells(const std::vector<StudyCounts>& counts) {
  Cells cells = {{"Task", "Items", "Known", "Failed", "To do"}};
  for (const StudyCounts& task : counts)
    cells.push_back({task.task, std::to_string(task.items), std::to_string(task.known),
                     std::to_string(task.failed), std::to_string(task.to_do)});
  return cells;
}

std::string list_html(const std::string& heading, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string html = fmt::format("<h2>{}</h2>\n<ul>\n", heading);
  for (const std::string& line : lines) html += fmt::format("<li>{}</li>\n", xml_escape(line));
  return html + "</ul>\n";
}

std::string list_tex(const std::string& heading, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string tex = fmt::format("\\section*{{{}}}\n\\begin{{itemize}}\n", heading);
  for (const std::string& line : lines) tex += fmt::format("\\item {}\n", tex_escape(line));
  return tex + "\\end{itemize}\n";
}

}  // namespace

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

std::vector<std::pair<std::string, std::string>> setup_of_study(const StudyFile& study,
                                                                const StudyInputs& inputs) {
  std::vector<std::pair<std::string, std::string>> setup;
  const auto add = [&](const char* what, const std::vector<std::string>& words) {
    if (!words.empty()) setup.emplace_back(what, fmt::format("{}", fmt::join(words, ", ")));
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

std::string study_html(const StudyReport& report) {
  std::string html = papers::page_begin(report.title);
  html += fmt::format("<h1>{}</h1>\n<p><b>{}</b></p>\n<p>{}</p>\n", xml_escape(report.title),
                      xml_escape(report.question), xml_escape(kReading));
  html += fmt::format(
      "<p class=\"soft small\">Made by {} with <code>{}</code>; the items took {} of processor "
      "time.</p>\n<h2>Setup</h2>\n<dl>\n",
      xml_escape(report.writer), xml_escape(report.command_line), seconds_text(report.seconds));
  for (const auto& [what, words] : report.setup)
    html += fmt::format("<dt>{}</dt><dd style=\"overflow-wrap:anywhere\">{}</dd>\n", what,
                        xml_escape(words));
  html += "</dl>\n" + papers::grid_html(count_cells(report.counts));
  for (std::size_t t = 0; t < report.tasks.size(); ++t) {
    const StudySection& section = report.tasks[t];
    html += fmt::format("<h2>{}</h2>\n<pre>{}</pre>\n", xml_escape(section.task),
                        xml_escape(section.command));
    for (std::size_t i = 0; i < section.pictures.size(); ++i) {
      const papers::DrawnPicture& picture = section.pictures[i];
      html += papers::picture_html(picture, fmt::format("t{}-{}-", t, i));
      if (!picture.command.empty())
        html += fmt::format("<details><summary>Command</summary><pre>{}</pre></details>\n",
                            xml_escape(picture.command));
    }
  }
  html += list_html("Failed", report.failures) + list_html("Left out", report.left_out);
  html += "<h2>How it was computed</h2>\n";
  for (const std::string& command : report.commands)
    html += fmt::format("<pre>{}</pre>\n", xml_escape(command));
  html += fmt::format("<p>The study file:</p>\n<pre>{}</pre>\n", xml_escape(report.source));
  return html + "</body></html>\n";
}

std::string study_tex(const StudyReport& report) {
  std::string tex = papers::tex_preamble();
  tex += fmt::format(
      "\\title{{{}}}\n\\author{{made by {}}}\n\\date{{}}\n\\begin{{document}}\n\\maketitle\n"
      "\\textbf{{{}}}\n\n{} The items took {} of processor time.\n\n",
      tex_escape(report.title), tex_escape(report.writer), tex_escape(report.question),
      tex_escape(std::string(kReading)), tex_escape(seconds_text(report.seconds)));
  tex += papers::command_tex(report.command_line) + "\\section*{Setup}\n";
  for (const auto& [what, words] : report.setup)
    tex += fmt::format("\\textbf{{{}.}} {}\n\n", what, tex_escape(words));
  tex += "\\begin{center}\\begin{tabular}{lrrrr}\\toprule\n";
  for (const auto& row : count_cells(report.counts)) {
    std::vector<std::string> cells;
    for (const std::string& cell : row) cells.push_back(tex_escape(cell));
    tex += fmt::format("{} \\\\\n", fmt::join(cells, " & "));
  }
  tex += "\\bottomrule\\end{tabular}\\end{center}\n";
  for (const StudySection& section : report.tasks) {
    tex += fmt::format("\\section*{{{}}}\n", tex_escape(section.task));
    tex += papers::command_tex(section.command) + "\n";
    for (const papers::DrawnPicture& picture : section.pictures) {
      tex += papers::picture_tex(picture);
      if (!picture.command.empty()) tex += papers::command_tex(picture.command);
    }
  }
  tex += list_tex("Failed", report.failures) + list_tex("Left out", report.left_out);
  tex += "\\section*{How it was computed}\n";
  for (const std::string& command : report.commands) tex += papers::command_tex(command) + "\n";
  tex += "The study file:\n\n";
  for (std::size_t at = 0; at < report.source.size();) {
    const std::size_t end = std::min(report.source.find('\n', at), report.source.size());
    tex += papers::command_tex(report.source.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return tex + "\\end{document}\n";
}

}  // namespace kvscope::cli
