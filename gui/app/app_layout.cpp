// The App's layouts, its sessions and settings on disk, and its table of keys.
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/new_file.hpp"
#include "core/base/whole_file.hpp"
#include "gui/app/app.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

constexpr std::size_t kMaxSessionBytes = std::size_t{16} << 20;

// ---- layouts ----

void App::show_layout(const std::string& name) {
  for (const Layout& layout : layouts_) {
    if (layout.name != name) continue;
    const auto kept = settings_.arrangements.find(name);
    arrangement_ = kept != settings_.arrangements.end() ? kept->second : layout.root;
    layout_ = name;
    settings_.last_layout = name;
    cells_.maximise("");
    if (!stands_in_layout(cells_.focused())) cells_.focus(panels_in(arrangement_).front());
    return;
  }
  std::vector<std::string> names;
  for (const Layout& layout : layouts_) names.push_back(layout.name);
  throw ConfigError("there is no layout \"{}\"; there are {}", name, fmt::join(names, ", "));
}

bool App::stands_in_layout(const std::string& panel) const {
  const auto shown = panels_in(arrangement_);
  return std::ranges::find(shown, panel) != shown.end();
}

void App::show_panel_alone(const std::string& name) {
  panel(name);
  cells_.maximise(name);
  cells_.focus(name);
}

std::vector<std::string> App::panel_names() const {
  std::vector<std::string> names;
  for (const auto& panel : panels_) names.push_back(panel->info().name);
  return names;
}

Panel* App::find_panel(const std::string& name) {
  for (const auto& panel : panels_) {
    if (panel->info().name == name) return panel.get();
  }
  return nullptr;
}

Panel& App::panel(const std::string& name) {
  if (Panel* found = find_panel(name)) return *found;
  throw ConfigError("there is no panel \"{}\"; there are {}", name, fmt::join(panel_names(), ", "));
}

// ---- sessions ----

Json App::session_json(const fs::path& base) const {
  Json json = session_->to_json(base);
  json["layout"] = {
      {"name", layout_}, {"maximised", cells_.maximised()}, {"arrangement", to_json(arrangement_)}};
  json["theme"] = std::string(enum_name(settings_.theme));
  json["panels"] = Json::object();
  for (const auto& panel : panels_) json["panels"][panel->info().name] = panel->options();
  return json;
}

void App::save_session(const fs::path& file) {
  write_session(file);
  note_session(file);
}

void App::write_session(const fs::path& file) const {
  std::error_code error;
  const Json json = session_json(fs::absolute(file, error).parent_path());
  NewFile whole(file, /*overwrite=*/true, FileKind::session);
  whole.write(json_text(json, 2) + "\n");
  whole.publish();
}

/// What is in the window, the file holds.
void App::note_session(const fs::path& file) {
  std::error_code error;
  session_file_ = fs::absolute(file, error);
  session_stamp_ = file_stamp(session_file_);
  saved_bookmarks_ = session_->bookmarks();
}

void App::load_session(const fs::path& file) {
  std::error_code error;
  const std::string text = read_regular_file(file, kMaxSessionBytes);
  const Json read = parse_ordered_json(text, file.string());
  const bool is_view = read.is_object() && read.contains("format") && read.contains("session");
  try {
    apply_session(is_view ? read["session"] : read, fs::absolute(file, error).parent_path());
  } catch (const Error& e) {
    throw ConfigError("{}: {}", file.string(), e.what());
  }
  if (is_view) return;  // its manifest is no place to save to
  note_session(file);
  settings_.add_recent(file);
}

void App::apply_session(const Json& json, const fs::path& base) {
  keep_first_head();  // a session says what is selected
  session_->apply(json, base);
  if (json.contains("panels") && json["panels"].is_object()) {
    for (const auto& panel : panels_) {
      const std::string name = panel->info().name;
      if (json["panels"].contains(name)) panel->set_options(json["panels"][name]);
    }
  }
  using kvscope::text_at;
  if (const std::string theme = text_at(json, "theme"); !theme.empty())
    parse_field(Field{"theme", ""}, theme, settings_.theme);
  if (json.contains("layout") && json["layout"].is_object()) {
    const Json& layout = json["layout"];
    if (const std::string name = text_at(layout, "name"); !name.empty()) show_layout(name);
    if (layout.contains("arrangement")) arrangement_ = place_from_json(layout["arrangement"]);
    const std::string alone = text_at(layout, "maximised");
    if (!alone.empty()) show_panel_alone(alone);
  }
}

ExportRequest App::export_of(const Panel& panel, const fs::path& folder) const {
  std::error_code error;
  ExportRequest request = export_request(*session_, panel.info().name, panel.info().extent, folder);
  request.figure = panel.figure();
  request.csv = panel.csv();
  request.seen["panel_options"] = panel.options();
  request.render.theme = settings_.theme;
  request.seen["session"] = session_json(fs::absolute(folder, error));
  const ImVec2 size = ImGui::GetIO().DisplaySize;
  request.seen["window"] = {{"width", size.x}, {"height", size.y}, {"scale", settings_.ui_scale}};
  return request;
}

Json App::state() const {
  Json json = session_json({});
  json["kind"] = "kvscope-explorer-state";
  const auto& documents = session_->documents();
  for (std::size_t i = 0; i < documents.size(); ++i)
    json["traces"][i]["n_tokens"] = documents[i]->info().n_tokens;
  json["busy"] = is_busy();
  json["flash"] = ImGui::GetTime() < flash_until_ ? flash_ : std::string();
  json["focused"] = cells_.focused();
  json["notices"] = Json::array();
  for (const Notice& notice : session_->notices()) json["notices"].push_back(notice.sentence);
  json["areas"] = Json::object();
  json["landmarks"] = Json::object();
  for (const auto& panel : panels_) {
    const std::string name = panel->info().name;
    if (const auto area = cells_.area_of(name)) {
      json["areas"][name] = {area->x, area->y, area->w, area->h};
    }
    for (const auto& [place, at] : panel->landmarks()) json["landmarks"][place] = {at.x, at.y};
  }
  for (const Landmark& mark : landmarks_) {
    const ImVec2 at = mark.middle();
    json["landmarks"][mark.name] = {at.x, at.y};
  }
  json["tour"] = tour_.step() ? nlohmann::ordered_json(*tour_.step() + 1) : nullptr;
  json["runs"] = nlohmann::ordered_json::array();
  for (const Run& run : runs_->runs()) {
    json["runs"].push_back({{"id", run.id},
                            {"command", run.command_line()},
                            {"out", run.out.string()},
                            {"state", std::string(enum_name(run.status.state))},
                            {"done", run.status.progress.done},
                            {"total", run.status.progress.total},
                            {"error", run.status.error},
                            {"remark", run.remark}});
  }
  json["hover"] = Json::object();
  for (const auto& [line, value] : hover_) json["hover"][line] = value;
  const ImGuiIO& io = ImGui::GetIO();
  const ImVec2 mouse = ImGui::IsMousePosValid() ? io.MousePos : ImVec2{-1, -1};
  json["input"] = {{"size", {io.DisplaySize.x, io.DisplaySize.y}},
                   {"mouse", {mouse.x, mouse.y}},
                   {"button", ImGui::IsAnyMouseDown()},
                   {"keys_down", std::count(std::begin(io.KeysDown), std::end(io.KeysDown), true)},
                   {"key_presses", n_key_presses_},
                   {"letters", n_letters_},
                   {"text", io.WantTextInput}};
  return json;
}

// ---- keys ----

void App::make_shortcuts() {
  const auto add = [&](const char* group, int key, bool ctrl, bool shift, const std::string& words,
                       std::function<void()> run, bool in_text = false) {
    shortcuts_.push_back({group, key, ctrl, shift, words, std::move(run), in_text});
  };
  constexpr bool kCtrl = true;
  constexpr bool kShift = true;
  Session& session = *session_;
  const auto both_ways = [&](int key, const char* next, const char* previous, auto step) {
    add("Selection", key, false, false, next, [step] { step(1); });
    add("Selection", key, false, kShift, previous, [step] { step(-1); });
  };
  // What a letter did is said: who typed into a box that has lost the keyboard sees it.
  const auto tell = [this](const char* what, Index now) {
    if (session_->document()) flash(fmt::format("{} {} (Ctrl+Z: back)", what, now));
  };
  both_ways(GLFW_KEY_L, "next layer", "previous layer", [&session, tell](int by) {
    session.step_layer(by);
    tell("layer", session.selection().layer);
  });
  both_ways(GLFW_KEY_H, "next query head", "previous query head", [&session, tell](int by) {
    session.step_head(by);
    tell("query head", session.selection().q_head);
  });
  both_ways(GLFW_KEY_Q, "next query", "previous query", [&session, tell](int by) {
    session.step_query(by);
    tell("query", session.selection().query);
  });
  both_ways(GLFW_KEY_C, "next chunk", "previous chunk", [&session, tell](int by) {
    session.step_query(by * session.parameters().chunk);
    tell("query", session.selection().query);
  });
  both_ways(GLFW_KEY_M, "next method", "previous method", [this](int by) { step_method(by); });
  both_ways(GLFW_KEY_B, "double the budget", "halve the budget", [&session, tell](int by) {
    session.set_parameters(
        "budget keys", [by](Parameters& p) { p.budget = by > 0 ? p.budget * 2 : p.budget / 2; });
    tell("budget", session.parameters().budget);
  });
  add("Selection", GLFW_KEY_Z, kCtrl, false, "undo", [&session] { session.undo(); });
  add("Selection", GLFW_KEY_Y, kCtrl, false, "redo", [&session] { session.redo(); });

  for (std::size_t i = 0; i < layouts_.size(); ++i) {
    add("View", GLFW_KEY_1 + static_cast<int>(i), false, false, "layout " + layouts_[i].name,
        [this, i] { show_layout(layouts_[i].name); });
  }
  add("View", GLFW_KEY_0, kCtrl, false, "layout as it was made", [this] {
    settings_.arrangements.erase(layout_);
    unsaved_ = true;
    show_layout(std::string(layout_));
  });
  add("View", GLFW_KEY_F, false, false, "this panel alone, and back", [this] {
    cells_.maximise(cells_.maximised().empty() ? cells_.focused() : "");
    if (!cells_.maximised().empty()) flash("this panel alone (F: back)");
  });
  add("View", GLFW_KEY_ESCAPE, false, false, "back to the layout", [this] {
    if (shows_help_) {
      shows_help_ = false;
    } else if (tour_.step()) {
      tour_.leave();
      settings_.tour_done = true;
    } else if (const Panel* panel = focused_panel();
               panel && cells_.shows_help(panel->info().name)) {
      cells_.show_help(panel->info().name, false);
    } else if (!session_->brush().empty()) {
      session_->set_brush({});
      flash(session_->brush().words());
    } else {
      cells_.maximise("");
    }
  });
  add("View", GLFW_KEY_F, kCtrl, false, "search in the text", [this] {
    if (!session_->document()) return;
    bring_up("tokens");
    find_panel("tokens")->begin_search();
  });
  add("View", GLFW_KEY_TAB, false, false, "next panel", [this] { focus_next_panel(1); });
  add("View", GLFW_KEY_TAB, false, kShift, "previous panel", [this] { focus_next_panel(-1); });
  add("View", GLFW_KEY_F10, false, kShift, "the panel's menu", [this] { cells_.open_menu(); });
  add("View", GLFW_KEY_F2, false, false, "what the panel shows, in words and formulas",
      [this] { cells_.show_help(cells_.focused(), !cells_.shows_help(cells_.focused())); });
  // With both modifiers: who types into a box that has moved away must not change the view.
  add("View", GLFW_KEY_S, kCtrl, kShift, "side bar",
      [this] { settings_.show_sidebar = !settings_.show_sidebar; });
  add("View", GLFW_KEY_T, kCtrl, kShift, "light or dark", [this] {
    settings_.theme =
        settings_.theme == plot::Ground::light ? plot::Ground::dark : plot::Ground::light;
  });
  const auto rescale = [this](double factor) {
    settings_.ui_scale = std::clamp(std::round(settings_.ui_scale * factor * 20) / 20, 0.5, 4.0);
    flash(fmt::format("scale {:.0f} %", 100 * settings_.ui_scale));
  };
  add("View", GLFW_KEY_EQUAL, kCtrl, false, "larger letters", [rescale] { rescale(1.1); });
  add("View", GLFW_KEY_MINUS, kCtrl, false, "smaller letters", [rescale] { rescale(1 / 1.1); });

  add("Files", GLFW_KEY_K, kCtrl, false, "find an action by its name", [this] { palette_.ask(); });
  add("Files", GLFW_KEY_O, kCtrl, false, "open a trace or a result", [this] { ask_open(); });
  add("Files", GLFW_KEY_R, kCtrl, false, "run a command of kvscope, and back",
      [this] { cells_.maximised() == "runs" ? cells_.maximise("") : show_panel_alone("runs"); });
  add("Files", GLFW_KEY_W, kCtrl, false, "close the trace",
      [&session] { session.close_trace(session.selection().trace); });
  add("Files", GLFW_KEY_S, kCtrl, false, "save the session", [this] { ask_save_session(); });
  add("Files", GLFW_KEY_E, kCtrl, false, "export what the panel shows", [this] { ask_export(); });
  add("Files", GLFW_KEY_C, kCtrl, false, "copy the panel's numbers as CSV", [this] { copy_csv(); });
  add("Files", GLFW_KEY_C, kCtrl, kShift, "copy the panel's picture", [this] { copy_picture(); });
  add("Files", GLFW_KEY_B, kCtrl, false, "bookmark the selection", [this] { ask_bookmark(); });
  add("Files", GLFW_KEY_PAGE_DOWN, kCtrl, false, "next bookmark",
      [&session] { session.step_bookmark(1); });
  add("Files", GLFW_KEY_PAGE_UP, kCtrl, false, "previous bookmark",
      [&session] { session.step_bookmark(-1); });
  add(
      "Files", GLFW_KEY_Q, kCtrl, false, "quit", [this] { ask_quit(); }, /*in_text=*/true);
  add(
      "Files", GLFW_KEY_F1, false, false, "this page", [this] { shows_help_ = !shows_help_; },
      /*in_text=*/true);
}

// ---- settings: what is remembered of a window, and what holds for it alone ----

void App::for_this_window(const std::function<void(Settings&)>& change) {
  const nlohmann::ordered_json before = fields_to_json(settings_);
  change(settings_);
  const nlohmann::ordered_json after = fields_to_json(settings_);
  for (const auto& [key, value] : after.items()) {
    if (value != before[key]) lent_[key] = {value, before[key]};
  }
}

void App::remember() {
  bool changed = false;
  const auto& documents = session_->documents();
  std::set<fs::path> now_open;
  const auto note = [&](const fs::path& file) {
    now_open.insert(file);
    if (known_.contains(file)) return;  // a recording gets another name at its end
    settings_.add_recent(file);
    changed = true;
  };
  for (const auto& document : documents) note(document->path());
  for (const auto& result : session_->results()) note(result->name());
  known_ = std::move(now_open);
  nlohmann::ordered_json now = fields_to_json(settings_);
  std::erase_if(lent_, [&](const auto& field) { return now[field.first] != field.second.here; });
  for (const auto& [key, lent] : lent_) now[key] = lent.kept;
  if (!changed && !unsaved_ && now == saved_) return;
  saved_ = now;
  unsaved_ = false;
  if (settings_file_.empty() || ImGui::IsAnyMouseDown()) {
    unsaved_ = !settings_file_.empty();
    return;
  }
  try {
    Settings kept = settings_;
    fields_from_json(now, kept);
    save_settings(kept, settings_file_);
  } catch (const Error& e) {
    session_->notify(e.what(), /*is_error=*/false);
    settings_file_.clear();  // said once
  }
}

}  // namespace kvscope::gui
