#include "gui/panels/compare_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/plot/theme.hpp"
#include "gui/panels/cell_table.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

constexpr float kListWidth = 240.0f;      // points
constexpr float kListFromWidth = 680.0f;  // narrower panels are all figure

}  // namespace

void number_table(const char* id, const std::vector<std::string>& header,
                  const std::vector<std::vector<std::string>>& lines) {
  constexpr auto kFlags = ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_NoHostExtendX;
  std::vector<CellColumn> columns;
  for (const std::string& name : header) columns.push_back({name});
  if (!begin_cells(id, columns, kFlags)) return;
  for (const auto& line : lines) {
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    ImGui::TextDisabled("%s", line.front().c_str());
    cells({line.begin() + 1, line.end()});
  }
  ImGui::EndTable();
}

void side_names(const PanelContext& context, const CompareSides& sides) {
  const plot::Theme theme = plot::make_theme(plot::Venue::icml, context.look.ground);
  const auto name = [&](const char* letter, plot::Tone tone, const std::string& label) {
    ImGui::PushStyleColor(ImGuiCol_Text, packed(theme.style_of(tone).colour));
    ImGui::TextUnformatted(letter);
    ImGui::PopStyleColor();
    ImGui::SameLine();
    ImGui::TextUnformatted(label.c_str());
  };
  name("A", kToneA, sides.a.label);
  ImGui::SameLine(0.0f, context.look.px(18));
  name("B", kToneB, sides.b.label);
}

void go_to_key(Session& session, Index key, std::optional<Index> query) {
  session.select("compare click", [&](Selection& s) {
    if (query) s.query = *query;
    s.key = key;
  });
}

ImVec2 ComparePicture::size_beside_list(const PanelContext& context) {
  ImVec2 size = ImGui::GetContentRegionAvail();
  if (size.x > context.look.px(kListFromWidth)) size.x -= context.look.px(kListWidth);
  return {std::max(size.x, 1.0f), std::max(size.y, 1.0f)};
}

void ComparePicture::list_keys(PanelContext& context, const std::vector<NotedKey>& noted,
                               bool two_rows) {
  ImGui::SameLine();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const bool has_room =
      room.x > context.look.px(kListWidth) * 0.8f && room.y > 3 * ImGui::GetTextLineHeight();
  constexpr auto kFlags = ImGuiTableFlags_ScrollY | ImGuiTableFlags_SizingStretchProp;
  if (!has_room || !ImGui::BeginTable("noted", 3, kFlags, room)) return;
  ImGui::TableSetupScrollFreeze(0, 1);
  ImGui::TableSetupColumn("key", ImGuiTableColumnFlags_None, 2.1f);
  ImGui::TableSetupColumn(two_rows ? "A" : "weight", ImGuiTableColumnFlags_None, 1.1f);
  ImGui::TableSetupColumn(two_rows ? "B" : "kept by", ImGuiTableColumnFlags_None, 1.2f);
  ImGui::TableHeadersRow();
  const auto selected = context.session.selection().key;
  for (const NotedKey& key : noted) {
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    const std::string text = document().token_text(key.pos);
    context.fonts.require(text);
    const bool is_here = selected == key.pos;
    if (is_here) ImGui::PushStyleColor(ImGuiCol_Text, packed(context.look.accent));
    ImGui::PushID(static_cast<int>(key.pos));
    if (ImGui::Selectable("##key", is_here, ImGuiSelectableFlags_SpanAllColumns)) {
      go_to_key(context.session, key.pos);
    }
    ImGui::PopID();
    ImGui::SameLine(0.0f, 0.0f);
    const std::string words = fmt::format("{} “{}”", key.pos, text);
    ImGui::TextUnformatted(words.c_str(), words.c_str() + words.size());
    if (is_here) ImGui::PopStyleColor();
    ImGui::TableNextColumn();
    ImGui::Text("%.4f", key.a);
    ImGui::TableNextColumn();
    if (two_rows) {
      ImGui::Text("%.4f", key.b);
    } else {
      ImGui::TextUnformatted(key.part == NotedKey::Part::only_a ? "only A" : "only B");
    }
  }
  ImGui::EndTable();
}

}  // namespace kvscope::gui
