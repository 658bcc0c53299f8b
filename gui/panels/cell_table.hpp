// Tables of words: names of columns above, a line per thing. Where a line is of something that can
// be selected, a click anywhere on it does.
#pragma once

#include <imgui.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace kvscope::gui {

struct CellColumn {
  std::string name;
  const char* help = "";
  float width = 0.0f;  // share of the room; 0: as its words need
  ImGuiTableColumnFlags flags = ImGuiTableColumnFlags_None;
};

/// False: there is no room. Else the names are drawn, and ImGui::EndTable() ends the table. Where
/// lines are moved sideways, columns are as wide as their words and the first one stays.
bool begin_cells(const char* id, const std::vector<CellColumn>& columns, ImGuiTableFlags flags,
                 ImVec2 size = {0, 0});
/// The next cells of the line.
void cells(const std::vector<std::string>& words);
/// Begins a line with a cell, and is true if the line was pressed. Its words are no other line's;
/// those behind ## are not seen.
bool line_cell(const std::string& words, bool is_selected);

/// draw(i) of those of n lines, all as high, that can be seen.
template <class Draw>
void visible_lines(std::size_t n, Draw draw) {
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(std::min<std::size_t>(n, 1u << 30)));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i)
      draw(static_cast<std::size_t>(i));
  }
}

}  // namespace kvscope::gui
