#include "gui/app/export_dialog.hpp"

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {
constexpr const char* kExportId = "Export what I see";
}  // namespace

void ExportDialog::ask(
    const Panel& panel,
    const std::function<ExportRequest(const Panel&, const fs::path&)>& request_of,
    std::function<nlohmann::ordered_json(const fs::path&)> session_of) {
  session_of_ = std::move(session_of);
  std::error_code error;
  if (folder_.empty()) folder_ = fs::current_path(error).string();
  RenderOptions render = request_.render;
  const std::vector<ExportFormat> formats = request_.formats;
  request_ = request_of(panel, folder_);
  render.theme = request_.render.theme;
  request_.render = render;
  request_.formats = formats;
  problem_.clear();
  replace_ = false;
  should_open_ = true;
}

void ExportDialog::draw(PanelContext& context, const std::function<void(std::string)>& report) {
  const Look& look = context.look;
  if (!begin_dialog(look, kExportId, should_open_, {520, 0})) return;
  ImGui::TextDisabled("formats; the numbers always come as csv");
  if (request_.figure) {
    choose_formats();
  } else {  // a drawing of it would never come
    ImGui::TextUnformatted("csv: the panel shows a table, which kvscope table sets in LaTeX");
    landmark("csv only");
  }
  ImGui::TextDisabled("venue: widths and sizes of letters");
  segmented("venue", request_.render.venue);
  ImGui::TextDisabled("ground");
  segmented("ground", request_.render.theme);
  ImGui::TextDisabled("folder");
  ImGui::SetNextItemWidth(-1);
  constexpr ImGuiInputTextFlags kEnter = ImGuiInputTextFlags_EnterReturnsTrue;
  bool exports = ImGui::InputText("##folder", &folder_, kEnter);
  landmark("export folder");
  ImGui::TextDisabled("name, without an ending");
  ImGui::SetNextItemWidth(-1);
  const std::string stem = request_.stem;
  exports = ImGui::InputText("##stem", &request_.stem, kEnter) || exports;
  if (request_.stem != stem) replace_ = false;
  landmark("export name");
  if (request_.figure && !request_.figure->caption.empty()) {
    ImGui::TextDisabled("caption, kept in the manifest");
    std::string words;
    for (const auto& sentence : request_.figure->caption)
      words += (words.empty() ? "" : " ") + sentence;
    coloured_words(look.muted, words);
  }
  if (!problem_.empty()) {
    coloured_words(look.error, problem_);
  }
  ImGui::Dummy({0, look.px(4)});
  exports =
      ImGui::Button(replace_ ? "Replace###export" : "Export###export", {look.px(90), 0}) || exports;
  ImGui::SetItemDefaultFocus();  // Enter exports, unless the arrows went elsewhere
  landmark("export");
  const bool is_enter = ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Enter), /*repeat=*/false);
  if (is_enter && !has_keyboard_mark() && !ImGui::IsAnyItemActive()) exports = true;
  if (exports) {
    try {
      std::error_code error;
      request_.folder = folder_;
      request_.seen["session"] = session_of_(fs::absolute(request_.folder, error));
      if (!fs::is_directory(request_.folder, error))
        throw IoError("{} is no folder; name one that exists", folder_);
      const bool taken = free_stem(request_.folder, request_.stem) != request_.stem;
      if (taken && !replace_) {
        problem_ =
            fmt::format("{} has files of the name {}: press Replace, or choose another name.",
                        folder_, request_.stem);
        replace_ = true;
      } else {
        start(context.session, replace_ ? Existing::replace : Existing::keep, report);
        ImGui::CloseCurrentPopup();
      }
    } catch (const Error& e) {
      problem_ = e.what();
    }
  }
  ImGui::SameLine();
  if (ImGui::Button("Cancel", {look.px(90), 0}) ||
      ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape))) {
    ImGui::CloseCurrentPopup();
  }
  draw_page_button(context, report);
  ImGui::EndPopup();
}

/// A button for each; those that are chosen stay down.
void ExportDialog::choose_formats() {
  const auto names = EnumNames<ExportFormat>::value;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) ImGui::SameLine();
    const auto format = static_cast<ExportFormat>(i);
    auto& chosen = request_.formats;
    bool on = std::find(chosen.begin(), chosen.end(), format) != chosen.end();
    if (check_box(std::string(names[i]).c_str(), &on)) {
      if (on) {
        chosen.push_back(format);
      } else {
        std::erase(chosen, format);
      }
      replace_ = false;
    }
    landmark(fmt::format("format {}", names[i]));
  }
}

/// All heads as a page for who has no kvscope: kvscope export does it, beside the window.
void ExportDialog::draw_page_button(PanelContext& context,
                                    const std::function<void(std::string)>& report) {
  const auto trace = context.session.document();
  if (!trace) return;
  ImGui::Separator();
  if (ImGui::Button("The whole trace as an HTML page")) {
    std::error_code error;
    const fs::path folder = fs::absolute(folder_.empty() ? "." : folder_, error);
    const fs::path page = free_file(folder / (trace->path().stem().string() + ".html"));
    context.runs.add(
        command_words("export", {trace->path().string()}, {{"html", ""}, {"out", page.string()}}),
        page);
    report("writing " + page.string());
    ImGui::CloseCurrentPopup();
  }
  landmark("export page");
  help_tooltip(
      "One file with the maps of all layers and heads, to pan, zoom and hover in any "
      "browser: kvscope export --html. It is written beside the window (Run).");
}

void ExportDialog::start(Session& session, Existing existing,
                         const std::function<void(std::string)>& report) {
  ExportRequest request = request_;
  if (!request.figure) request.formats = {ExportFormat::csv};
  run_beside(
      session, "Exporting " + request.stem, Lane::quick,
      [request, existing](JobContext&) {
        const auto files = export_view(request, existing);
        return fmt::format("wrote {} and {} more files", files.front().string(), files.size() - 1);
      },
      report);
}

}  // namespace kvscope::gui
