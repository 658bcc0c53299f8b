#include "gui/panels/head_grid.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

namespace {

using plot::blend;
using plot::with_alpha;

constexpr float kLeastCell = 3.0f;  // points
constexpr float kMostCell = 15.0f;

/// Colours of cells by what they are.
struct CellColours {
  plot::Colour absent;
  plot::Colour recorded;
  plot::Colour strong;
  explicit CellColours(const Look& look)
      : absent(blend(with_alpha(look.line, 0.35), look.surface)),
        recorded(blend(with_alpha(look.muted, 0.32), look.surface)),
        strong(blend(with_alpha(look.ink, 0.78), look.surface)) {}
};

void cell_tooltip(const HeadGridInput& input, Index layer, Index head) {
  const GridLayer& row = input.grid.layers[static_cast<std::size_t>(layer)];
  std::vector<std::pair<std::string, std::string>> lines = {
      {"layer", fmt::format("{}: {}", layer, fmt::join(row.words, ", "))},
      {"query head", fmt::format("{}", head)},
      {"KV head", fmt::format("{}", head / input.grid.group)}};
  if (!input.grid.is_recorded(layer, head)) {
    lines.emplace_back(
        "recorded", row.is_recorded ? "no: this head was left out" : "no: this layer was left out");
  }
  for (auto& line : input.details(layer, head)) lines.push_back(std::move(line));
  detail_tooltip(lines);
}

/// The layers in sight: a cell for each head, the layer's number, its marks. `digits`: room of a
/// number.
void draw_cells(const Look& look, const HeadGridInput& input, const GridPlan& plan, ImVec2 at,
                float digits, float gap) {
  const HeadGrid& grid = input.grid;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 low = list->GetClipRectMin();
  const ImVec2 high = list->GetClipRectMax();
  const CellColours colours(look);
  const float inset = std::min(look.px(0.5f), 0.1f * plan.cell);
  const auto n_layers = static_cast<Index>(grid.layers.size());
  const float text_height = ImGui::GetFontSize();
  const auto labels_every =
      std::max<Index>(1, static_cast<Index>(std::ceil(text_height / std::max(1.0f, plan.row))));

  const auto rows_below = [&](float y) {
    return static_cast<Index>(std::ceil((at.y + plan.height - y) / plan.row));
  };
  const Index first = std::clamp<Index>(rows_below(high.y) - 1, 0, n_layers);
  const Index last = std::clamp<Index>(rows_below(low.y), first, n_layers);
  for (Index layer = first; layer < last; ++layer) {
    const GridLayer& row = grid.layers[static_cast<std::size_t>(layer)];
    const float y = at.y + plan.y_of(layer);
    const bool is_selected = layer == input.layer;
    const float text_y = y + 0.5f * (plan.row - text_height);
    // A label of the selected layer takes the place of its neighbours'.
    const bool near_selected = std::abs(layer - input.layer) < labels_every;
    if (is_selected || (layer % labels_every == 0 && !near_selected)) {
      const std::string number = fmt::format("{}", layer);
      const float x = at.x + digits - ImGui::CalcTextSize(number.c_str()).x;
      list->AddText({x, text_y}, packed(is_selected ? look.accent : look.muted), number.c_str());
    }
    for (Index head = 0; head < static_cast<Index>(grid.recorded_heads.size()); ++head) {
      const float x = at.x + plan.x_of(head, grid.group);
      if (x + plan.cell < low.x || x > high.x) continue;
      plot::Colour colour = colours.absent;
      if (grid.is_recorded(layer, head))
        colour = blend(with_alpha(colours.strong, input.shade(layer, head)), colours.recorded);
      if (is_selected && head == input.q_head) colour = look.accent;
      const ImVec2 a{x + inset, y + inset};
      const ImVec2 b{x + plan.cell - inset, y + plan.row - inset};
      list->AddRectFilled(a, b, packed(colour));
    }
    if (!row.marks.empty()) {
      list->AddText({at.x + plan.width + gap, text_y}, packed(look.muted), row.marks.c_str());
    }
  }
}

}  // namespace

DrawnHeadGrid draw_head_grid(const PanelContext& context, const HeadGridInput& input) {
  const Look& look = context.look;
  const HeadGrid& grid = input.grid;
  const auto n_layers = static_cast<Index>(grid.layers.size());
  if (n_layers == 0) return {};
  ImGui::PushFont(context.fonts.small());
  const float digits = ImGui::CalcTextSize(fmt::format("{}", n_layers - 1).c_str()).x;
  std::size_t most_marks = 0;
  for (const GridLayer& layer : grid.layers) most_marks = std::max(most_marks, layer.marks.size());
  const float letter = ImGui::CalcTextSize("w").x;
  const float gap = look.px(5);
  const float marks = most_marks == 0 ? 0.0f : gap + static_cast<float>(most_marks) * letter;
  const GridPlan plan = plan_grid(grid, ImGui::GetContentRegionAvail().x, digits + gap, marks,
                                  look.px(kLeastCell), look.px(kMostCell));
  const bool scrolls = plan.width + marks > ImGui::GetContentRegionAvail().x + 0.5f;
  if (scrolls) {
    const float bar = ImGui::GetStyle().ScrollbarSize;
    ImGui::BeginChild("heads", {0, plan.height + bar}, false,
                      ImGuiWindowFlags_HorizontalScrollbar | ImGuiWindowFlags_NavFlattened);
  }
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImGui::InvisibleButton("grid", {std::max(1.0f, plan.width + marks), std::max(1.0f, plan.height)});
  const bool hovered = ImGui::IsItemHovered();
  draw_cells(look, input, plan, at, digits, gap);
  DrawnHeadGrid drawn{std::nullopt, at, plan};
  if (hovered) {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    const auto cell = cell_at(grid, plan, mouse.x - at.x, mouse.y - at.y);
    if (cell) {
      const float x = at.x + plan.x_of(cell->second, grid.group);
      const float y = at.y + plan.y_of(cell->first);
      ImGui::GetWindowDrawList()->AddRect({x, y}, {x + plan.cell, y + plan.row}, packed(look.ink));
      if (ImGui::IsMouseClicked(ImGuiMouseButton_Left) &&
          grid.is_recorded(cell->first, cell->second)) {
        drawn.clicked = cell;
      }
      ImGui::PopFont();
      cell_tooltip(input, cell->first, cell->second);
      ImGui::PushFont(context.fonts.small());
    }
  }
  if (scrolls) ImGui::EndChild();
  ImGui::PushStyleColor(ImGuiCol_Text, packed(look.muted));
  std::string legend =
      fmt::format("{} query heads in blocks of one KV head", grid.recorded_heads.size());
  if (grid.group == 1) legend = fmt::format("{} heads", grid.recorded_heads.size());
  for (const auto& [mark, meaning] : grid.legend) legend += fmt::format(" · {} {}", mark, meaning);
  ImGui::TextWrapped("%s", legend.c_str());
  ImGui::PopStyleColor();
  ImGui::PopFont();
  return drawn;
}

}  // namespace kvscope::gui
