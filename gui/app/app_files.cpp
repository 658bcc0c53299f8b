// What the App opens: files of every kind, and what commands beside the window made.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/whole_file.hpp"
#include "gui/app/app.hpp"
#include "gui/model/runs/child_program.hpp"
#include "gui/model/runs/command_form.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kLargestSession = std::size_t{16} << 20;

/// A saved session, or the manifest of a view, which holds one; results may be JSON too. False for
/// what cannot be read.
bool is_session_file(const fs::path& file) {
  std::error_code error;
  if (file.extension() != ".json" || !fs::is_regular_file(file, error) ||
      fs::file_size(file, error) > kLargestSession || error) {
    return false;
  }
  try {
    const auto json = parse_ordered_json(read_regular_file(file, kLargestSession), file.string());
    return kvscope::text_at(json, "kind") == "kvscope-session" ||
           kvscope::text_at(json, "format") == "kvscope-view";
  } catch (const Error&) {
    return false;  // what is wrong with it, the reader of results says
  }
}

}  // namespace

void App::ask_open() {
  file_dialog_.ask(FileDialog::Purpose::open, "Open traces, results, a session or a study",
                   {".h5", ".hdf5", ".csv", ".json", ".part", ".toml"}, "",
                   [this](const fs::path& file) { open(file); });
}

void App::ask_save_session(bool then_quits) {
  const auto save = [this, then_quits](const fs::path& file) {
    std::error_code error;
    const auto now = file_stamp(file);
    if (now && now != session_stamp_ && fs::equivalent(file, session_file_, error)) {
      session_stamp_ = now;  // who saves again replaces it
      session_->notify(fmt::format(
          "{} has changed since this window opened or saved it, and is not replaced: save under "
          "another name, or once more to replace it.",
          file.string()));
      return;
    }
    try {
      save_session(file);
      settings_.add_recent(file);
      flash("saved " + file.string());
      wants_quit_ = wants_quit_ || then_quits;
    } catch (const Error& e) {
      session_->notify(e.what());
    }
  };
  const std::string name = session_file_.empty() ? "session.json" : session_file_.string();
  file_dialog_.ask(FileDialog::Purpose::save, "Save the session", {".json"}, name, save);
}

std::size_t App::n_unsaved_bookmarks() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(session_->bookmarks(), [&](const Bookmark& mark) {
        return std::ranges::find(saved_bookmarks_, mark) == saved_bookmarks_.end();
      }));
}

void App::ask_quit() {
  asks_quit_ = n_unsaved_bookmarks() > 0;
  wants_quit_ = !asks_quit_;
}

void App::draw_quit_dialog() {
  if (!begin_dialog(look_, "Quit", asks_quit_, {480, 0})) return;
  wrapped_words(fmt::format("Bookmarks that no session file holds, and that would be lost: {}.",
                            n_unsaved_bookmarks()));
  const auto pressed = [](const char* words) {
    const bool is_pressed = ImGui::Button(words);
    landmark(words);
    ImGui::SameLine();
    return is_pressed;
  };
  const bool saves = pressed("Save the session...");
  wants_quit_ = pressed("Quit without them");
  const bool stays = pressed("Cancel") || ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape));
  if (saves) ask_save_session(/*then_quits=*/true);
  if (saves || wants_quit_ || stays) ImGui::CloseCurrentPopup();
  ImGui::EndPopup();
}

/// Has kvscope export make a page of what the window holds now, which a file beside the trace tells
/// it: that file is no place to save to.
void App::export_page() {
  const auto trace = session_->document();
  if (!trace) {
    flash("nothing to export: no trace is open");
    return;
  }
  try {
    std::error_code error;
    const fs::path path = fs::absolute(trace->path(), error);
    const fs::path session = free_file(path.parent_path() / (path.stem().string() + "-page.json"));
    const fs::path page = free_file(fs::path(session).replace_extension(".html"));
    write_session(session);
    runs_->add(command_words("export", {session.string()}, {{"html", ""}, {"out", page.string()}}),
               page);
    flash("writing " + page.string());
  } catch (const Error& e) {
    session_->notify(e.what());
  }
}

void App::ask_command(const std::string& command, const CommandValues& values) {
  find_panel("runs")->set_options({{"command", command}, {"values", values}});
  show_panel_alone("runs");
}

void App::open(const fs::path& file) {
  if (file.extension() == ".txt") {
    ask_command("record", {{"text", file.string()}});
    flash("the text to record: " + file.string());
    return;
  }
  if (file.extension() == ".toml") {
    ask_command("study run", {{"FILE", file.string()}});
    return;
  }
  if (is_session_file(file)) {
    if (n_unsaved_bookmarks() > 0) {
      session_->notify(fmt::format(
          "{} is not opened: no session file holds {} of the bookmarks here; save them first.",
          file.string(), n_unsaved_bookmarks()));
      return;
    }
    try {
      load_session(file);
      flash("opened the session " + file.filename().string());
    } catch (const Error& e) {
      session_->notify(e.what());
    }
    return;
  }
  session_->open(file);
  shows_next_result_ = has_drawn_;
  std::error_code error;
  for (const auto& result : session_->results()) {  // open already: it is read again, and shown
    if (fs::equivalent(result->name(), file, error)) show_result(*result);
  }
}

/// What they made is opened, of a study the table of what is known; what the window cannot show is
/// said.
void App::take_runs() {
  if (runs_->update()) requests_.redraw = true;
  for (const Run& run : runs_->take_made()) {
    if (run.words[0] == "study") {
      const fs::path study = run.words[2];
      const fs::path table =
          free_file(study.parent_path() / (study.stem().string() + "-table.csv"));
      run_beside(
          *session_, "Writing the study's table", Lane::questions,
          [table, words = std::vector<std::string>{runs_->program(), "study", "table", "--out",
                                                   table.string(), "--",
                                                   study.string()}](JobContext& job) {
            answer_of_program(words, job);
            return table;
          },
          [this](const fs::path& written) { open(written); });
      continue;
    }
    const std::string ending = run.out.extension().string();
    const bool is_table = run.words[0] == "sweep" || run.words[0] == "simulate";
    if (ending == ".h5" || ending == ".hdf5" || ending == ".csv" ||
        (ending == ".json" && is_table)) {
      if (cells_.maximised() == "runs") cells_.maximise("");
      open(run.out);
    } else {
      flash("wrote " + run.out.string());
    }
  }
}

/// Panels out of sight keep what they showed: after a trace was closed they are made anew, so that
/// its file is closed and its memory free.
void App::release_closed() {
  const std::size_t n = session_->documents().size();
  const bool has_closed = n < n_documents_;
  n_documents_ = n;
  if (!has_closed) return;
  auto fresh = make_panels();
  for (std::size_t i = 0; i < panels_.size(); ++i) {
    const std::string name = panels_[i]->info().name;
    const bool in_sight =
        !is_empty() && (cells_.area_of(name) || (name == "traces" && settings_.show_sidebar));
    if (in_sight && n > 0) continue;
    try {
      fresh[i]->set_options(panels_[i]->options());
    } catch (const Error&) {
      continue;  // as it was made
    }
    panels_[i] = std::move(fresh[i]);
  }
}

}  // namespace kvscope::gui
