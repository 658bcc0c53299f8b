#include "gui/panels/recall_numbers.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "analysis/plot/scale.hpp"
#include "core/base/number_text.hpp"
#include "gui/panels/cell_table.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

constexpr ImGuiTableFlags kTableFlags =
    ImGuiTableFlags_RowBg | ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_ScrollY;

/// Where they have no room, columns are as wide as their numbers and are moved sideways.
bool begin_numbers(const char* id, const std::vector<CellColumn>& columns, float height) {
  const bool is_narrow = ImGui::GetContentRegionAvail().x <
                         5.0f * ImGui::GetFontSize() * static_cast<float>(columns.size());
  const ImGuiTableFlags sizing = is_narrow
                                     ? ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_ScrollX
                                     : ImGuiTableFlags_SizingStretchProp;
  return begin_cells(id, columns, kTableFlags | sizing, {0, height});
}

void draw_methods(PanelContext& context, const RecallPicture& picture, const RecallOptions& options,
                  float height) {
  const bool has_target = metric_is_share(options.metric) && options.target > 0.0;
  std::vector<CellColumn> columns = {
      {"method", "A click selects the method.", 1.7f},
      {"budget", "What the method is told.", 1.1f},
      {"keys", "Keys that a query attends to, mean over measured rows and heads.", 1.0f},
      {"mass", "Attention mass on the kept keys.", 1.0f},
      {"top-10", "Share of the ten largest weights that is kept.", 1.0f},
      {"top-k", "Share of the k largest weights that is kept, k = the budget.", 1.0f},
      {"error", "Distance of the output from the dense one, |y - o|.", 1.0f},
      {"bytes", "Bytes read per query head and call: scoring, and keys and values of what is kept.",
       1.2f}};
  if (has_target) {
    columns.push_back({fmt::format("for {:g}", options.target),
                       "The smallest budget of the ladder whose mean reaches the target.", 1.0f});
  }
  if (!begin_numbers("numbers", columns, height)) return;
  for (const RecallNumbers& line : picture.numbers) {
    const bool is_selected = line.name == context.session.selection().selector.text();
    if (is_selected) ImGui::PushStyleColor(ImGuiCol_Text, packed(context.look.accent));
    if (line_cell(line.name, false))
      context.session.select("recall table", [&](Selection& s) { s.selector = line.name; });
    if (is_selected) ImGui::PopStyleColor();
    pointing_line({.method = line.name, .budget = number_from<double>(line.budget)});
    cells({line.budget.empty() ? std::string("-") : line.budget, number_text(line.kept),
           number_text(line.mass), number_text(line.recall10), number_text(line.recallk),
           number_text(line.output_error),
           std::isnan(line.bytes)
               ? std::string("-")
               : plot::tick_text(std::round(line.bytes), plot::TickFormat::bytes)});
    if (has_target) cells({line.for_target ? fmt::format("{}", *line.for_target) : "-"});
  }
  ImGui::EndTable();
}

void draw_failing(PanelContext& context, const RecallPicture& picture, const RecallOptions& options,
                  float height) {
  const std::vector<CellColumn> columns = {
      {"layer", "A click selects the head.", 1.0f},
      {"query head", "", 1.0f},
      {std::string(enum_name(options.metric)), "At the sliders' budget, mean over rows.", 1.4f},
      {"budget that reaches it", "The smallest of the ladder at which this head does.", 1.6f}};
  if (!begin_numbers("failing", columns, height)) return;
  for (const FailingHead& head : picture.failing) {
    const Selection& now = context.session.selection();
    const bool is_selected = head.layer == now.layer && head.q_head == now.q_head;
    if (line_cell(fmt::format("{}##{}", head.layer, head.q_head), is_selected))
      context.session.select_head("failing head", head.layer, head.q_head);
    pointing_line(Pointed::at_head(head.layer, head.q_head));
    landmark(fmt::format("failing layer {} head {}", head.layer, head.q_head));
    cells({fmt::format("{}", head.q_head), number_text(head.value),
           head.needed ? fmt::format("{}", *head.needed) : "none of the ladder"});
  }
  ImGui::EndTable();
}

float line_height() {
  return ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y;
}

}  // namespace

float recall_numbers_height(const RecallPicture& picture) {
  const auto n = static_cast<float>(std::clamp<std::size_t>(picture.numbers.size(), 3, 8));
  const float above = picture.failing_method.empty() ? 0.0f : ImGui::GetFrameHeightWithSpacing();
  return above + (n + 1.0f) * line_height() + 2.0f + ImGui::GetStyle().ScrollbarSize;
}

void draw_recall_numbers(PanelContext& context, const RecallPicture& picture,
                         const RecallOptions& options, bool& shows_failing) {
  float height = recall_numbers_height(picture);
  const bool has_failing = !picture.failing_method.empty();
  if (has_failing) {
    height -= ImGui::GetFrameHeightWithSpacing();
    const auto line =
        std::ranges::find(picture.numbers, picture.failing_method, &RecallNumbers::name);
    const bool is_counted = line != picture.numbers.end() && line->n_heads > 0;
    const std::string words = fmt::format(
        "{} head{} of {} below {:g}", is_counted ? fmt::format("{}", picture.failing.size()) : "-",
        picture.failing.size() == 1 ? "" : "s", picture.failing_method, options.target);
    const std::string_view names[] = {"methods", words};
    int chosen = shows_failing ? 1 : 0;
    if (segmented("tables", chosen, names)) shows_failing = chosen == 1;
  }
  if (has_failing && shows_failing) {
    draw_failing(context, picture, options, height);
  } else {
    draw_methods(context, picture, options, height);
  }
}

}  // namespace kvscope::gui
