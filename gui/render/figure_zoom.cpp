#include "gui/render/figure_zoom.hpp"

#include <algorithm>
#include <cmath>

#include "gui/render/visible_figure.hpp"

namespace kvscope::gui {

namespace {

constexpr double kDeepest = 1e-7;  // of the whole axis: beyond it, floats end

}  // namespace

void FigureZoom::set_figure(const plot::Figure& figure,
                            const std::vector<plot::PanelRanges>& whole) {
  const auto make = [&](AxisOf which, bool shared) {
    Views made;
    for (std::size_t p = 0; p < figure.panels.size(); ++p) {
      const plot::Panel& panel = figure.panels[p];
      const plot::Axis& axis = which == AxisOf::x ? panel.x : panel.y;
      View view{.kind = axis.scale,
                .whole = which == AxisOf::x ? whole[p].x : whole[p].y,
                .reversed = axis.reversed,
                .group = static_cast<int>(p),
                .label = axis.label};
      for (const plot::Mark& mark : panel.marks) {
        view.stays_inside = view.stays_inside || std::holds_alternative<plot::HeatMap>(mark);
      }
      for (std::size_t other = 0; shared && other < p; ++other) {
        if (made[other].kind == view.kind && same_range(made[other].whole, view.whole)) {
          view.group = made[other].group;
          break;
        }
      }
      made.push_back(view);
    }
    return made;
  };
  for (AxisOf axis : {AxisOf::x, AxisOf::y}) {
    Views made = make(axis, axis == AxisOf::x ? figure.share_x : figure.share_y);
    Views& old = views(axis);
    const bool alike =
        made.size() == old.size() &&
        std::equal(made.begin(), made.end(), old.begin(), [](const View& a, const View& b) {
          return a.kind == b.kind && a.reversed == b.reversed && a.label == b.label &&
                 a.group == b.group;
        });
    for (std::size_t p = 0; alike && p < made.size(); ++p) {
      const auto& zoomed = old[p].zoomed;
      if (zoomed && zoomed->low < made[p].whole.high && zoomed->high > made[p].whole.low) {
        made[p].zoomed = zoomed;
      }
    }
    old = std::move(made);
  }
}

void FigureZoom::reset() {
  for (View& view : x_) view.zoomed.reset();
  for (View& view : y_) view.zoomed.reset();
}

void FigureZoom::zoom(std::size_t panel, AxisOf axis, double unit, double factor) {
  show(panel, axis, unit - unit * factor, unit + (1.0 - unit) * factor);
}

void FigureZoom::pan(std::size_t panel, AxisOf axis, double units) {
  show(panel, axis, units, 1.0 + units);
}

void FigureZoom::show(std::size_t panel, AxisOf axis, double from, double to) {
  Views& all = views(axis);
  if (panel >= all.size()) return;
  const View& view = all[panel];
  // as parts of the whole axis, where limits are simple
  const plot::Scale now = view.scale(view.visible());
  const plot::Scale whole = view.scale(view.whole);
  double low = whole.to_unit(now.from_unit(from));
  double high = whole.to_unit(now.from_unit(to));
  const double width = high - low;
  if (!std::isfinite(width) || width < kDeepest) return;
  std::optional<plot::Range> range;
  if (width < 1.0 - 1e-9) {
    const double room = view.stays_inside ? 0.0 : 0.5 * width;
    const double shift = std::max(0.0, -room - low) - std::max(0.0, high - 1.0 - room);
    low += shift;
    high += shift;
    const double a = whole.from_unit(low);
    const double b = whole.from_unit(high);
    range = plot::Range{std::min(a, b), std::max(a, b)};
    if (!(range->low < range->high) || !std::isfinite(range->high - range->low)) return;
  }
  const int group = view.group;
  for (View& other : all) {
    if (other.group == group) other.zoomed = range;
  }
}

bool FigureZoom::is_zoomed() const {
  const auto zoomed = [](const View& view) { return view.zoomed.has_value(); };
  return std::ranges::any_of(x_, zoomed) || std::ranges::any_of(y_, zoomed);
}

plot::Range FigureZoom::visible(std::size_t panel, AxisOf axis) const {
  return views(axis)[panel].visible();
}

void FigureZoom::apply(plot::Figure& figure) const {
  for (std::size_t p = 0; p < figure.panels.size() && p < x_.size(); ++p) {
    plot::Panel& panel = figure.panels[p];
    // panels with equal scales must not join what was zoomed apart
    const bool both = panel.equal_scales && (x_[p].zoomed || y_[p].zoomed);
    if (x_[p].zoomed || both) panel.x.range = x_[p].visible();
    if (y_[p].zoomed || both) panel.y.range = y_[p].visible();
  }
}

}  // namespace kvscope::gui
