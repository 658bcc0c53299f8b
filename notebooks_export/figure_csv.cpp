#include "notebooks_export/figure_csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/plot/rich_text.hpp"
#include "core/base/csv_text.hpp"

namespace kvscope {

namespace {

using namespace plot;

class CsvWriter {
 public:
  void panel(std::size_t number, const Panel& panel) {
    panel_ = &panel;
    place_ = fmt::format("{},{}", number, csv_field(one_line(panel.title)));
    axes_ = fmt::format("{},{},{}", csv_field(one_line(panel.x.label)),
                        csv_field(one_line(panel.y.label)),
                        csv_field(panel.colour ? one_line(panel.colour->axis.label) : ""));
    for (const Mark& mark : panel.marks) std::visit(*this, mark);
  }
  std::string take() { return std::move(text_); }

  void operator()(const Area& m) {
    begin("area", m.label);
    for (std::size_t i = 0; i < m.x.size(); ++i) line(m.x[i], {}, m.low[i], m.high[i], {});
  }
  void operator()(const HeatMap& m) {
    begin("cell", "");
    const double w = (m.x.high - m.x.low) / static_cast<double>(m.n_cols);
    const double h = (m.y.high - m.y.low) / static_cast<double>(m.n_rows);
    for (Index row = 0; row < m.n_rows; ++row) {
      for (Index col = 0; col < m.n_cols; ++col) {
        const float value = m.values[static_cast<std::size_t>(row * m.n_cols + col)];
        if (!std::isfinite(value)) continue;
        line(m.x.low + (static_cast<double>(col) + 0.5) * w,
             m.y.low + (static_cast<double>(row) + 0.5) * h, {}, {}, value);
      }
    }
  }
  void operator()(const Line& m) {
    begin("line", m.label);
    for (std::size_t i = 0; i < m.x.size(); ++i) {
      const bool has_band = !m.low.empty();
      line(m.x[i], m.y[i], has_band ? csv_number(m.low[i]) : std::string(),
           has_band ? csv_number(m.high[i]) : std::string(), {});
    }
  }
  void operator()(const Scatter& m) {
    begin("point", m.label);
    for (std::size_t i = 0; i < m.x.size(); ++i) {
      line(m.x[i], m.y[i], {}, {}, m.value.empty() ? std::string() : csv_number(m.value[i]));
    }
  }
  void operator()(const Rule& m) {
    begin(m.kind == Rule::Kind::vertical     ? "vertical rule"
          : m.kind == Rule::Kind::horizontal ? "horizontal rule"
                                             : "diagonal rule",
          m.label);
    const bool is_vertical = m.kind == Rule::Kind::vertical;
    const bool is_horizontal = m.kind == Rule::Kind::horizontal;
    line(is_vertical ? csv_number(m.at) : std::string(),
         is_horizontal ? csv_number(m.at) : std::string(), {}, {}, {});
  }
  void operator()(const Boxes& m) {
    begin("box", m.label);
    for (std::size_t i = 0; i < m.x.size(); ++i) {
      line(0.5 * (m.x[i].low + m.x[i].high), 0.5 * (m.y[i].low + m.y[i].high), {}, {}, {});
    }
  }
  void operator()(const Note&) {}

 private:
  /// A number or nothing.
  struct Cell {
    std::string text;
    Cell() = default;
    Cell(std::string t) : text(std::move(t)) {}
    Cell(double v) : text(csv_number(v)) {}
    Cell(float v) : text(csv_number(v)) {}
  };

  void begin(std::string_view kind, const std::string& label) {
    head_ = fmt::format("{},{},{}", place_, kind, csv_field(one_line(label)));
  }
  void line(const Cell& x, const Cell& y, const Cell& low, const Cell& high, const Cell& value) {
    fmt::format_to(std::back_inserter(text_), "{},{},{},{},{},{},{},{},{}\n", head_, x.text, y.text,
                   low.text, high.text, value.text, axes_, tick_at(panel_->x, x.text),
                   tick_at(panel_->y, y.text));
  }

  static std::string one_line(std::string_view label) {
    std::string text = plain_text(label);
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  }

  /// The words on the axis at this number: cells of a map are known by them.
  static std::string tick_at(const Axis& axis, const std::string& number) {
    for (const Tick& tick : axis.ticks) {
      if (csv_number(tick.at) == number) return csv_field(one_line(tick.label));
    }
    return "";
  }

  const Panel* panel_ = nullptr;
  std::string place_;  // number and title
  std::string axes_;   // their labels
  std::string head_;
  std::string text_ =
      "panel,panel_title,mark,series,x,y,low,high,value,x_axis,y_axis,value_axis,x_tick,y_tick\n";
};

}  // namespace

std::string figure_csv(const Figure& figure) {
  CsvWriter writer;
  for (std::size_t p = 0; p < figure.panels.size(); ++p) writer.panel(p + 1, figure.panels[p]);
  return writer.take();
}

}  // namespace kvscope
