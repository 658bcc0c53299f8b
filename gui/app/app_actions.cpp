// The App's palette of actions, bookmarks, pictures for the clipboard, and results that come up.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "core/trace/result.hpp"
#include "gui/app/app.hpp"
#include "gui/model/session/methods.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/platform/picture_clipboard.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr const char* kBookmarkId = "Bookmark";

/// Other words for what keys do.
constexpr std::pair<std::string_view, std::string_view> kOtherWords[] = {
    {"open a trace or a result", "load file h5 csv json toml session study"},
    {"export what the panel shows", "save figure picture html svg pdf png latex tikz pgfplots"},
    {"copy the panel's numbers as CSV", "table clipboard"},
    {"copy the panel's picture", "image png clipboard"},
    {"save the session", "workspace"},
    {"side bar", "sidebar traces selection sliders hide show"},
    {"light or dark", "theme colours night"},
    {"larger letters", "zoom scale font bigger"},
    {"smaller letters", "zoom scale font"},
    {"this panel alone, and back", "maximise full screen"},
    {"run a command of kvscope, and back", "record analyse analyze sweep simulate runs"},
    {"layout as it was made", "reset"},
    {"this page", "help keys shortcuts mouse"},
    {"double the budget", "threshold keys kept"},
    {"halve the budget", "threshold keys kept"},
};

/// What became of a picture for the clipboard.
struct CopiedPicture {
  fs::path file;
  std::string problem;  // a sentence: it is not on the clipboard
};

}  // namespace

// ---- the palette ----

std::vector<Action> App::actions() {
  std::vector<Action> all;
  for (const Shortcut& shortcut : shortcuts_) {
    const auto other = std::find_if(std::begin(kOtherWords), std::end(kOtherWords),
                                    [&](const auto& pair) { return pair.first == shortcut.words; });
    all.push_back({shortcut.group, shortcut.words, keys_of(shortcut), shortcut.run,
                   other == std::end(kOtherWords) ? "" : std::string(other->second)});
  }
  all.push_back(
      {"View", "the tour", "", [this] { tour_.start(); }, "help introduction first steps"});
  all.push_back({"Files", "export page: bookmarks and results", "", [this] { export_page(); },
                 "save html share session browser"});
  for (const auto& panel : panels_) {
    const PanelInfo info = panel->info();
    if (info.name == "traces") continue;  // stands in the side bar
    all.push_back({"Panel", info.title, "", [this, name = info.name] { bring_up(name); },
                   info.name + " " + info.sentence});
    all.push_back({"Help", "what is: " + info.title, "", [this, name = info.name] {
                     bring_up(name);
                     cells_.show_help(name, true);
                   }});
    for (const PanelChoice& choice : panel->choices()) {
      all.push_back({"Switch", info.title + ", " + choice.words, "",
                     [this, name = info.name, options = choice.options] {
                       bring_up(name);
                       Panel* chosen = find_panel(name);
                       nlohmann::ordered_json all_options = chosen->options();  // and the zoom
                       all_options.update(nlohmann::ordered_json::parse(options));
                       chosen->set_options(all_options);
                     },
                     info.name + " " + choice.help});
    }
  }
  for (const CommandSpec& command : runs_->commands()) {
    all.push_back({"Run", command.name + ": " + command.summary, "",
                   [this, name = command.name] {
                     find_panel("runs")->set_options({{"command", name}});
                     show_panel_alone("runs");
                   },
                   "run command start " + command.other_words + " " + command.description});
  }
  for (std::size_t i = 0; i < session_->documents().size(); ++i) {
    all.push_back({"Trace", session_->documents()[i]->name(), "", [this, i] {
                     session_->select("palette",
                                      [&](Selection& s) { s.trace = static_cast<Index>(i); });
                   }});
  }
  for (const auto& result : session_->results()) {
    all.push_back({"Result", fs::path(result->name()).filename().string(), "",
                   [this, result] { show_result(*result); }});
  }
  for (std::size_t i = 0; i < session_->bookmarks().size(); ++i) {
    const Bookmark& mark = session_->bookmarks()[i];
    all.push_back({"Bookmark", mark.words() + (mark.note.empty() ? "" : ": " + mark.note), "",
                   [this, i] { session_->go_to(i); }});
  }
  for (const MethodGroup& group : method_groups("")) {
    for (const MethodLine& line : group.methods) add_method_actions(all, line);
  }
  for (const std::string& file : settings_.recent) {
    all.push_back({"Open", file, "", [this, file] { open(file); }});
  }
  return all;
}

void App::add_method_actions(std::vector<Action>& all, const MethodLine& line) {
  const std::string& name = line.name;
  const std::string also = line.title + " " + line.paper + " " + line.idea;
  const auto selects = [&](const char* words, MethodSpec Selection::*field) {
    all.push_back({"Method", words + name, "",
                   [this, name, field] {
                     session_->select("palette", [&](Selection& s) { s.*field = name; });
                   },
                   also});
  };
  selects("select ", &Selection::selector);
  selects("compare with ", &Selection::other);
  const bool on = session_->is_ticked(name);
  all.push_back({"Method", (on ? "hide the curve of " : "show the curve of ") + name, "",
                 [this, name, on] { session_->set_ticked(name, !on); }, also});
}

/// Shows a panel where it stands in the layout, else alone.
void App::bring_up(const std::string& name) {
  cells_.maximise(stands_in_layout(name) ? "" : name);
  cells_.focus(name);
}

/// Through the panels, or the start page, then the side bar and the top bar.
void App::focus_next_panel(int by) {
  std::vector<std::string> stops =
      is_empty() ? std::vector<std::string>() : panels_in(arrangement_);
  // One that is shown alone and stands in no place of the layout is not left for another.
  const std::string& alone = cells_.maximised();
  const bool is_apart =
      !alone.empty() && std::find(stops.begin(), stops.end(), alone) == stops.end();
  if (is_apart) stops = {alone};
  const auto n_panels = static_cast<std::ptrdiff_t>(stops.size());
  if (is_empty() && alone.empty()) stops.push_back("page");
  if (settings_.show_sidebar && !is_empty()) stops.push_back("side bar");
  stops.push_back("top bar");
  const auto n = static_cast<std::ptrdiff_t>(stops.size());
  const std::string& here = keyboard_bar_.empty() ? cells_.focused() : keyboard_bar_;
  const std::ptrdiff_t at = std::find(stops.begin(), stops.end(), here) - stops.begin();
  const bool stays = at == n || (is_apart && at == 0 && !has_keyboard_mark());
  const std::ptrdiff_t next = stays ? 0 : (at + by + n) % n;
  const std::string name = stops[static_cast<std::size_t>(next)];
  bar_takes_keyboard_ = next >= n_panels;
  keyboard_bar_ = bar_takes_keyboard_ ? name : "";
  if (bar_takes_keyboard_) return;
  cells_.focus(name);
  cells_.take_keyboard();
  if (!cells_.maximised().empty()) cells_.maximise(name);
}

bool App::takes_keyboard(std::string_view bar) {
  return keyboard_bar_ == bar && std::exchange(bar_takes_keyboard_, false);
}

// ---- bookmarks ----

void App::ask_bookmark() {
  if (!session_->document()) {
    flash("nothing to bookmark: no trace is open");
    return;
  }
  note_.clear();
  asks_note_ = true;
}

void App::draw_bookmark_dialog() {
  if (!begin_dialog(look_, kBookmarkId, asks_note_, {480, 0})) return;
  const Selection& s = session_->selection();
  ImGui::TextUnformatted(RowTarget{s.layer, s.q_head, s.query, s.key}.words().c_str());
  if (ImGui::IsWindowAppearing()) ImGui::SetKeyboardFocusHere();
  ImGui::SetNextItemWidth(-1.0f);
  const bool entered = ImGui::InputTextWithHint("##note", "a note, or nothing", &note_,
                                                ImGuiInputTextFlags_EnterReturnsTrue);
  landmark("bookmark note");
  const bool saves = ImGui::Button("Add", {look_.px(90), 0}) || entered;
  ImGui::SameLine();
  const bool cancels = ImGui::Button("Cancel", {look_.px(90), 0}) ||
                       ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape));
  if (saves) {
    session_->add_bookmark(note_);
    flash(fmt::format("bookmark {}: they are in the panel Bookmarks and in the session file",
                      session_->bookmarks().size()));
  }
  if (saves || cancels) ImGui::CloseCurrentPopup();
  ImGui::EndPopup();
}

// ---- pictures ----

void App::copy_picture() {
  const Panel* from = whole_panel();
  if (from == nullptr) return;
  if (!from->figure()) {
    flash("no picture to copy: " + from->info().title + " shows none yet");
    return;
  }
  ExportRequest request = export_of(*from, cache_folder("pictures"));
  request.stem = suggested_stem(*session_, from->info().name,
                                from->info().extent);  // the one before is replaced
  request.formats = {ExportFormat::png};
  run_beside(
      *session_, "Copying the picture of " + from->info().title, Lane::quick,
      [request = std::move(request)](JobContext& job) {
        CopiedPicture copied;
        std::error_code error;
        fs::create_directories(request.folder, error);
        for (const fs::path& file : export_view(request, Existing::replace)) {
          if (file.extension() == ".png") copied.file = file;
        }
        copied.problem = picture_to_clipboard(copied.file, job.stop);
        return copied;
      },
      [this](const CopiedPicture& copied) {
        if (copied.problem.empty()) {
          flash("the picture is on the clipboard, and in " + copied.file.string());
          return;
        }
        ImGui::SetClipboardText(copied.file.c_str());
        session_->notify(fmt::format("The picture is not on the clipboard: {}. Its path is: {}",
                                     copied.problem, copied.file.string()),
                         /*is_error=*/false);
      });
}

// ---- results ----

/// Brings a result into view, wherever the results' panel stands.
void App::show_result(const ResultView& result) {
  const std::string name = fs::path(result.name()).filename().string();
  find_panel("results")->set_options({{"result", name}});
  const bool visible = stands_in_layout("results") &&
                       (cells_.maximised().empty() || cells_.maximised() == "results");
  if (!visible) show_layout("results");
  if (!stands_in_layout("results")) cells_.maximise("results");
  cells_.focus("results");
  Index n_rows = 0;
  for (const ResultArray& array : result.arrays()) {
    if (array.name.starts_with("rows/") && array.shape.rank == 1) n_rows = array.shape[0];
  }
  flash(fmt::format("{}: {}{}, shown in {}", name, result.info().kind,
                    n_rows > 0 ? fmt::format(", {} rows", n_rows) : std::string(),
                    cells_.maximised().empty() ? layout_ : std::string("Results")));
}

/// Brings into sight what was opened by hand, or alone, once it is there.
void App::bring_up_results() {
  const auto& results = session_->results();
  const bool has_trace = !session_->documents().empty();
  if (!has_trace && session_->is_opening() && !shows_next_result_) return;  // one may still come
  const bool is_asked = shows_next_result_ || (!has_trace && cells_.maximised().empty());
  if (results.size() > n_results_ && is_asked) show_result(*results.back());
  n_results_ = results.size();
  // A trace that was opened beside two others is what one wants to see next.
  const std::size_t n_traces = session_->documents().size();
  if (shows_next_result_ && n_documents_ >= 2 && n_traces > n_documents_) {
    session_->select("open", [&](Selection& s) { s.trace = static_cast<Index>(n_traces) - 1; });
  }
  if (!session_->is_opening()) shows_next_result_ = false;
  // A trace that comes while the layout of results is remembered, and empty: there is more to see.
  const bool is_first_trace = n_documents_ == 0 && has_trace;
  if (is_first_trace && results.empty() && !session_->is_opening() && layout_ == "results" &&
      cells_.maximised().empty()) {
    show_layout(layouts_.front().name);
  }
}

}  // namespace kvscope::gui
