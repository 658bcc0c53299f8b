#include "gui/panels/cell_table.hpp"

#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

bool begin_cells(const char* id, const std::vector<CellColumn>& columns, ImGuiTableFlags flags,
                 ImVec2 size) {
  if (!ImGui::BeginTable(id, static_cast<int>(columns.size()), flags, size)) return false;
  const bool is_moved = (flags & ImGuiTableFlags_ScrollX) != 0;
  if ((flags & ImGuiTableFlags_ScrollY) != 0) ImGui::TableSetupScrollFreeze(is_moved ? 1 : 0, 1);
  for (const CellColumn& column : columns) {
    const bool shares = column.flags == 0 && column.width > 0.0f && !is_moved;
    ImGui::TableSetupColumn(column.name.c_str(),
                            shares ? ImGuiTableColumnFlags_WidthStretch : column.flags,
                            is_moved ? 0.0f : column.width);
  }
  // Widths that follow the contents take no notice of rows of headers.
  const bool is_shared =
      (flags & ImGuiTableFlags_SizingStretchProp) == ImGuiTableFlags_SizingStretchProp;
  ImGui::TableNextRow(is_shared ? ImGuiTableRowFlags_Headers : 0);
  for (const CellColumn& column : columns) {
    ImGui::TableNextColumn();
    ImGui::TextDisabled("%s", column.name.c_str());
    if (*column.help != '\0') help_tooltip(column.help);
  }
  return true;
}

void cells(const std::vector<std::string>& words) {
  for (const std::string& cell : words) {
    ImGui::TableNextColumn();
    ImGui::TextUnformatted(cell.c_str());
  }
}

bool line_cell(const std::string& words, bool is_selected) {
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  return ImGui::Selectable(words.c_str(), is_selected, ImGuiSelectableFlags_SpanAllColumns);
}

}  // namespace kvscope::gui
