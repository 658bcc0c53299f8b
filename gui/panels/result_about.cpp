// The results panel's page on what a file says about itself.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "core/base/json.hpp"
#include "core/trace/result.hpp"
#include "gui/panels/cell_table.hpp"
#include "gui/panels/result_parts.hpp"

namespace kvscope::gui {

namespace {

std::vector<std::string> lines_of(const Json& json) {
  if (json.is_null() || (json.is_structured() && json.empty())) return {};
  std::istringstream text(json_text(json, 2));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n"));
}

/// "name  value", the value wrapped and, on request, with a button that copies it.
void fact(const char* name, const std::string& value, bool can_copy) {
  if (value.empty()) return;
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  ImGui::TextDisabled("%s", name);
  ImGui::TableNextColumn();
  ImGui::PushID(name);
  if (can_copy) {
    if (ImGui::SmallButton("Copy")) ImGui::SetClipboardText(value.c_str());
    ImGui::SameLine();
  }
  ImGui::TextWrapped("%s", value.c_str());
  ImGui::PopID();
}

void json_lines(const PanelContext& context, const char* title,
                const std::vector<std::string>& lines) {
  if (lines.empty() || !ImGui::CollapsingHeader(title)) return;
  ImGui::PushID(title);
  if (ImGui::SmallButton("Copy")) ImGui::SetClipboardText(joined(lines).c_str());
  const float height = std::min(static_cast<float>(lines.size()) + 1.0f, 24.0f);
  ImGui::BeginChild("lines", {0, height * ImGui::GetTextLineHeightWithSpacing()}, true,
                    ImGuiWindowFlags_HorizontalScrollbar);
  visible_lines(lines.size(), [&](std::size_t i) {
    context.fonts.require(lines[i]);
    ImGui::TextUnformatted(lines[i].c_str(), lines[i].c_str() + lines[i].size());
  });
  ImGui::EndChild();
  ImGui::PopID();
}

}  // namespace

void ResultAbout::update(const ResultPtr& result) {
  if (result == result_) return;
  result_ = result;
  sources_ = table_sources(*result);
  config_ = lines_of(result->info().config);
  summary_ = lines_of(result->summary());
}

std::optional<std::string> ResultAbout::draw(PanelContext& context, const ResultPtr& result) {
  update(result);
  std::optional<std::string> wanted;
  const ResultInfo& info = result->info();
  ImGui::BeginChild("about");
  if (ImGui::BeginTable("facts", 2, ImGuiTableFlags_SizingStretchProp)) {
    ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthFixed, ImGui::GetFontSize() * 6.5f);
    ImGui::TableSetupColumn("value");
    fact("file", result->name(), /*can_copy=*/true);
    fact("kind", info.kind, /*can_copy=*/false);
    fact("command", info.command_line, /*can_copy=*/true);
    fact("written by", info.writer, /*can_copy=*/false);
    fact("created", info.created, /*can_copy=*/false);
    fact("configuration", info.config_hash, /*can_copy=*/true);
    for (std::size_t t = 0; t < info.trace_files.size(); ++t) {
      const std::string uuid = t < info.trace_uuids.size() ? info.trace_uuids[t] : "";
      fact(fmt::format("trace {}", t + 1).c_str(), fmt::format("{}  {}", info.trace_files[t], uuid),
           /*can_copy=*/false);
    }
    ImGui::EndTable();
  }
  json_lines(context, "Configuration", config_);
  json_lines(context, "Summary", summary_);

  ImGui::Dummy({0, context.look.px(4)});
  ImGui::TextDisabled("%s", "What can be listed: click to see its numbers");
  constexpr auto kFlags = ImGuiTableFlags_RowBg | ImGuiTableFlags_BordersInnerV |
                          ImGuiTableFlags_Resizable | ImGuiTableFlags_SizingStretchProp |
                          ImGuiTableFlags_ScrollY;
  const float least = 8.0f * ImGui::GetTextLineHeightWithSpacing();
  const ImVec2 room{0, std::max(least, ImGui::GetContentRegionAvail().y)};
  const std::vector<CellColumn> columns = {{"array", "", 2.0f},
                                           {"shape", "", 1.5f},
                                           {"axes", "", 1.7f},
                                           {"units", "", 0.7f},
                                           {"meaning", "", 3.0f}};
  if (begin_cells("arrays", columns, kFlags, room)) {
    visible_lines(sources_.size(), [&](std::size_t i) {
      const TableSource& source = sources_[i];
      if (line_cell(source.name, false)) wanted = source.name;
      cells({source.shape.empty() ? fmt::format("{} lines", source.n_rows) : source.shape,
             source.axes, source.units, source.long_name});
    });
    ImGui::EndTable();
  }
  ImGui::EndChild();
  return wanted;
}

std::string result_key(const ResultPtr& result) {
  // Expired entries stay: a result's address may be used again, its name must not.
  static std::vector<std::pair<std::weak_ptr<const ResultView>, std::uint64_t>> names;
  for (const auto& [known, number] : names) {
    const bool is_same = !known.owner_before(result) && !result.owner_before(known);
    if (is_same) return fmt::format("result{}/", number);
  }
  names.emplace_back(result, names.size() + 1);
  return fmt::format("result{}/", names.size());
}

}  // namespace kvscope::gui
