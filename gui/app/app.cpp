#include "gui/app/app.hpp"

#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/whole_file.hpp"
#include "gui/app/help.hpp"
#include "gui/app/status_bar.hpp"
#include "gui/model/session/methods.hpp"
#include "gui/model/session/session_file.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"
#include "gui/render/fonts.hpp"
#include "notebooks_export/open_result.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr double kFlashSeconds = 3.0;
constexpr float kSidebar = 262.0f;  // points

std::uint64_t count_presses() {
  std::uint64_t n = 0;
  for (int key = 0; key < IM_ARRAYSIZE(ImGuiIO::KeysDown); ++key) {
    if (ImGui::IsKeyPressed(key, /*repeat=*/false)) ++n;
  }
  return n;
}

/// Esc would leave something first: a table or list that the arrows go through, or a control that
/// takes the keyboard.
bool keyboard_is_inside() {
  const ImGuiContext& g = *ImGui::GetCurrentContext();
  if (g.ActiveId != 0 && g.ActiveIdSource == ImGuiInputSource_Nav) return true;
  if (g.NavWindow == nullptr || g.NavDisableHighlight) return false;
  // A panel or the side bar is as far out as Esc goes; tables lie deeper.
  const ImGuiWindow* window = g.NavWindow->RootWindowForNav;
  constexpr ImGuiWindowFlags kChild = ImGuiWindowFlags_ChildWindow;
  return (window->Flags & kChild) != 0 && (window->Flags & ImGuiWindowFlags_Popup) == 0 &&
         (window->ParentWindow->Flags & kChild) != 0;
}

}  // namespace

App::App(AppOptions options, FontAtlas& fonts, TextureStore& textures)
    : settings_(std::move(options.settings)),
      settings_file_(std::move(options.settings_file)),
      fonts_(fonts),
      textures_(textures),
      panels_(make_panels()),
      layouts_(standard_layouts()) {
  cache_ = std::make_unique<Cache>(static_cast<std::size_t>(settings_.cache_mib) << 20);
  jobs_ = std::make_unique<JobRunner>(std::move(options.wake), options.n_threads);
  session_ = std::make_unique<Session>(Workbench{*jobs_, *cache_}, open_result);
  runs_ = std::make_unique<RunQueue>(*jobs_, std::move(options.program));
  const bool known = std::any_of(layouts_.begin(), layouts_.end(),
                                 [&](const Layout& l) { return l.name == settings_.last_layout; });
  opens_on_interest_ = options.opens_on_interest && settings_.opening == Opening::interesting;
  const std::string first = opens_on_interest_ ? "atlas" : layouts_.front().name;
  show_layout(known ? settings_.last_layout : first);
  make_shortcuts();
}

App::~App() {
  // Work that still runs may deliver into what is about to go: end it first.
  jobs_.reset();
}

// ---- one frame ----

void App::frame(float screen_scale) {
  update_look(screen_scale);
  requests_ = {};
  if (jobs_->poll()) requests_.redraw = true;
  take_runs();
  bring_up_results();
  const std::uint64_t before = session_->revision();
  n_key_presses_ += count_presses();
  n_letters_ += static_cast<std::uint64_t>(ImGui::GetIO().InputQueueCharacters.Size);
  // Esc that has closed a menu, left a table or let go of a control in this frame means nothing
  // else.
  const bool is_popup_open = ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopupId);
  const bool is_esc = ImGui::IsKeyPressed(GLFW_KEY_ESCAPE, /*repeat=*/false);
  run_shortcuts(shortcuts_, is_popup_open || popup_was_open_ || (is_esc && keyboard_was_inside_));
  // Esc leaves a panel for ImGui too, which would mark all of it.
  if (is_esc && !keyboard_was_inside_) ImGui::GetCurrentContext()->NavDisableHighlight = true;
  if (ImGui::IsAnyMouseDown()) keyboard_bar_.clear();

  const ImVec2 size = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowPos({0, 0});
  ImGui::SetNextWindowSize(size);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {0, 0});
  ImGui::Begin("explorer", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoBackground |
                   ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                   ImGuiWindowFlags_NoBringToFrontOnFocus | ImGuiWindowFlags_NoScrollWithMouse);
  ImGui::PopStyleVar();
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {look_.px(8), 0});
  if (takes_keyboard("top bar")) keyboard_here();
  draw_top_bar();
  draw_banners();
  ImGui::PopStyleVar();
  draw_body();
  ImGui::End();
  draw_dialogs();
  release_closed();
  remember();
  has_drawn_ = true;
  popup_was_open_ = ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopupId);
  keyboard_was_inside_ = keyboard_is_inside();
  // Arrows over the attention map move it; elsewhere they go from control to control.
  int& flags = ImGui::GetIO().ConfigFlags;
  flags = take_arrow_claim() ? flags & ~ImGuiConfigFlags_NavEnableKeyboard
                             : flags | ImGuiConfigFlags_NavEnableKeyboard;
  panel_errors_ = take_error_sentences();
  hover_ = collect_hover_lines();
  landmarks_ = take_landmarks();
  drawn_revision_ = session_->revision();
  wants_redraw_ = requests_.redraw || drawn_revision_ != before || take_tooltip_wait() ||
                  ImGui::GetTime() < flash_until_;
}

PanelContext App::context() {
  return {*session_, look_, fonts_, textures_, requests_, *runs_};
}

void App::update_look(float screen_scale) {
  const float scale = std::clamp(screen_scale * static_cast<float>(settings_.ui_scale), 0.5f, 4.0f);
  if (look_.scale == scale && look_.ground == settings_.theme && look_.ink.r != look_.surface.r)
    return;
  look_ = make_look(settings_.theme, scale);
  apply_look(look_, ImGui::GetStyle());
  fonts_.set_scale(scale);
}

void App::draw_top_bar() {
  const Look& look = look_;
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {look.px(8), look.px(4)});
  ImGui::BeginChild("top", {0, ImGui::GetFrameHeight() + look.px(8)}, false,
                    ImGuiWindowFlags_AlwaysUseWindowPadding | ImGuiWindowFlags_NoScrollbar |
                        ImGuiWindowFlags_NavFlattened);
  if (ImGui::Button("Open")) ask_open();
  help_tooltip("Traces and results (Ctrl+O); files can be dropped onto the window");
  ImGui::SameLine();
  const auto& runs = runs_->runs();
  const auto n_open =
      std::count_if(runs.begin(), runs.end(), [](const Run& run) { return !run.status.is_over(); });
  const std::string run_words = n_open > 0 ? fmt::format("Run ({})###run", n_open) : "Run###run";
  if (ImGui::Button(run_words.c_str())) toggle_runs();
  landmark("open runs");
  help_tooltip("Record, analyse, sweep or simulate, and what was started (Ctrl+R)");
  ImGui::SameLine();
  ImGui::Dummy({look.px(8), 0});
  const char* theme = settings_.theme == plot::Ground::light ? "Dark" : "Light";
  const float right = ImGui::CalcTextSize(theme).x + ImGui::CalcTextSize("HelpTour").x +
                      6 * ImGui::GetStyle().FramePadding.x + 2 * ImGui::GetStyle().ItemSpacing.x;
  std::vector<std::string> names;
  float needed = 0.0f;
  for (const Layout& layout : layouts_) {
    names.push_back(fmt::format("{}  {}", names.size() + 1, layout.name));
    char& first = names.back()[names.back().size() - layout.name.size()];
    first = static_cast<char>(std::toupper(first));
    needed += ImGui::CalcTextSize(names.back().c_str()).x + 2 * ImGui::GetStyle().FramePadding.x +
              ImGui::GetStyle().ItemSpacing.x;
  }
  const bool has_room = ImGui::GetItemRectMax().x - ImGui::GetWindowPos().x + needed + right <
                        ImGui::GetWindowContentRegionMax().x;
  for (std::size_t i = 0; i < layouts_.size(); ++i) {
    ImGui::SameLine();
    const bool on = !is_empty() && layouts_[i].name == layout_ && cells_.maximised().empty();
    ImGui::PushStyleColor(ImGuiCol_Button, on ? packed(plot::with_alpha(look.accent, 0.22)) : 0);
    const std::string words =
        has_room ? names[i] : fmt::format("{}###{}", i + 1, names[i]);  // its tooltip names it
    if (ImGui::Button(words.c_str())) show_layout(layouts_[i].name);
    landmark("layout " + layouts_[i].name);
    ImGui::PopStyleColor();
    help_tooltip(has_room ? layouts_[i].sentence : names[i] + ": " + layouts_[i].sentence);
  }
  ImGui::SameLine(ImGui::GetWindowContentRegionMax().x - right);
  if (ImGui::Button("Tour")) {
    if (session_->documents().empty()) {
      flash("the tour shows an open trace: open or record one first");
    } else {
      tour_.start();
    }
  }
  landmark("tour");
  help_tooltip("Six steps through the window; Esc leaves");
  ImGui::SameLine();
  if (ImGui::Button(theme)) {
    settings_.theme =
        settings_.theme == plot::Ground::light ? plot::Ground::dark : plot::Ground::light;
  }
  help_tooltip("Light or dark (Ctrl+Shift+T)");
  ImGui::SameLine();
  if (ImGui::Button("Help")) shows_help_ = true;
  help_tooltip("All keys, and what the mouse does (F1)");
  ImGui::EndChild();
  ImGui::PopStyleVar();
}

/// What brings a hidden side bar back; its width.
float App::draw_side_handle(ImVec2 at, float height) {
  const float width = look_.px(14);
  ImGui::SetCursorScreenPos(at);
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, {0, 0});
  if (ImGui::Button("›##side", {width, std::max(1.0f, height)})) settings_.show_sidebar = true;
  ImGui::PopStyleVar();
  landmark("show side bar");
  help_tooltip("The side bar: traces, selection, methods and sliders (Ctrl+Shift+S)");
  return width;
}

void App::draw_body() {
  PanelContext shared = context();
  const float status = ImGui::GetFrameHeight() + look_.px(6);
  const float bar = look_.px(5);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float height = std::max(1.0f, room.y - status - bar);
  float left = 0.0f;
  // The ground is the panels' own; what lies between them is painted.
  const auto strip = [&](float x, float y, float w, float h) {
    ImGui::GetWindowDrawList()->AddRectFilled({x, y}, {x + w, y + h}, packed(look_.window));
  };
  strip(at.x, at.y, room.x, bar);
  strip(at.x, at.y + height, room.x, bar);
  if (settings_.show_sidebar && !is_empty()) {
    left = std::min(look_.px(kSidebar), room.x * 0.3f);
    ImGui::SetCursorScreenPos({at.x, at.y + bar});
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {look_.px(8), look_.px(6)});
    ImGui::BeginChild("side", {left, height - bar}, false, ImGuiWindowFlags_AlwaysUseWindowPadding);
    if (takes_keyboard("side bar")) keyboard_here();
    const auto clicked = draw_sidebar(shared, find_panel("traces"), side_);
    const auto& results = session_->results();
    if (clicked && *clicked < static_cast<Index>(results.size()))
      show_result(*results[static_cast<std::size_t>(*clicked)]);
    ImGui::EndChild();
    landmark("side bar");
    ImGui::PopStyleVar();
    strip(at.x + left, at.y, bar, height);
    left += bar;
  } else if (!is_empty()) {
    left = draw_side_handle({at.x, at.y + bar}, height - bar);
  }
  const Area area{at.x + left, at.y + bar, room.x - left, height - bar};
  if (is_empty() && cells_.maximised().empty()) {
    ImGui::SetCursorScreenPos({area.x, area.y});
    ImGui::BeginChild("page", {area.w, area.h}, false, ImGuiWindowFlags_NavFlattened);
    if (takes_keyboard("page")) keyboard_here();
    const StartChoice choice = start_page_.draw(shared, settings_);
    ImGui::EndChild();
    for (const auto& file : choice.open) open(file);
    if (choice.shows_samples && !settings_.tour_done) awaited_traces_ = choice.open.size();
    if (choice.ask_for_file) ask_open();
  } else {
    cells_.draw(shared, panels_, arrangement_, area);
    if (cells_.has_changed()) keep_arrangement();
    switch (cells_.take_action()) {
      case CellAction::copy_csv:
        copy_csv();
        break;
      case CellAction::export_figure:
        ask_export();
        break;
      case CellAction::copy_picture:
        copy_picture();
        break;
      case CellAction::bookmark:
        ask_bookmark();
        break;
      case CellAction::none:
        break;
    }
  }
  for (const auto& file : requests_.open) open(file);
  if (!requests_.flash.empty()) flash(requests_.flash);
  if (!requests_.show_panel.empty()) {
    const auto shown = panels_in(arrangement_);
    const bool visible = std::find(shown.begin(), shown.end(), requests_.show_panel) != shown.end();
    if (!visible || !cells_.maximised().empty()) cells_.maximise(requests_.show_panel);
    cells_.focus(requests_.show_panel);
  }
  ImGui::SetCursorScreenPos({at.x, at.y + room.y - status});
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {look_.px(8), look_.px(3)});
  ImGui::BeginChild("status", {0, status}, false,
                    ImGuiWindowFlags_AlwaysUseWindowPadding | ImGuiWindowFlags_NoScrollbar |
                        ImGuiWindowFlags_NavFlattened);
  draw_status_bar(shared, ImGui::GetTime() < flash_until_ ? flash_ : std::string());
  ImGui::EndChild();
  ImGui::PopStyleVar();
}

void App::draw_dialogs() {
  PanelContext shared = context();
  file_dialog_.draw(shared);
  export_dialog_.draw(shared, [this](std::string words) { flash(std::move(words)); });
  choose_opening();
  draw_tour();
  draw_bookmark_dialog();
  renew_palette();
  palette_.draw(look_);
  if (shows_help_) shows_help_ = draw_help(look_, shortcuts_);
}

// ---- commands that run beside the window ----

void App::toggle_runs() {
  if (cells_.maximised() == "runs") {
    cells_.maximise("");
  } else {
    show_panel_alone("runs");
  }
}

/// What they made is opened; what the window cannot show is said.
void App::take_runs() {
  if (runs_->update()) requests_.redraw = true;
  for (const Run& run : runs_->take_made()) {
    const std::string ending = run.out.extension().string();
    const bool is_table = run.words[0] == "sweep" || run.words[0] == "simulate";
    if (ending == ".h5" || ending == ".hdf5" || ending == ".kvset" || ending == ".csv" ||
        (ending == ".json" && is_table)) {
      if (cells_.maximised() == "runs") cells_.maximise("");
      open(run.out);
    } else {
      flash("wrote " + run.out.string());
    }
  }
}

// ---- what keys and menus do ----

void App::flash(std::string words) {
  flash_ = std::move(words);
  flash_until_ = ImGui::GetTime() + kFlashSeconds;
}

void App::ask_open() {
  file_dialog_.ask(FileDialog::Purpose::open, "Open traces, results or a session",
                   {".h5", ".hdf5", ".kvset", ".csv", ".json", ".part"}, "",
                   [this](const fs::path& file) { open(file); });
}

void App::ask_save_session() {
  file_dialog_.ask(FileDialog::Purpose::save, "Save the session", {".json"}, "session.json",
                   [this](const fs::path& file) {
                     try {
                       save_session(file);
                       settings_.add_recent(file);
                       flash("saved " + file.string());
                     } catch (const Error& e) {
                       session_->notify(e.what());
                     }
                   });
}

void App::ask_export() {
  Panel* from = focused_panel();
  if (from == nullptr) return;
  if (!from->figure() && !from->csv()) {
    flash("nothing to export: " + from->info().title + " shows nothing yet");
    return;
  }
  export_dialog_.ask(
      *from,
      [this](const Panel& panel, const fs::path& folder) { return export_of(panel, folder); },
      [this](const fs::path& folder) { return session_json(folder); });
}

void App::copy_csv() {
  const Panel* from = focused_panel();
  if (from == nullptr) return;
  const auto csv = from->csv();
  if (!csv) {
    flash("nothing to copy: " + from->info().title + " shows no numbers yet");
    return;
  }
  ImGui::SetClipboardText(csv->c_str());
  flash(fmt::format("copied {} lines of CSV from {}", std::count(csv->begin(), csv->end(), '\n'),
                    from->info().title));
}

void App::step_method(int by) {
  static const std::vector<std::string> names = method_names();
  const auto at = std::find(names.begin(), names.end(), session_->selection().selector);
  const auto n = static_cast<std::ptrdiff_t>(names.size());
  const std::ptrdiff_t next = at == names.end() ? 0 : ((at - names.begin()) + by + n) % n;
  session_->select("method keys",
                   [&](Selection& s) { s.selector = names[static_cast<std::size_t>(next)]; });
  flash("method " + session_->selection().selector.text());
}

Panel* App::focused_panel() {
  return find_panel(!cells_.maximised().empty() ? cells_.maximised() : cells_.focused());
}

void App::open(const fs::path& file) {
  if (file.extension() == ".txt") {
    if (is_empty()) {
      start_page_.take_text(file);
    } else {
      find_panel("runs")->set_options(
          {{"command", "record"}, {"values", {{"text", file.string()}}}});
      show_panel_alone("runs");
    }
    flash("the text to record: " + file.string());
    return;
  }
  if (is_session_file(file)) {
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

bool App::is_empty() const {
  return session_->documents().empty() && session_->results().empty();
}

bool App::is_busy() const {
  if (session_->is_opening() || jobs_->is_computing()) return true;
  return std::any_of(panels_.begin(), panels_.end(), [&](const auto& panel) {
    return cells_.area_of(panel->info().name) && panel->is_busy();
  });
}

bool App::has_news() {
  session_->watch_files();
  return session_->revision() != drawn_revision_;
}

std::string App::title() const {
  const auto document = session_->document();
  return document ? document->name() + " - kvscope explorer" : "kvscope explorer";
}

std::optional<Area> App::area_of(const std::string& panel) const {
  return cells_.area_of(panel);
}

}  // namespace kvscope::gui
