// The results panel's list of lines.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>

#include "gui/panels/cell_table.hpp"
#include "gui/panels/result_parts.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

/// Dear ImGui's tables take 64.
constexpr std::size_t kMostColumns = 60;
constexpr std::size_t kRowsMeasured = 40;
constexpr float kWidestColumn = 220.0f;  // points
constexpr float kNarrowestColumn = 52.0f;

/// As wide as its name and some of its cells.
float width_of(const PanelContext& context, const TableColumn& column, std::size_t n_rows) {
  float width = ImGui::CalcTextSize(column.name.c_str()).x + ImGui::GetFontSize() * 1.2f;
  const std::size_t step = std::max<std::size_t>(1, n_rows / kRowsMeasured);
  for (std::size_t row = 0; row < n_rows; row += step) {
    width = std::max(width, ImGui::CalcTextSize(short_cell(column, row).c_str()).x);
  }
  return std::clamp(width + context.look.px(4), context.look.px(kNarrowestColumn),
                    context.look.px(kWidestColumn));
}

std::string& filter_of(TableArrangement& arrangement, const std::string& column) {
  for (ColumnFilter& filter : arrangement.filters) {
    if (filter.column == column) return filter.text;
  }
  arrangement.filters.push_back({column, ""});
  return arrangement.filters.back().text;
}

}  // namespace

void ResultTable::draw(PanelContext& context, const ResultRows& rows,
                       TableArrangement& arrangement) {
  rows_ = rows;
  const Table& table = rows_.table();
  if (laid_out_ != rows_.loaded) {
    laid_out_ = rows_.loaded;
    selected_.clear();
    hidden_.clear();
    widths_.clear();
    order_ = reading_order(table);
    for (std::size_t i = kMostColumns; i < order_.size(); ++i) {
      hidden_.insert(table.columns()[order_[i]].name);
    }
    for (const TableColumn& column : table.columns()) {
      widths_.push_back(width_of(context, column, table.n_rows()));
    }
  }
  shown_.clear();
  for (const std::size_t place : order_) {
    const TableColumn& column = table.columns()[place];
    if (!hidden_.contains(column.name) && shown_.size() < kMostColumns) shown_.push_back(&column);
  }
  draw_tools(context, arrangement);
  if (shown_.empty()) {
    empty_place(context, "Every column is hidden", "Choose some under Columns.");
    return;
  }
  constexpr auto kFlags =
      ImGuiTableFlags_Resizable | ImGuiTableFlags_Reorderable | ImGuiTableFlags_Sortable |
      ImGuiTableFlags_SortTristate | ImGuiTableFlags_ScrollX | ImGuiTableFlags_ScrollY |
      ImGuiTableFlags_RowBg | ImGuiTableFlags_BordersInnerV | ImGuiTableFlags_SizingFixedFit;
  // Columns belong to the table that is shown: another one must not inherit their widths and order.
  ImGui::PushID(laid_out_.get());
  ImGui::PushID(static_cast<int>(shown_.size()));
  if (ImGui::BeginTable("rows", static_cast<int>(shown_.size()), kFlags)) {
    ImGui::TableSetupScrollFreeze(0, 2);
    for (const TableColumn* column : shown_) {
      const auto place = static_cast<std::size_t>(column - table.columns().data());
      ImGuiTableColumnFlags flags = ImGuiTableColumnFlags_WidthFixed;
      if (column->name == arrangement.sort_column) {
        flags |= ImGuiTableColumnFlags_DefaultSort;
        if (arrangement.descending) flags |= ImGuiTableColumnFlags_PreferSortDescending;
      }
      ImGui::TableSetupColumn(column->name.c_str(), flags, widths_[place]);
    }
    ImGui::TableHeadersRow();
    if (ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs(); specs && specs->SpecsDirty) {
      arrangement.sort_column.clear();
      if (specs->SpecsCount > 0) {
        const auto& spec = specs->Specs[0];
        arrangement.sort_column = shown_[static_cast<std::size_t>(spec.ColumnIndex)]->name;
        arrangement.descending = spec.SortDirection == ImGuiSortDirection_Descending;
      }
      specs->SpecsDirty = false;
    }
    draw_filters(context, arrangement);
    visible_lines(rows_.order->rows.size(), [&](std::size_t place) { draw_line(context, place); });
    ImGui::EndTable();
  }
  ImGui::PopID();
  ImGui::PopID();
}

void ResultTable::draw_tools(PanelContext& context, TableArrangement& arrangement) {
  if (ImGui::Button("Columns")) ImGui::OpenPopup("columns");
  draw_columns_popup();
  ImGui::SameLine();
  ImGui::BeginDisabled(selected_.empty());
  if (ImGui::Button("Copy selection")) copy(context, /*only_selected=*/true);
  ImGui::EndDisabled();
  help_tooltip("The selected lines as CSV. Click selects, Ctrl+click adds, Shift+click extends.");
  ImGui::SameLine();
  if (ImGui::Button("Copy all")) copy(context, /*only_selected=*/false);
  help_tooltip("All lines that pass the filters, as CSV, with every digit.");
  const std::string filters = arrangement.filter_words();
  if (!filters.empty()) {
    ImGui::SameLine();
    if (ImGui::Button("Clear filters")) arrangement.filters.clear();
    help_tooltip(filters);
  }
  ImGui::SameLine();
  ImGui::AlignTextToFramePadding();
  const std::size_t n = rows_.table().n_rows();
  const std::size_t n_shown = rows_.order->rows.size();
  std::string words =
      n == n_shown ? fmt::format("{} lines", n) : fmt::format("{} of {} lines", n_shown, n);
  if (!selected_.empty()) words += fmt::format(", {} selected", selected_.size());
  ImGui::TextDisabled("%s", words.c_str());
}

void ResultTable::draw_columns_popup() {
  if (!ImGui::BeginPopup("columns")) return;
  const auto& columns = rows_.table().columns();
  if (ImGui::Button("All")) hidden_.clear();
  ImGui::SameLine();
  if (ImGui::Button("None")) {
    for (const TableColumn& column : columns) hidden_.insert(column.name);
  }
  if (columns.size() > kMostColumns) {
    ImGui::TextDisabled("at most %d at a time", static_cast<int>(kMostColumns));
  }
  const float height =
      std::min(18.0f, static_cast<float>(columns.size())) * ImGui::GetFrameHeightWithSpacing();
  ImGui::BeginChild("names", {ImGui::GetFontSize() * 18.0f, height});
  for (const TableColumn& column : columns) {
    bool on = !hidden_.contains(column.name);
    if (!check_box(column.name.c_str(), &on)) continue;
    if (on) {
      hidden_.erase(column.name);
    } else {
      hidden_.insert(column.name);
    }
  }
  ImGui::EndChild();
  ImGui::EndPopup();
}

void ResultTable::draw_filters(PanelContext& context, TableArrangement& arrangement) {
  ImGui::TableNextRow();
  for (std::size_t c = 0; c < shown_.size(); ++c) {
    if (!ImGui::TableSetColumnIndex(static_cast<int>(c))) continue;
    const TableColumn& column = *shown_[c];
    std::string text;
    for (const ColumnFilter& filter : arrangement.filters) {
      if (filter.column == column.name) text = filter.text;
    }
    const bool is_bad = !is_valid_filter(column, text);
    ImGui::PushID(static_cast<int>(c));
    if (is_bad) ImGui::PushStyleColor(ImGuiCol_Text, packed(context.look.error));
    ImGui::SetNextItemWidth(-1.0f);
    if (ImGui::InputTextWithHint("##filter", "filter", &text)) {
      filter_of(arrangement, column.name) = text;
    }
    if (is_bad) ImGui::PopStyleColor();
    help_tooltip(column.is_text
                     ? "Words that contain this; =word is exactly that, !word is what does not "
                       "contain it."
                     : "A number, >0.5, <=2, !=0, 0.2..0.5, empty or !empty.");
    ImGui::PopID();
  }
}

void ResultTable::draw_line(PanelContext& context, std::size_t place) {
  const std::uint32_t row = rows_.order->rows[place];
  ImGui::TableNextRow();
  if (is_about_selection(rows_.table(), row, context.session)) {
    ImGui::TableSetBgColor(ImGuiTableBgTarget_RowBg1,
                           packed(plot::with_alpha(context.look.accent, 0.14)));
  }
  ImGui::PushID(static_cast<int>(row));
  bool has_handle = false;
  bool is_hovered = false;
  for (std::size_t c = 0; c < shown_.size(); ++c) {
    if (!ImGui::TableSetColumnIndex(static_cast<int>(c))) continue;
    const TableColumn& column = *shown_[c];
    if (!has_handle) {
      has_handle = true;
      if (ImGui::Selectable("##line", selected_.contains(row),
                            ImGuiSelectableFlags_SpanAllColumns)) {
        press(context.session, place);
      }
      is_hovered = ImGui::IsItemHovered();
      pointing_line(Pointed::at(target_of(rows_.table(), row)));
      ImGui::SameLine(0.0f, 0.0f);
    }
    const std::string cell = short_cell(column, row);
    if (!column.is_text) {
      const float spare = ImGui::GetContentRegionAvail().x - ImGui::CalcTextSize(cell.c_str()).x;
      ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.0f, spare));
    }
    context.fonts.require(cell);
    ImGui::TextUnformatted(cell.c_str(), cell.c_str() + cell.size());
    const bool is_here =
        (ImGui::TableGetColumnFlags(static_cast<int>(c)) & ImGuiTableColumnFlags_IsHovered) != 0;
    if (is_hovered && is_here) {
      const std::string whole = column.cell(row);
      std::vector<std::pair<std::string, std::string>> lines = {
          {column.name, whole.empty() ? "(empty)" : whole}, {"line", fmt::format("{}", row + 1)}};
      const RowTarget target = target_of(rows_.table(), row);
      if (!target.empty()) lines.emplace_back("click goes to", target.words());
      detail_tooltip(lines, Pointed::at(target));
    }
  }
  ImGui::PopID();
}

void ResultTable::press(Session& session, std::size_t place) {
  const auto& order = rows_.order->rows;
  const ImGuiIO& io = ImGui::GetIO();
  if (io.KeyShift && anchor_ < order.size()) {
    selected_.clear();
    for (std::size_t i = std::min(anchor_, place); i <= std::max(anchor_, place); ++i) {
      selected_.insert(order[i]);
    }
    return;
  }
  anchor_ = place;
  const std::uint32_t row = order[place];
  if (io.KeyCtrl) {
    if (selected_.erase(row) == 0) selected_.insert(row);
    return;
  }
  selected_ = {row};
  go_to(session, target_of(rows_.table(), row), "results click");
}

// ---- copies ----

std::vector<std::uint32_t> ResultTable::selected_in_order() const {
  std::vector<std::uint32_t> rows;
  for (const std::uint32_t row : rows_.order->rows) {
    if (selected_.contains(row)) rows.push_back(row);
  }
  return rows;
}

std::vector<std::string> ResultTable::shown_names() const {
  std::vector<std::string> names;
  for (const TableColumn* column : shown_) names.push_back(column->name);
  return names;
}

void ResultTable::copy(PanelContext& context, bool only_selected) {
  // A million lines take a second to write.
  run_beside(
      context.session, "Copying lines", Lane::quick,
      [loaded = rows_.loaded, order = rows_.order, names = shown_names(),
       some = only_selected ? selected_in_order() : std::vector<std::uint32_t>(),
       only_selected](JobContext&) {
        return rows_csv(loaded->table, only_selected ? some : order->rows, names);
      },
      [](const std::string& csv) { ImGui::SetClipboardText(csv.c_str()); });
}

std::optional<std::string> ResultTable::csv() const {
  if (!rows_.loaded || !rows_.order) return std::nullopt;
  const auto names = shown_names();
  return selected_.empty() ? rows_csv(rows_.table(), rows_.order->rows, names)
                           : rows_csv(rows_.table(), selected_in_order(), names);
}

}  // namespace kvscope::gui
