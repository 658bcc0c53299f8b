#include "analysis/plot/data_range.hpp"

#include <algorithm>

#include "analysis/plot/scale.hpp"

namespace kvscope::plot {

namespace {

/// Everything a panel shows, per axis.
struct Collect {
  explicit Collect(const Panel& panel)
      : x(panel.x.scale),
        y(panel.y.scale),
        colour(panel.colour ? panel.colour->axis.scale : ScaleKind::linear) {
    for (const Mark& mark : panel.marks) std::visit(*this, mark);
  }

  void operator()(const Area&) {}  // context never widens an axis
  void operator()(const HeatMap& m) {
    for (double v : {m.x.low, m.x.high}) x.add(v);
    for (double v : {m.y.low, m.y.high}) y.add(v);
    for (float v : m.values) colour.add(static_cast<double>(v));
    has_map = true;
  }
  void operator()(const Line& m) {
    x.add(m.x);
    y.add(m.y);
    y.add(m.low);
    y.add(m.high);
  }
  void operator()(const Scatter& m) {
    x.add(m.x);
    y.add(m.y);
    colour.add(m.value);
  }
  void operator()(const Rule& m) {
    if (m.kind == Rule::Kind::vertical) x.add(m.at);
    if (m.kind == Rule::Kind::horizontal) y.add(m.at);
  }
  void operator()(const Boxes&) {}
  void operator()(const Note&) {}

  Extent x;
  Extent y;
  Extent colour;
  bool has_map = false;
};

Range chosen(const Axis& axis, const Extent& data, bool exact, bool keep_zero) {
  if (axis.range) return *axis.range;
  return exact ? data.range() : padded(data.range(), axis.scale, keep_zero);
}

Range joined(Range a, Range b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

}  // namespace

std::vector<PanelRanges> ranges_of(const Figure& figure) {
  std::vector<PanelRanges> ranges;
  for (const Panel& panel : figure.panels) {
    const Collect data(panel);
    PanelRanges r{
        chosen(panel.x, data.x, data.has_map, /*keep_zero=*/false),
        chosen(panel.y, data.y, data.has_map, /*keep_zero=*/true),
        panel.colour && panel.colour->axis.range ? *panel.colour->axis.range : data.colour.range()};
    const bool asked = panel.x.range && panel.y.range;  // a view that was zoomed, say
    if (panel.equal_scales && !asked) r.x = r.y = joined(r.x, r.y);
    ranges.push_back(r);
  }
  const auto columns = static_cast<std::size_t>(std::max(1, figure.columns));
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    for (std::size_t j = 0; j < ranges.size(); ++j) {
      if (figure.share_x && i % columns == j % columns)
        ranges[i].x = joined(ranges[i].x, ranges[j].x);
      if (figure.share_y && i / columns == j / columns)
        ranges[i].y = joined(ranges[i].y, ranges[j].y);
    }
  }
  return ranges;
}

}  // namespace kvscope::plot
