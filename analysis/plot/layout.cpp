#include "analysis/plot/layout.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/plot/data_range.hpp"
#include "analysis/plot/legend.hpp"
#include "analysis/plot/rich_text.hpp"
#include "core/base/error.hpp"

namespace kvscope::plot {

namespace {

/// Room around a panel's frame.
struct Margins {
  double left = 0.0;
  double right = 0.0;
  double top = 0.0;
  double bottom = 0.0;
};

/// Between the middles of labels above each other, of their size: as near as they may come, and
/// where room is made for names.
constexpr double kLabelGap = 1.05;
constexpr double kNameGap = 1.1;

class LayoutMaker {
 public:
  LayoutMaker(const Figure& figure, const Theme& theme, const TextMetrics& metrics)
      : figure_(figure),
        theme_(theme),
        metrics_(metrics),
        columns_(static_cast<std::size_t>(
            std::clamp<int>(figure.columns, 1, static_cast<int>(figure.panels.size())))),
        rows_((figure.panels.size() + columns_ - 1) / columns_),
        ranges_(ranges_of(figure)),
        has_no_room_(figure.panels.size(), false) {}

  Layout make(double width, std::optional<double> height) {
    Layout layout;
    layout.size.w = width;
    layout.panels.resize(figure_.panels.size());
    const double head = place_head(layout);

    // Margins follow from tick labels, tick labels from sizes, sizes from margins: three rounds
    // settle it.
    double frame_w = (width - 2.0 * theme_.margin) / static_cast<double>(columns_) - 30.0;
    std::vector<double> frame_h(rows_);
    std::vector<Margins> columns(columns_);
    std::vector<Margins> rows(rows_);
    for (int round = 0; round < 4; ++round) {
      // Into a given height the first round's frames are scaled by every round: heights that
      // followed the width again would move the tick labels that the width came from.
      for (std::size_t r = 0; r < rows_ && (!height || round == 0); ++r) {
        frame_h[r] = 0.0;
        for (std::size_t c = 0; c < columns_ && r * columns_ + c < figure_.panels.size(); ++c) {
          const Panel& panel = figure_.panels[r * columns_ + c];
          frame_h[r] = std::max(frame_h[r], frame_w * (panel.equal_scales ? 1.0 : panel.aspect));
        }
        if (!height) frame_h[r] = std::max(frame_h[r], height_for_names(r));
      }
      std::ranges::fill(columns, Margins{});
      std::ranges::fill(rows, Margins{});
      for (std::size_t p = 0; p < figure_.panels.size(); ++p) {
        PanelLayout& panel = layout.panels[p];
        panel.frame = {0.0, 0.0, frame_w, frame_h[p / columns_]};
        set_axes(p, panel);
        look_for_room(p, panel);
        const Margins m = margins_of(p, panel);
        Margins& column = columns[p % columns_];
        Margins& row = rows[p / columns_];
        column.left = std::max(column.left, m.left);
        column.right = std::max(column.right, m.right);
        row.top = std::max(row.top, m.top);
        row.bottom = std::max(row.bottom, m.bottom);
      }
      double used = 2.0 * theme_.margin + static_cast<double>(columns_ - 1) * theme_.gap;
      for (const Margins& m : columns) used += m.left + m.right;
      frame_w = (width - used) / static_cast<double>(columns_);
      if (frame_w < 3.0 * theme_.label_size) {
        throw ConfigError(
            "figure {}: {:.0f} pt are too narrow for {} panels side by side; give it more width",
            figure_.name, width, columns_);
      }
      if (height) {
        double rest = *height - head - 2.0 * theme_.margin -
                      static_cast<double>(rows_ - 1) * 0.8 * theme_.gap;
        double taken = 0.0;
        for (std::size_t r = 0; r < rows_; ++r) {
          rest -= rows[r].top + rows[r].bottom;
          taken += frame_h[r];
        }
        for (double& h : frame_h) h *= rest / taken;
        if (rest < 3.0 * theme_.label_size * static_cast<double>(rows_)) {
          throw ConfigError("figure {}: {:.0f} pt are too low for it; give it more height",
                            figure_.name, *height);
        }
      }
    }
    place_panels(layout, head, frame_w, frame_h, columns, rows);
    // an axis label may have taken a line more than the rounds foresaw
    for (const PlacedText& words : layout.words) {
      if (height || words.style.rotation != 0.0) continue;
      const double bottom = words.at.y + metrics_.descent() * words.style.size;
      layout.size.h = std::max(layout.size.h, bottom + theme_.margin);
    }
    return layout;
  }

 private:
  double line_height(double size) const { return 1.25 * size; }

  /// Title and shared legend; returns where the panels begin.
  double place_head(Layout& layout) {
    double y = theme_.margin;
    const double inner = layout.size.w - 2.0 * theme_.margin;
    if (!figure_.title.empty()) {
      for (const std::string& line : wrap_rich(metrics_, figure_.title, theme_.title_size, inner)) {
        y += line_height(theme_.title_size);
        layout.words.push_back({{layout.size.w / 2.0, y - metrics_.descent() * theme_.title_size},
                                line,
                                {theme_.title_size, theme_.ink, Align::centre},
                                /*is_title=*/true});
      }
      y += 0.4 * theme_.label_size;
    }
    if (figure_.legend == LegendPlace::above) {
      auto entries = legend_entries(figure_.panels);
      if (!entries.empty()) {
        layout.legend = legend_above(std::move(entries), theme_.margin, y, inner, theme_, metrics_);
        y = layout.legend->frame.bottom() + 0.5 * theme_.label_size;
      }
    }
    return y;
  }

  /// The least height of a row's frames in which the names along y stand clear of each other.
  double height_for_names(std::size_t row) const {
    double height = 0.0;
    for (std::size_t p = row * columns_; p < std::min((row + 1) * columns_, figure_.panels.size());
         ++p) {
      const Axis& axis = figure_.panels[p].y;
      if (!axis.has_names || !shows_y_labels(p)) continue;
      const Scale scale(axis.scale, ranges_[p].y, axis.reversed);
      std::vector<double> at;
      for (const Tick& tick : axis.ticks) at.push_back(scale.to_unit(tick.at));
      std::ranges::sort(at);
      for (std::size_t i = 1; i < at.size(); ++i) {
        const double gap = at[i] - at[i - 1];
        if (gap > 0.0) height = std::max(height, kNameGap * theme_.tick_size / gap);
      }
    }
    return height;
  }

  bool shows_x_labels(std::size_t p) const {
    return !figure_.share_x || p + columns_ >= figure_.panels.size();
  }
  bool shows_y_labels(std::size_t p) const { return !figure_.share_y || p % columns_ == 0; }

  /// Whether horizontal tick labels stand clear of each other.
  bool fit_side_by_side(const std::vector<PlacedTick>& ticks) const {
    double end = -1e9;
    std::vector<PlacedTick> sorted = ticks;
    std::ranges::sort(sorted, [](const PlacedTick& a, const PlacedTick& b) { return a.at < b.at; });
    for (const PlacedTick& tick : sorted) {
      if (tick.label.empty()) continue;
      const double half = 0.5 * rich_width(metrics_, tick.label, theme_.tick_size);
      if (tick.at - half < end + 0.55 * theme_.tick_size) return false;
      end = tick.at + half;
    }
    return true;
  }

  /// Labels of every stride-th tick, so that they fit.
  template <class Fits>
  void thin_labels(std::vector<PlacedTick>& ticks, Fits fits) const {
    const std::vector<PlacedTick> all = ticks;
    for (std::size_t stride = 2; !fits(ticks) && stride <= all.size(); ++stride) {
      for (std::size_t i = 0; i < all.size(); ++i)
        ticks[i].label = i % stride == 0 ? all[i].label : std::string();
    }
  }

  void set_axes(std::size_t p, PanelLayout& out) const {
    const Panel& panel = figure_.panels[p];
    const PanelRanges& range = ranges_[p];
    out.x.scale = Scale(panel.x.scale, range.x, panel.x.reversed);
    out.y.scale = Scale(panel.y.scale, range.y, panel.y.reversed);
    out.x.labelled = shows_x_labels(p);
    out.y.labelled = shows_y_labels(p);

    const auto x_at = [&](double v) { return out.frame.x + out.x.scale.to_unit(v) * out.frame.w; };
    const auto y_at = [&](double v) {
      return out.frame.bottom() - out.y.scale.to_unit(v) * out.frame.h;
    };
    int n = std::max(2, static_cast<int>(out.frame.w / (2.6 * theme_.tick_size)));
    n = std::min(n, 8);
    for (;; --n) {
      out.x.ticks.clear();
      for (const Tick& tick : choose_ticks(panel.x, range.x, n))
        out.x.ticks.push_back({x_at(tick.at), tick.label});
      if (n <= 2 || !panel.x.ticks.empty() || fit_side_by_side(out.x.ticks)) break;
    }
    thin_labels(out.x.ticks, [&](const auto& ticks) { return fit_side_by_side(ticks); });

    const int n_y = std::clamp(static_cast<int>(out.frame.h / (2.4 * theme_.tick_size)), 2, 8);
    out.y.ticks.clear();
    for (const Tick& tick : choose_ticks(panel.y, range.y, n_y))
      out.y.ticks.push_back({y_at(tick.at), tick.label});
    thin_labels(out.y.ticks, [&](const auto& ticks) { return fit_stacked(ticks); });
    out.x.minor.clear();
    out.y.minor.clear();
    for (double v : minor_ticks(panel.x, range.x)) out.x.minor.push_back(x_at(v));
    for (double v : minor_ticks(panel.y, range.y)) out.y.minor.push_back(y_at(v));
    if (panel.colour) set_colour(panel, range.colour, out);
  }

  bool fit_stacked(const std::vector<PlacedTick>& ticks) const {
    std::vector<double> at;
    for (const PlacedTick& tick : ticks) {
      if (!tick.label.empty()) at.push_back(tick.at);
    }
    std::ranges::sort(at);
    for (std::size_t i = 1; i < at.size(); ++i) {
      if (at[i] - at[i - 1] < kLabelGap * theme_.tick_size) return false;
    }
    return true;
  }

  void set_colour(const Panel& panel, Range range, PanelLayout& out) const {
    const Axis& axis = panel.colour->axis;
    out.colour = Scale(axis.scale, range, axis.reversed);
    out.bar.reset();
    if (!panel.colour->show_bar) return;
    ColourBarLayout bar{.scale = out.colour};
    bar.rect = {out.frame.right() + 0.75 * theme_.label_size, out.frame.y, theme_.label_size,
                out.frame.h};
    const int n = std::clamp(static_cast<int>(out.frame.h / (2.4 * theme_.tick_size)), 2, 7);
    for (const Tick& tick : choose_ticks(axis, range, n)) {
      bar.ticks.push_back(
          {bar.rect.bottom() - bar.scale.to_unit(tick.at) * bar.rect.h, tick.label});
    }
    thin_labels(bar.ticks, [&](const auto& ticks) { return fit_stacked(ticks); });
    out.bar = std::move(bar);
  }

  double widest_label(const std::vector<PlacedTick>& ticks) const {
    double width = 0.0;
    for (const PlacedTick& tick : ticks)
      width = std::max(width, rich_width(metrics_, tick.label, theme_.tick_size));
    return width;
  }

  double pad() const { return 0.3 * theme_.tick_size; }

  std::vector<std::string> lines_of(const std::string& label, double size, double room) const {
    if (label.empty()) return {};
    return wrap_rich(metrics_, label, size, room);
  }

  /// Where the words beside a frame end, seen from the frame.
  double y_ticks_width(const PanelLayout& panel) const {
    return theme_.tick_length + pad() + (panel.y.labelled ? widest_label(panel.y.ticks) : 0.0);
  }
  double bar_ticks_width(const PanelLayout& panel) const {
    return panel.bar->rect.right() - panel.frame.right() + theme_.tick_length + pad() +
           widest_label(panel.bar->ticks);
  }
  double x_ticks_height() const { return theme_.tick_length + pad() + theme_.tick_size; }

  /// A legend inside stands above where it would hide data; once there, it stays.
  LegendPlace legend_place(std::size_t p) const {
    return has_no_room_[p] ? LegendPlace::above : figure_.panels[p].legend;
  }
  void look_for_room(std::size_t p, const PanelLayout& out) {
    const Panel& panel = figure_.panels[p];
    if (legend_place(p) != LegendPlace::inside) return;
    auto entries = legend_entries({&panel, 1});
    has_no_room_[p] = !entries.empty() &&
                      legend_inside(std::move(entries), panel, out, theme_, metrics_).hides_data;
  }

  Margins margins_of(std::size_t p, const PanelLayout& out) const {
    const Panel& panel = figure_.panels[p];
    Margins m{.left = y_ticks_width(out)};
    if (out.y.labelled) {
      const auto lines = lines_of(panel.y.label, theme_.label_size, out.frame.h * 1.1);
      m.left += static_cast<double>(lines.size()) * line_height(theme_.label_size);
      m.left += lines.empty() ? 0.0 : pad();
    }
    m.bottom = theme_.tick_length;
    if (out.x.labelled) {
      m.bottom = x_ticks_height();
      const auto lines = lines_of(panel.x.label, theme_.label_size, out.frame.w * 1.15);
      m.bottom += static_cast<double>(lines.size()) * line_height(theme_.label_size) + pad();
      // the first and last label may reach beyond the frame, and the axis's own on both sides
      for (const std::string& line : lines) {
        const double half = 0.5 * rich_width(metrics_, line, theme_.label_size);
        const double beyond = half - 0.5 * out.frame.w + (half > 0.5 * out.frame.w ? pad() : 0.0);
        m.right = std::max(m.right, beyond);
        m.left = std::max(m.left, beyond);
      }
      for (const PlacedTick& tick : out.x.ticks) {
        const double half = 0.5 * rich_width(metrics_, tick.label, theme_.tick_size);
        m.right = std::max(m.right, tick.at + half - out.frame.right());
        m.left = std::max(m.left, out.frame.x - tick.at + half);
      }
    }
    m.top = 0.5 * theme_.tick_size;  // half of the topmost tick label
    if (out.y.labelled) {
      for (const auto& line : lines_of(panel.y.label, theme_.label_size, out.frame.h * 1.1)) {
        const double half = 0.5 * rich_width(metrics_, line, theme_.label_size);
        m.top = std::max(m.top, half - 0.5 * out.frame.h);
        m.bottom = std::max(m.bottom, half - 0.5 * out.frame.h);
      }
    }
    if (out.bar) {
      m.right = bar_ticks_width(out);
      const auto lines = lines_of(panel.colour->axis.label, theme_.label_size, out.frame.h);
      m.right += static_cast<double>(lines.size()) * line_height(theme_.label_size) + pad();
    }
    const auto title = lines_of(panel.title, theme_.title_size, out.frame.w * 1.05);
    if (!title.empty())
      m.top = std::max(
          m.top, static_cast<double>(title.size()) * line_height(theme_.title_size) + 1.5 * pad());
    if (legend_place(p) == LegendPlace::above) {
      const auto legend =
          legend_above(legend_entries({&panel, 1}), 0.0, 0.0, out.frame.w, theme_, metrics_);
      m.top += legend.frame.h + pad();
    }
    return m;
  }

  void place_panels(Layout& layout, double head, double frame_w, const std::vector<double>& frame_h,
                    const std::vector<Margins>& columns, const std::vector<Margins>& rows) const {
    double y = head;
    for (std::size_t r = 0; r < rows_; ++r) {
      if (r > 0) y += 0.8 * theme_.gap;
      y += rows[r].top;
      double x = theme_.margin;
      for (std::size_t c = 0; c < columns_; ++c) {
        if (c > 0) x += theme_.gap;
        x += columns[c].left;
        const std::size_t p = r * columns_ + c;
        if (p < figure_.panels.size()) {
          PanelLayout& panel = layout.panels[p];
          panel.frame = {x, y, frame_w, frame_h[r]};
          if (figure_.panels[p].equal_scales) panel.frame.h = std::min(frame_h[r], frame_w);
          set_axes(p, panel);
          add_words(p, panel, layout);
        }
        x += frame_w + columns[c].right;
      }
      y += frame_h[r] + rows[r].bottom;
    }
    layout.size.h = y + theme_.margin;
  }

  void add_words(std::size_t p, PanelLayout& out, Layout& layout) const {
    std::vector<PlacedText>& words = layout.words;
    const Panel& panel = figure_.panels[p];
    const Rect& frame = out.frame;
    const double size = theme_.label_size;
    if (out.x.labelled) {
      double y = frame.bottom() + x_ticks_height() + pad();
      // Frames may have got wider since it was decided that the label needs two lines.
      const double to_edge = std::min(frame.centre().x, layout.size.w - frame.centre().x);
      const double room = std::min(frame.w * 1.15, 2.0 * to_edge);
      for (const auto& line : lines_of(panel.x.label, size, room)) {
        y += line_height(size);
        words.push_back({{frame.centre().x, y - metrics_.descent() * size},
                         line,
                         {size, theme_.ink, Align::centre}});
      }
    }
    if (out.y.labelled) {
      const auto lines = lines_of(panel.y.label, size, frame.h * 1.1);
      double x = frame.x - y_ticks_width(out) - pad() -
                 static_cast<double>(lines.size()) * line_height(size);
      for (const auto& line : lines) {
        x += line_height(size);
        words.push_back({{x - metrics_.descent() * size, frame.centre().y},
                         line,
                         {size, theme_.ink, Align::centre, 90.0}});
      }
    }
    if (out.bar) {
      double x = frame.right() + bar_ticks_width(out) + pad();
      for (const auto& line : lines_of(panel.colour->axis.label, size, frame.h)) {
        x += line_height(size);
        words.push_back({{x - metrics_.descent() * size, frame.centre().y},
                         line,
                         {size, theme_.ink, Align::centre, 90.0}});
      }
    }
    double top = frame.y - 1.5 * pad();
    if (legend_place(p) == LegendPlace::above) {
      auto legend =
          legend_above(legend_entries({&panel, 1}), frame.x, 0.0, frame.w, theme_, metrics_);
      const double shift = frame.y - legend.frame.h - pad();
      legend.frame.y += shift;
      for (Point& place : legend.places) place.y += shift;
      top = shift - 0.5 * pad();
      if (!legend.entries.empty()) out.legend = std::move(legend);
    } else if (panel.legend == LegendPlace::inside) {
      auto entries = legend_entries({&panel, 1});
      if (!entries.empty())
        out.legend = legend_inside(std::move(entries), panel, out, theme_, metrics_);
    }
    const auto title = lines_of(panel.title, theme_.title_size, frame.w * 1.05);
    for (std::size_t i = 0; i < title.size(); ++i) {
      const double above =
          static_cast<double>(title.size() - 1 - i) * line_height(theme_.title_size);
      // over the frame, which it may overhang, but not beyond the page
      const double half = 0.5 * rich_width(metrics_, title[i], theme_.title_size);
      const double x = std::min(frame.centre().x, std::max(half, layout.size.w - half));
      words.push_back({{x, top - above - 0.1 * theme_.title_size},
                       title[i],
                       {theme_.title_size, theme_.ink, Align::centre},
                       /*is_title=*/true});
    }
  }

  const Figure& figure_;
  const Theme& theme_;
  const TextMetrics& metrics_;
  std::size_t columns_;
  std::size_t rows_;
  std::vector<PanelRanges> ranges_;
  std::vector<bool> has_no_room_;  // inside a panel, for its legend
};

}  // namespace

Layout layout_figure(const Figure& figure, double width, std::optional<double> height,
                     const Theme& theme, const TextMetrics& metrics) {
  check_figure(figure);
  return LayoutMaker(figure, theme, metrics).make(width, height);
}

}  // namespace kvscope::plot
