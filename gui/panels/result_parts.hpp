// The parts of the results panel: the table, figures, and what a file says about itself.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "analysis/figures/possible_figures.hpp"
#include "gui/model/results/compact_figure.hpp"
#include "gui/model/results/result_tables.hpp"
#include "gui/model/results/table_view.hpp"
#include "gui/panels/panel_base.hpp"

namespace kvscope::gui {

/// A table in the cache.
struct LoadedTable {
  Table table;
  std::size_t bytes() const { return bytes_of(table); }
};

/// What the parts are about: a result, one of its tables, and the lines that pass the filters.
struct ResultRows {
  std::string key;  // of a cache: result, source and arrangement
  std::shared_ptr<const LoadedTable> loaded;
  std::shared_ptr<const RowOrder> order;
  const Table& table() const { return loaded->table; }
};

/// The list: sorting, filters, columns to show, selected lines. Changes the arrangement it is
/// given.
class ResultTable {
 public:
  void draw(PanelContext& context, const ResultRows& rows, TableArrangement& arrangement);
  /// Selected lines, all if there are none; columns that are shown.
  std::optional<std::string> csv() const;

 private:
  void draw_tools(PanelContext& context, TableArrangement& arrangement);
  void draw_columns_popup();
  void draw_filters(PanelContext& context, TableArrangement& arrangement);
  void draw_line(PanelContext& context, std::size_t place);
  void press(Session& session, std::size_t place);
  void copy(PanelContext& context, bool only_selected);
  std::vector<std::uint32_t> selected_in_order() const;
  std::vector<std::string> shown_names() const;

  ResultRows rows_;
  std::vector<const TableColumn*> shown_;
  std::vector<std::size_t> order_;  // of the table's columns
  std::vector<float> widths_;       // by the table's columns
  std::unordered_set<std::string> hidden_;
  std::unordered_set<std::uint32_t> selected_;
  std::size_t anchor_ = 0;  // where a range began, as a place in the order
  std::shared_ptr<const LoadedTable> laid_out_;
};

/// Figures that the command line draws of such results.
class ResultFigures {
 public:
  std::optional<plot::Figure> figure() const { return figure_.current(); }
  bool is_busy() const { return busy_; }
  /// It could not be made, which was said.
  bool has_failed() const { return failed_; }
  void draw(PanelContext& context, const ResultPtr& result);
  nlohmann::ordered_json options() const;
  void set_options(const nlohmann::ordered_json& json);
  /// Goes to the first kind that can be drawn and was not left by this before; false: none is.
  bool try_next();

 private:
  void draw_choices(PanelContext& context, PossibleFigure& figure);
  void update(const Session& session, const ResultPtr& result);
  /// Shows it, or the one before while it is made: true. Else says why there is none.
  bool show(PanelContext& context, const std::string& key, ImVec2 size, const FigureInput& input,
            const PossibleFigure& figure);

  FigureView figure_;
  std::shared_ptr<const MadeFigure> shown_;
  AsyncValue<MadeFigure> slot_;
  bool busy_ = false;
  bool failed_ = false;
  std::string kind_;
  std::set<std::string> failed_kinds_;  // that try_next() left, for the result
  FigureOptions options_;
  std::vector<PossibleFigure> possible_;
  std::optional<std::uint64_t> possible_at_;  // revision
  ResultPtr possible_for_;
};

/// Provenance, configuration, summary, and the arrays that are in a file.
class ResultAbout {
 public:
  /// The name of the array (or "rows") whose table is wanted, if one was clicked.
  std::optional<std::string> draw(PanelContext& context, const ResultPtr& result);

 private:
  void update(const ResultPtr& result);
  ResultPtr result_;
  std::vector<TableSource> sources_;
  std::vector<std::string> config_;   // lines
  std::vector<std::string> summary_;  // lines
};

/// Names a result in keys of a cache, as long as it is open: another opening of the same file has
/// another name.
std::string result_key(const ResultPtr& result);
/// Its file without folders.
inline std::string file_name(const ResultPtr& result) {
  return std::filesystem::path(result->name()).filename().string();
}

/// Tooltip lines of what lies under the cursor of any figure.
HoverLines hit_lines(const plot::Figure& figure, const FigureHit& hit);

}  // namespace kvscope::gui
