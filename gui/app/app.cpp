#include "gui/app/app.hpp"

#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_internal.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gui/app/help.hpp"
#include "gui/model/session/methods.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/fonts.hpp"
#include "notebooks_export/open_result.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr double kFlashSeconds = 3.0;

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
  const bool points_elsewhere = turn_pointed();
  wants_redraw_ = requests_.redraw || points_elsewhere || drawn_revision_ != before ||
                  take_tooltip_wait() || ImGui::GetTime() < flash_until_;
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

void App::draw_dialogs() {
  PanelContext shared = context();
  file_dialog_.draw(shared);
  export_dialog_.draw(shared, [this](std::string words) { flash(std::move(words)); });
  choose_opening();
  draw_tour();
  draw_bookmark_dialog();
  draw_quit_dialog();
  palette_.draw(
      look_, [this] { return actions(); },
      [this](const RowTarget& to) { go_to(*session_, to, "palette"); });
  if (shows_help_) shows_help_ = draw_help(look_, shortcuts_);
}

// ---- what keys and menus do ----

void App::flash(std::string words) {
  flash_ = std::move(words);
  flash_until_ = ImGui::GetTime() + kFlashSeconds;
}

void App::ask_export() {
  Panel* from = whole_panel();
  if (from == nullptr) return;
  export_dialog_.ask(
      *from,
      [this](const Panel& panel, const fs::path& folder) { return export_of(panel, folder); },
      [this](const fs::path& folder) { return session_json(folder); });
}

void App::copy_csv() {
  const Panel* from = whole_panel();
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

Panel* App::whole_panel() {
  Panel* panel = focused_panel();
  if (panel == nullptr) return nullptr;
  const std::string lacks = panel->unfinished();
  if (lacks.empty() && (panel->figure() || panel->csv())) return panel;
  flash(lacks.empty() ? "nothing to take: " + panel->info().title + " shows nothing yet"
                      : fmt::format("nothing taken: {} is not whole: {}; wait until it is",
                                    panel->info().title, lacks));
  return nullptr;
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
  return session_->revision() != drawn_revision_ ||
         std::chrono::steady_clock::now() >= requests_.look_again;
}

std::string App::title() const {
  std::string title;
  if (!session_file_.empty()) title = session_file_.filename().string();
  if (n_unsaved_bookmarks() > 0) title += title.empty() ? "not saved *" : " *";
  if (const auto document = session_->document())
    title = document->name() + (title.empty() ? "" : " - " + title);
  return title.empty() ? "kvscope explorer" : title + " - kvscope explorer";
}

}  // namespace kvscope::gui
