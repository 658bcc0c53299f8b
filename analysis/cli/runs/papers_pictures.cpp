#include "analysis/cli/runs/papers_pictures.hpp"

#include <algorithm>
#include <filesystem>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/runs/run_inside.hpp"
#include "analysis/options/exit_code.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/shell_word.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostPictureBytes = 64 << 20;

/// The second word of a figure's command.
std::string figure_name(const std::string& command) {
  const std::size_t begin = command.find(' ') + 1;
  return command.substr(begin, command.find(' ', begin) - begin);
}

bool is_rule(const std::vector<std::string>& cells) {
  for (const std::string& cell : cells) {
    if (cell.find_first_not_of("-: ") != std::string::npos) return false;
  }
  return true;
}

/// The caption sentences of a figure's manifest.
std::string caption_of(const fs::path& manifest) {
  const auto json = parse_json(read_regular_file(manifest, kMostPictureBytes), manifest.string());
  std::string caption;
  if (!json.contains("caption")) return caption;
  for (const auto& sentence : json["caption"]) {
    if (sentence.is_string()) caption += (caption.empty() ? "" : " ") + sentence.get<std::string>();
  }
  return caption;
}

class PictureMaker {
 public:
  PictureMaker(const papers::Item& item, PapersRunner& runner, const std::stop_token& stop)
      : item_(item), runner_(runner), stop_(stop) {}

  papers::DrawnPicture draw(const std::string& command) {
    papers::DrawnPicture picture;
    const bool is_figure = command.starts_with("figure ");
    const std::string stem = is_figure ? figure_name(command) : "table";
    try {
      for (const std::string& name : papers::names_in(command)) {
        if (papers::is_choice(name)) continue;
        const papers::RunResult needed = runner_.result(name);
        if (needed.view == nullptr) {
          picture.failed = needed.missing;
          picture.not_run = needed.not_run;
          return picture;
        }
      }
      fs::create_directories(runner_.folder().out / "items" / item_.id);
      if (is_figure) {
        draw_figure(command, stem, picture);
      } else {
        draw_table(command, picture);
      }
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& error) {
      picture.failed = error.what();
      picture.not_run = is_of_system(error);
    }
    return picture;
  }

 private:
  std::string place(const std::string& file) const { return "items/" + item_.id + "/" + file; }
  fs::path path(const std::string& file) const { return runner_.folder().out / place(file); }

  void make(const std::string& command, const std::string& more) {
    auto words = runner_.words_of(command, "", /*in_folder=*/false);
    for (const std::string& word : runner_.words_of(more, path("").string(), /*in_folder=*/false))
      words.push_back(word);
    const CommandOutcome outcome = run_inside(words, {}, stop_);
    if (stop_.stop_requested()) throw Interrupted("stopped; the same command continues from here");
    if (outcome.is_system) throw IoError(outcome.last_note);
    if (outcome.code != kOk) throw ConfigError(outcome.last_note);
  }

  std::string typed(const std::string& command, const std::string& more) {
    const auto words = [&](const std::string& text) {
      return runner_.words_of(text, place(""), /*in_folder=*/true);
    };
    return command_line_of(words(more), command_line_of(words(command)));
  }

  void draw_figure(const std::string& command, const std::string& stem,
                   papers::DrawnPicture& picture) {
    const std::string more = " --format svg,pdf --overwrite --out {out}";
    make(command, more);
    picture.command = typed(command, " --out {out}");
    picture.svg = read_regular_file(path(stem + ".svg"), kMostPictureBytes);
    picture.pdf = place(stem + ".pdf");
    picture.caption = caption_of(path(stem + ".json"));
  }

  void draw_table(const std::string& command, papers::DrawnPicture& picture) {
    make(command, " --format markdown --overwrite --out {out}table.md");
    make(command, " --format tabular --overwrite --out {out}table.tex");
    picture.command = typed(command, "");
    picture.cells = markdown_cells(read_regular_file(path("table.md"), kMostPictureBytes));
    picture.tex = place("table.tex");
  }

  const papers::Item& item_;
  PapersRunner& runner_;
  const std::stop_token& stop_;
};

}  // namespace

std::vector<std::vector<std::string>> markdown_cells(std::string_view markdown) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t begin = 0; begin < markdown.size();) {
    const std::size_t end = std::min(markdown.find('\n', begin), markdown.size());
    const std::string_view line = markdown.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with('|')) continue;
    std::vector<std::string> cells;
    std::string cell;
    for (std::size_t i = 1; i < line.size(); ++i) {
      if (line[i] == '\\' && i + 1 < line.size()) {
        cell += line[++i];
      } else if (line.substr(i).starts_with("&lt;")) {
        cell += '<';
        i += 3;
      } else if (line.substr(i).starts_with("&amp;")) {
        cell += '&';
        i += 4;
      } else if (line[i] == '|') {
        const std::size_t first = cell.find_first_not_of(' ');
        const std::size_t last = cell.find_last_not_of(' ');
        cells.push_back(first == cell.npos ? "" : cell.substr(first, last - first + 1));
        cell.clear();
      } else {
        cell += line[i];
      }
    }
    if (rows.size() == 1 && is_rule(cells)) continue;  // the rule below the header
    rows.push_back(std::move(cells));
  }
  return rows;
}

std::vector<papers::DrawnPicture> draw_pictures(const papers::Item& item, PapersRunner& runner,
                                                const std::stop_token& stop) {
  std::vector<papers::DrawnPicture> pictures;
  PictureMaker drawing(item, runner, stop);
  for (const papers::Picture& picture : item.pictures) {
    if (stop.stop_requested()) throw Interrupted("stopped; the same command continues from here");
    pictures.push_back(drawing.draw(picture.command));
  }
  return pictures;
}

}  // namespace kvscope::cli
