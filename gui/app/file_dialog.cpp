#include "gui/app/file_dialog.hpp"

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>

#include "core/base/number_text.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

void FileDialog::ask(Purpose purpose, std::string title, std::vector<std::string> extensions,
                     std::string suggested_name, std::function<void(const fs::path&)> chosen) {
  purpose_ = purpose;
  title_ = std::move(title);
  extensions_ = std::move(extensions);
  const fs::path suggested = std::move(suggested_name);
  typed_ = suggested.filename().string();
  chosen_ = std::move(chosen);
  problem_.clear();
  warned_of_.clear();
  should_open_ = true;
  std::error_code error;
  go_to(suggested.has_parent_path() ? suggested.parent_path()
        : listing_.folder.empty()   ? fs::current_path(error)
                                    : listing_.folder);
}

FileDialog::Listing FileDialog::list(const fs::path& folder) const {
  Listing listing;
  std::error_code error;
  listing.folder = fs::weakly_canonical(fs::absolute(folder, error), error);
  if (error) listing.folder = folder;
  fs::directory_iterator entries(listing.folder, fs::directory_options::skip_permission_denied,
                                 error);
  if (error) {
    listing.error = fmt::format("cannot list {}: {}", listing.folder.string(), error.message());
    return listing;
  }
  for (const auto end = fs::directory_iterator(); entries != end; entries.increment(error)) {
    if (error) break;
    Entry entry{.name = entries->path().filename().string()};
    if (entry.name.starts_with(".")) continue;
    std::error_code ignored;
    entry.is_folder = entries->is_directory(ignored);
    const auto extension = entries->path().extension().string();
    if (!entry.is_folder && std::ranges::find(extensions_, extension) == extensions_.end())
      continue;
    if (!entry.is_folder) {
      const auto size = entries->file_size(ignored);
      entry.bytes = ignored ? 0 : size;
    }
    const auto written = entries->last_write_time(ignored);
    if (!ignored) entry.written = written;
    listing.entries.push_back(std::move(entry));
  }
  std::ranges::sort(listing.entries, [&](const Entry& a, const Entry& b) {
    if (a.is_folder != b.is_folder) return a.is_folder;
    if (newest_first_ && a.written != b.written) return a.written > b.written;
    return a.name < b.name;
  });
  return listing;
}

void FileDialog::go_to(const fs::path& folder) {
  Listing next = list(folder);
  if (next.error.empty() || listing_.folder.empty()) {
    listing_ = std::move(next);
    marked_.clear();
    anchor_ = 0;
  } else {
    problem_ = next.error;
  }
}

void FileDialog::choose(const fs::path& file) {
  std::error_code error;
  fs::path whole = file.is_absolute() ? file : listing_.folder / file;
  if (fs::is_directory(whole, error)) {
    go_to(whole);
    if (purpose_ == Purpose::open) typed_.clear();
    return;
  }
  const bool is_known =
      std::ranges::find(extensions_, whole.extension().string()) != extensions_.end();
  if (purpose_ == Purpose::save && !is_known) whole += extensions_.front();  // else none opens it
  const bool exists = fs::exists(whole, error);
  if (purpose_ == Purpose::open && !exists) {
    problem_ = fmt::format("{}: no such file", whole.string());
    return;
  }
  if (purpose_ == Purpose::save && exists && warned_of_ != whole) {
    problem_ = fmt::format("{} exists. Press Save again to replace it.", whole.filename().string());
    warned_of_ = whole;
    return;
  }
  ImGui::CloseCurrentPopup();
  chosen_(whole);
}

/// A click on a file: it alone, with Ctrl one more or less, with Shift all from the last one.
void FileDialog::mark(std::size_t entry) {
  const ImGuiIO& io = ImGui::GetIO();
  const std::string& name = listing_.entries[entry].name;
  problem_.clear();
  const bool is_one = purpose_ == Purpose::save || (!io.KeyCtrl && !io.KeyShift);
  if (is_one) marked_.clear();
  if (io.KeyShift && !is_one) {
    for (std::size_t i = std::min(anchor_, entry); i <= std::max(anchor_, entry); ++i) {
      if (!listing_.entries[i].is_folder) marked_.insert(listing_.entries[i].name);
    }
  } else {
    anchor_ = entry;
    if (marked_.erase(name) == 0) marked_.insert(name);
  }
  typed_ = marked_.size() == 1 ? *marked_.begin() : "";
}

/// Returns the folder or file that is to be opened at once, or nothing.
fs::path FileDialog::draw_entries() {
  if (!listing_.error.empty()) ImGui::TextWrapped("%s", listing_.error.c_str());
  if (listing_.error.empty() && listing_.entries.empty())
    ImGui::TextDisabled("%s", "Nothing here that could be opened.");
  fs::path clicked;
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(listing_.entries.size()));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Entry& entry = listing_.entries[at];
      const std::string words = entry.name + (entry.is_folder ? "/" : "");
      if (ImGui::Selectable(
              words.c_str(), typed_ == entry.name || marked_.count(entry.name) > 0,
              ImGuiSelectableFlags_AllowDoubleClick | ImGuiSelectableFlags_DontClosePopups)) {
        if (entry.is_folder || ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) {
          clicked = entry.name;
        } else {
          mark(at);
        }
      }
      landmark("entry " + entry.name);
      if (!entry.is_folder) {
        const std::string size = bytes_text(static_cast<double>(entry.bytes));
        ImGui::SameLine(ImGui::GetWindowContentRegionMax().x - ImGui::CalcTextSize(size.c_str()).x);
        ImGui::TextDisabled("%s", size.c_str());
      }
    }
  }
  return clicked;
}

void FileDialog::draw(const PanelContext& context) {
  const Look& look = context.look;
  const std::string id = title_ + "###file-dialog";
  if (!begin_dialog(look, id.c_str(), should_open_, {640, 480})) return;
  if (ImGui::Button("Up")) go_to(listing_.folder.parent_path());
  ImGui::SameLine();
  if (ImGui::Button(newest_first_ ? "Newest first###order" : "By name###order")) {
    newest_first_ = !newest_first_;
    go_to(listing_.folder);
  }
  landmark("file dialog order");
  ImGui::SameLine();
  ImGui::AlignTextToFramePadding();
  ImGui::TextUnformatted(listing_.folder.string().c_str());

  const float below = 2 * ImGui::GetFrameHeightWithSpacing() +
                      (problem_.empty() ? 0.0f : 2 * ImGui::GetTextLineHeightWithSpacing());
  ImGui::BeginChild("entries", {0.0f, -below}, true, ImGuiWindowFlags_NavFlattened);
  const fs::path clicked = draw_entries();
  ImGui::EndChild();
  if (!problem_.empty()) {
    coloured_words(look.error, problem_);
  }
  const char* verb = purpose_ == Purpose::open ? "Open" : "Save";
  if (ImGui::IsWindowAppearing() || wants_keyboard_) ImGui::SetKeyboardFocusHere();
  wants_keyboard_ = false;
  ImGui::SetNextItemWidth(-1);
  const std::string hint =
      marked_.size() > 1 ? fmt::format("{} files", marked_.size()) : "file or folder";
  const bool entered = ImGui::InputTextWithHint("##name", hint.c_str(), &typed_,
                                                ImGuiInputTextFlags_EnterReturnsTrue);
  const bool pressed = ImGui::Button(verb, {look.px(90), 0});
  landmark("file dialog ok");
  ImGui::SameLine();
  const bool cancelled = ImGui::Button("Cancel", {look.px(90), 0}) ||
                         ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape));
  wants_keyboard_ = entered;  // what was refused can be typed again
  if (!clicked.empty()) choose(clicked);
  if (entered || pressed) {
    const std::set<std::string> marked = std::exchange(marked_, {});
    if (!typed_.empty()) {
      choose(typed_);
    } else if (!marked.empty()) {
      ImGui::CloseCurrentPopup();
      for (const std::string& name : marked) chosen_(listing_.folder / name);
    }
  }
  if (cancelled) ImGui::CloseCurrentPopup();
  ImGui::EndPopup();
}

}  // namespace kvscope::gui
