#include "notebooks_export/story_figure.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/plot/rich_text.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/number_text.hpp"
#include "notebooks_export/figure_export.hpp"
#include "notebooks_export/open_result.hpp"
#include "notebooks_export/story_cells.hpp"

namespace kvscope {

namespace {

constexpr double kWidth = 4.6;  // inches: its letters can be read at 400 pixels and from far away
constexpr std::size_t kMostMarks = 6000;

/// The numbers of a mark under the pointer: "x 256, y 0.93".
class MarkList {
 public:
  explicit MarkList(const PlacedFigure& placed) : placed_(placed) {}

  nlohmann::json list() {
    for (std::size_t p = 0; p < placed_.figure.panels.size(); ++p) {
      panel_ = &placed_.figure.panels[p];
      layout_ = &placed_.layout.panels[p];
      for (const plot::Mark& mark : panel_->marks) add(mark);
    }
    return std::move(marks_);
  }

 private:
  std::string axis_words(const plot::Axis& axis, double value) const {
    for (const plot::Tick& tick : axis.ticks) {
      if (tick.at == value && !tick.label.empty()) return tick.label;
    }
    const std::string label = axis.label.empty() ? "" : axis.label + " ";
    return label + kvscope::number_text(value);
  }

  void add_point(double x, double y, const std::string& what, const std::string& value = "") {
    if (!std::isfinite(x) || !std::isfinite(y) || marks_.size() >= kMostMarks) return;
    const plot::Point at = layout_->place(x, y);
    const bool is_inside =
        std::isfinite(at.x) && std::isfinite(at.y) && layout_->frame.contains(at);
    if (!is_inside) return;
    std::string words = panel_->title.empty() ? "" : panel_->title + ": ";
    if (!what.empty()) words += what + ", ";
    words += axis_words(panel_->x, x) + ", " + axis_words(panel_->y, y);
    if (!value.empty()) words += ", " + value;
    marks_.push_back(
        {std::round(10.0 * at.x) / 10.0, std::round(10.0 * at.y) / 10.0, plot::plain_text(words)});
  }

  std::string colour_words(double value) const {
    if (!panel_->colour) return kvscope::number_text(value);
    return panel_->colour->axis.label + " " + kvscope::number_text(value);
  }

  void add(const plot::Mark& mark) {
    if (const auto* line = std::get_if<plot::Line>(&mark)) {
      for (std::size_t i = 0; i < line->x.size(); ++i) {
        const bool has_band = i < line->low.size() && std::isfinite(line->low[i]);
        add_point(line->x[i], line->y[i], line->label,
                  has_band ? fmt::format("band {} to {}", kvscope::number_text(line->low[i]),
                                         kvscope::number_text(line->high[i]))
                           : "");
      }
    } else if (const auto* points = std::get_if<plot::Scatter>(&mark)) {
      for (std::size_t i = 0; i < points->x.size(); ++i) {
        const bool has_value = i < points->value.size() && std::isfinite(points->value[i]);
        add_point(points->x[i], points->y[i], points->label,
                  has_value ? colour_words(points->value[i]) : "");
      }
    } else if (const auto* bars = std::get_if<plot::Bars>(&mark)) {
      for (std::size_t i = 0; i < bars->heights.size(); ++i)
        add_point(0.5 * (bars->edges[i] + bars->edges[i + 1]), bars->heights[i], bars->label);
    } else if (const auto* map = std::get_if<plot::HeatMap>(&mark)) {
      add_map(*map);
    }
  }

  void add_map(const plot::HeatMap& map) {
    const auto n = static_cast<std::size_t>(map.n_rows * map.n_cols);
    if (n + marks_.size() > kMostMarks) return;  // such maps are panels of their own
    const double dx = (map.x.high - map.x.low) / static_cast<double>(map.n_cols);
    const double dy = (map.y.high - map.y.low) / static_cast<double>(map.n_rows);
    for (Index row = 0; row < map.n_rows; ++row) {
      for (Index col = 0; col < map.n_cols; ++col) {
        const auto value =
            static_cast<double>(map.values[static_cast<std::size_t>(row * map.n_cols + col)]);
        if (!std::isfinite(value)) continue;
        add_point(map.x.low + (static_cast<double>(col) + 0.5) * dx,
                  map.y.low + (static_cast<double>(row) + 0.5) * dy, "", colour_words(value));
      }
    }
  }

  const PlacedFigure& placed_;
  const plot::Panel* panel_ = nullptr;
  const plot::PanelLayout* layout_ = nullptr;
  nlohmann::json marks_ = nlohmann::json::array();
};

}  // namespace

plot::Figure story_figure(const StoryFigure& figure, const std::string& step) {
  try {
    std::vector<std::unique_ptr<ResultView>> results;
    FigureInput input{{}, figure.options};
    for (const auto& file : figure.results) {
      results.push_back(open_result(file));
      input.results.push_back(results.back().get());
    }
    return make_figure(find_figure_kind(figure.kind), input);
  } catch (const ConfigError& e) {
    throw ConfigError("{}: {}", step, e.what());
  } catch (const FormatError& e) {
    throw FormatError("{}: {}", step, e.what());
  }
}

PageFigure page_figure(const plot::Figure& figure) {
  PageFigure page;
  for (const std::string& sentence : figure.caption)
    page.alt += (page.alt.empty() ? "" : " ") + plot::plain_text(sentence);
  if (page.alt.empty()) page.alt = figure.title.empty() ? figure.name : figure.title;
  RenderOptions options;
  options.width = kWidth;
  for (const plot::Ground ground : {plot::Ground::light, plot::Ground::dark}) {
    options.theme = ground;
    const auto files = render_figure(figure, options, {FigureFormat::svg}, "figure");
    const std::string& svg = files.front().bytes;
    const bool is_light = ground == plot::Ground::light;
    page.html +=
        fmt::format("<img class=\"{}\" alt=\"{}\"{} src=\"data:image/svg+xml;base64,{}\">",
                    is_light ? "on-light" : "on-dark", is_light ? xml_escape(page.alt) : "",
                    is_light ? "" : " aria-hidden=\"true\"",
                    page_base64({reinterpret_cast<const std::uint8_t*>(svg.data()), svg.size()}));
  }
  const PlacedFigure placed = place_figure(figure, options);
  const nlohmann::json marks = {{"width", placed.layout.size.w},
                                {"height", placed.layout.size.h},
                                {"marks", MarkList(placed).list()}};
  page.marks = marks.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  return page;
}

}  // namespace kvscope
