#include "notebooks_export/pgfplots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/plot/cells.hpp"
#include "analysis/plot/draw.hpp"
#include "analysis/plot/draw_marks.hpp"
#include "analysis/plot/raster.hpp"
#include "analysis/plot/rich_text.hpp"
#include "core/base/escape.hpp"
#include "notebooks_export/cairo_canvas.hpp"
#include "notebooks_export/pgfplots_style.hpp"

namespace kvscope {

namespace {

using namespace plot;

/// For a comment, which a line break would end.
std::string one_line(std::string_view text) {
  std::string line = clean_text(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

class PgfWriter {
 public:
  PgfWriter(const Figure& figure, const Layout& layout, const Theme& theme, std::string stem)
      : figure_(figure), layout_(layout), theme_(theme), stem_(std::move(stem)) {}

  std::vector<OutputFile> write() {
    out_ = fmt::format(
        "% {}: drawn by kvscope. The document needs \\usepackage{{pgfplots}},\n"
        "% \\pgfplotsset{{compat=1.18}} and \\usetikzlibrary{{plotmarks}}; include with "
        "\\input{{{}}}.\n"
        "% From another folder, \\graphicspath{{{{THAT/FOLDER/}}}} finds its images.\n",
        one_line(figure_.name), one_line(stem_));
    for (const std::string& sentence : figure_.caption) {
      out_ += "% " + one_line(plain_text(sentence)) + "\n";
    }
    out_ += fmt::format(
        "\\begin{{tikzpicture}}[font=\\fontsize{{{:.1f}}}{{{:.1f}}}\\selectfont,line join=round]\n",
        theme_.tick_size, 1.2 * theme_.tick_size);
    // the same outline as in the other formats
    out_ += fmt::format("\\useasboundingbox (0pt,0pt) rectangle ({:.2f}pt,{:.2f}pt);\n",
                        layout_.size.w, layout_.size.h);
    for (std::size_t p = 0; p < figure_.panels.size(); ++p) panel(p);
    // titles and labels in the layout's lines, where the other formats have them
    for (const PlacedText& words : layout_.words) {
      out_ += fmt::format(
          "\\node[anchor=base,{}inner sep=0pt,font=\\fontsize{{{:.1f}}}{{{:.1f}}}\\selectfont] at "
          "({:.2f}pt,{:.2f}pt) {{{}}};\n",
          words.style.rotation == 0.0 ? "" : fmt::format("rotate={:g},", words.style.rotation),
          words.style.size, 1.2 * words.style.size, words.at.x, layout_.size.h - words.at.y,
          tex_text(words.text));
    }
    out_ += "\\end{tikzpicture}\n";
    if (out_.find(kStarMark) != std::string::npos)
      out_.insert(out_.find("\\begin{tikzpicture}"), tex_star());
    files_.insert(files_.begin(), {stem_ + ".tex", std::move(out_)});
    return std::move(files_);
  }

  // ---- marks ----

  void operator()(const Area& m) {
    polygon(m.x, m.low, m.high, theme_.style_of(m.tone).colour, m.opacity);
  }

  void operator()(const HeatMap& m) {
    const PanelLayout& at = layout_.panels[panel_];
    const Panel& panel = figure_.panels[panel_];
    const Point a = at.place(m.x.low, m.y.low);
    const Point b = at.place(m.x.high, m.y.high);
    const ColourMap map = panel.colour ? panel.colour->map : ColourMap::sequential;
    picture(heat_map_image(m, at.colour, map,
                           m.show_masked ? theme_.masked : with_alpha(theme_.ground, 0.0),
                           a.x > b.x, a.y > b.y),
            {std::min(a.x, b.x), std::min(a.y, b.y), std::abs(b.x - a.x), std::abs(b.y - a.y)});
    if (!m.print_values) return;
    const auto in_frame = [&](Point p) {
      return fmt::format("(axis description cs:{:.5f},{:.5f})", (p.x - at.frame.x) / at.frame.w,
                         (at.frame.bottom() - p.y) / at.frame.h);
    };
    for (const auto& [from, to] : cell_borders(m, at)) {
      out_ +=
          fmt::format("\\draw[draw={},line width={:.2f}pt] {} -- {};\n", tex_colour(theme_.ground),
                      theme_.rule_width, in_frame(from), in_frame(to));
    }
    for (const PlacedText& number : cell_numbers(m, panel, at, theme_, figure_font_metrics())) {
      out_ += fmt::format(
          "\\node[anchor=base,inner sep=0pt,text={},font=\\fontsize{{{:.2f}}}{{{:.2f}}}"
          "\\selectfont] at {} {{{}}};\n",
          tex_colour(number.style.colour), number.style.size, 1.2 * number.style.size,
          in_frame(number.at), tex_text(number.text));
    }
  }

  void operator()(const Line& m) {
    const SeriesStyle style = theme_.style_of(m.tone);
    std::vector<double> x;
    std::vector<double> y;
    thin_curve(m.x, m.y, x, y);
    std::string marks = m.steps     ? std::string("const plot,no marks")
                        : m.markers ? tex_marker(style, theme_.marker_radius)
                                    : std::string("no marks");
    if (is_dense(m) && m.markers) {
      const std::size_t stride = std::max<std::size_t>(1, x.size() / 6);
      marks += fmt::format(",mark repeat={},mark phase={}", stride,
                           stride * static_cast<std::size_t>(m.tone.slot % 5 + 1) / 6 + 1);
    }
    plot(line_style(style, is_dense(m)) + "," + marks, x, y, /*jump=*/true);
  }

  void operator()(const Scatter& m) {
    const SeriesStyle style = theme_.style_of(m.tone);
    const PanelLayout& at = layout_.panels[panel_];
    const Panel& panel = figure_.panels[panel_];
    const bool coloured = !m.value.empty() && panel.colour;
    const double radius = theme_.marker_radius * m.size;
    if (m.x.size() > kMostVectorMarkers) {
      std::vector<Point> places;
      std::vector<Colour> colours;
      for (std::size_t i = 0; i < m.x.size(); ++i) {
        places.push_back(at.place(m.x[i], m.y[i]));
        if (!coloured) continue;
        colours.push_back(
            with_alpha(colour_at(panel.colour->map, at.colour.to_unit(m.value[i])), m.opacity));
      }
      if (!coloured) colours.push_back(with_alpha(style.colour, m.opacity));
      picture(cloud_image(places, colours, radius, at.frame, 300.0 / 72.0), at.frame);
      return;
    }
    if (coloured) {
      out_ += fmt::format(
          "\\addplot[forget plot,only marks,mark=*,mark size={:.2f}pt,scatter,scatter src=explicit,"
          "point meta min=0,point meta max=1,mark options={{draw opacity=0,fill opacity={:.2f}}}] "
          "table[meta=c,row sep=\\\\] {{x y c\\\\\n",
          radius, m.opacity);
      for (std::size_t i = 0; i < m.x.size(); ++i) {
        const double unit = at.colour.to_unit(m.value[i]);
        if (!std::isfinite(m.x[i] + m.y[i] + unit)) continue;
        out_ +=
            fmt::format("{:.6g} {:.6g} {:.4f}\\\\\n", m.x[i], m.y[i], std::clamp(unit, 0.0, 1.0));
      }
      out_ += "};\n";
      return;
    }
    plot(fmt::format("only marks,opacity={:.2f},color={},{}", m.opacity, tex_colour(style.colour),
                     tex_marker(style, radius)),
         m.x, m.y);
  }

  void operator()(const Rule& m) {
    const SeriesStyle style = theme_.style_of(m.tone);
    const Range x = layout_.panels[panel_].x.scale.range();
    const Range y = layout_.panels[panel_].y.scale.range();
    std::vector<double> xs = {x.low, x.high};
    std::vector<double> ys = {m.at, m.at};
    if (m.kind == Rule::Kind::vertical) {
      xs = {m.at, m.at};
      ys = {y.low, y.high};
    } else if (m.kind == Rule::Kind::diagonal) {
      xs = ys = {std::max(x.low, y.low), std::min(x.high, y.high)};
    }
    plot(line_style(style) + ",no marks", xs, ys);
  }

  void operator()(const Boxes& m) {
    for (std::size_t i = 0; i < m.x.size(); ++i) {
      const Point a = layout_.panels[panel_].place(m.x[i].low, m.y[i].low);
      const Point b = layout_.panels[panel_].place(m.x[i].high, m.y[i].high);
      out_ += fmt::format(
          "\\draw[{},line width={:.2f}pt] (axis cs:{:.6g},{:.6g}) rectangle (axis "
          "cs:{:.6g},{:.6g});\n",
          tex_colour(theme_.style_of(m.tone).colour).insert(0, "draw="),
          box_width(std::abs(b.x - a.x), std::abs(b.y - a.y), theme_), m.x[i].low, m.y[i].low,
          m.x[i].high, m.y[i].high);
    }
  }

  void operator()(const Note& m) {
    constexpr std::string_view kAnchors[] = {"north west", "north", "north east"};
    constexpr std::string_view kAligns[] = {"left", "center", "right"};
    const auto align = static_cast<std::size_t>(m.align);
    const FittedNote fitted =
        fit_note(m, layout_.panels[panel_].frame, theme_, figure_font_metrics());
    if (fitted.size == 0.0) return;
    const std::string plate =
        m.room_x > 0.0
            ? fmt::format(
                  "inner sep={:.2f}pt,fill={},fill opacity=0.75,text "
                  "opacity=1,font=\\fontsize{{{:.1f}}}{{{:.1f}}}"
                  "\\selectfont",
                  0.15 * fitted.size, tex_colour(theme_.ground), fitted.size, 1.2 * fitted.size)
            : std::string("inner sep=0pt");
    out_ += fmt::format(
        "\\node[anchor={},align={},{}] at (axis description cs:{:.4f},{:.4f}) {{{}}};\n",
        kAnchors[align], kAligns[align], plate, m.x, 1.0 - m.y, tex_lines(fitted.text));
  }

 private:
  std::string line_style(const SeriesStyle& style, bool solid = false) const {
    return fmt::format("color={},{},line width={:.2f}pt", tex_colour(style.colour),
                       tex_dash(solid ? Dash::solid : style.dash), theme_.line_width);
  }

  void bands(const Panel& panel) {
    for (const Mark& mark : panel.marks) {
      const Line* line = std::get_if<Line>(&mark);
      if (line == nullptr || line->low.empty()) continue;
      const Colour colour = theme_.style_of(line->tone).colour;
      const std::vector<std::size_t> lone = lone_intervals(*line);
      fill_pieces(*line, colour);
      const std::string bar =
          fmt::format("color={},line width={:.2f}pt", tex_colour(colour), theme_.line_width);
      for (const std::size_t i : lone)
        plot(bar, {line->x[i], line->x[i]}, {line->low[i], line->high[i]});
    }
  }

  /// The band between each two gaps; a point between two is an interval of its own.
  void fill_pieces(const Line& line, Colour colour) {
    std::vector<double> x, low, high;
    for (std::size_t i = 0; i <= line.x.size(); ++i) {
      const bool is_gap =
          i == line.x.size() || !std::isfinite(line.low[i]) || !std::isfinite(line.high[i]);
      if (is_gap && x.size() > 1) polygon(x, low, high, colour, 0.6 * theme_.band_alpha);
      if (is_gap) {
        x.clear();
        low.clear();
        high.clear();
        continue;
      }
      x.push_back(line.x[i]);
      low.push_back(line.low[i]);
      high.push_back(line.high[i]);
    }
  }

  void plot(const std::string& options, const std::vector<double>& x, const std::vector<double>& y,
            bool jump = false) {
    out_ += fmt::format("\\addplot[forget plot,{}] coordinates {{", options);
    coordinates(x, y, jump);
    out_ += "};\n";
  }

  /// Points without a place are left out, or with `jump` break the curve.
  void coordinates(const std::vector<double>& x, const std::vector<double>& y, bool jump = false) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isfinite(x[i]) && std::isfinite(y[i])) {
        out_ += fmt::format("({:.6g},{:.6g})", x[i], y[i]);
      } else if (jump) {
        out_ += "(nan,nan)";
      }
    }
  }

  void polygon(const std::vector<double>& x, const std::vector<double>& low,
               const std::vector<double>& high, Colour colour, double alpha) {
    std::vector<double> lx, ly, hx, hy;
    thin_curve(x, low, lx, ly);
    thin_curve(x, high, hx, hy);
    std::reverse(lx.begin(), lx.end());
    std::reverse(ly.begin(), ly.end());
    out_ +=
        fmt::format("\\addplot[forget plot,draw=none,fill={},fill opacity={:.2f}] coordinates {{",
                    tex_colour(colour), alpha);
    coordinates(hx, hy);
    coordinates(lx, ly);
    out_ += "} -- cycle;\n";
  }

  void picture(const Image& image, const Rect& rect) {
    const std::string name = fmt::format("{}-{}.png", stem_, files_.size() + 1);
    files_.push_back({name, encode_png(enlarge(image, crisp_factor(image)))});
    const Rect& frame = layout_.panels[panel_].frame;
    out_ += fmt::format(
        "\\node[anchor=south west,inner sep=0pt] at (axis description cs:{:.5f},{:.5f}) "
        "{{\\includegraphics[width={:.2f}pt,height={:.2f}pt]{{{}}}}};\n",
        (rect.x - frame.x) / frame.w, (frame.bottom() - rect.bottom()) / frame.h, rect.w, rect.h,
        name);
  }

  std::string ticks(char axis, const AxisLayout& layout, bool is_x, const Rect& frame) const {
    std::string at;
    std::string labels;
    for (const PlacedTick& tick : layout.ticks) {
      const double unit =
          is_x ? (tick.at - frame.x) / frame.w : (frame.bottom() - tick.at) / frame.h;
      at += fmt::format("{}{:.6g}", at.empty() ? "" : ",", layout.scale.from_unit(unit));
      labels += fmt::format("{}{{{}}}", labels.empty() ? "" : ",",
                            layout.labelled ? tex_text(tick.label) : std::string());
    }
    if (at.empty()) at = "\\empty";  // else pgfplots makes its own
    return fmt::format("{0}tick={{{1}}},{0}ticklabels={{{2}}},", axis, at, labels);
  }

  std::string axis_options(char axis, const Axis& spec, const AxisLayout& layout,
                           const Rect& frame) {
    const Range range = layout.scale.range();
    // the labels are whole: no power of ten beside them
    std::string out = fmt::format("{0}min={1:.6g},{0}max={2:.6g},scaled {0} ticks=false,", axis,
                                  range.low, range.high);
    const bool is_log = spec.scale != ScaleKind::linear;
    if (is_log) out += fmt::format("{}mode=log,", axis);
    if (spec.scale == ScaleKind::log2) out += fmt::format("log basis {}=2,", axis);
    if (spec.reversed) out += fmt::format("{} dir=reverse,", axis);
    out += ticks(axis, layout, axis == 'x', frame);
    return out;
  }

  void panel(std::size_t p) {
    panel_ = p;
    const Panel& panel = figure_.panels[p];
    const PanelLayout& layout = layout_.panels[p];
    const Rect& frame = layout.frame;
    const bool is_map = std::any_of(panel.marks.begin(), panel.marks.end(), [](const Mark& m) {
      return std::holds_alternative<HeatMap>(m);
    });
    out_ += fmt::format(
        "\\begin{{axis}}[at={{({:.2f}pt,{:.2f}pt)}},anchor=south west,scale only axis,unbounded "
        "coords=jump,width={:.2f}pt,height={:.2f}pt,\n  {}\n  {}\n  {}tick align=outside,tick "
        "pos=left,minor tick num=0,major tick length={:.1f}pt",
        frame.x, layout_.size.h - frame.bottom(), frame.w, frame.h,
        axis_options('x', panel.x, layout.x, frame), axis_options('y', panel.y, layout.y, frame),
        is_map ? "axis on top," : "axis lines=left,axis line style={-},", theme_.tick_length);
    if (panel.grid && !is_map) {
      out_ += fmt::format(",grid=major,grid style={{line width={:.2f}pt,{}}}", theme_.grid_width,
                          tex_colour(theme_.grid).insert(0, "color="));
    }
    if (panel.colour) out_ += "," + tex_colour_map(panel.colour->map);
    const LegendLayout* legend = p == 0 && layout_.legend ? &*layout_.legend
                                 : layout.legend          ? &*layout.legend
                                                          : nullptr;
    if (legend != nullptr) out_ += legend_style(*legend, frame);
    out_ += "]\n";
    bands(panel);
    for (const Mark& mark : panel.marks) std::visit(*this, mark);
    if (legend != nullptr) {
      for (const LegendEntry& entry : legend->entries) {
        out_ += fmt::format("\\addlegendimage{{{}}}\n\\addlegendentry{{{}}}\n", legend_image(entry),
                            tex_text(entry.label));
      }
    }
    out_ += "\\end{axis}\n";
    if (layout.bar) colour_bar(panel, *layout.bar);
  }

  std::string legend_style(const LegendLayout& legend, const Rect& frame) const {
    std::size_t columns = 1;
    for (std::size_t i = 1; i < legend.places.size(); ++i) {
      columns += legend.places[i].x > legend.places[i - 1].x + 0.1;
    }
    const std::size_t rows = (legend.entries.size() + columns - 1) / columns;
    return fmt::format(
        ",legend style={{at={{({:.4f},{:.4f})}},anchor=north west,draw=none,fill={},fill "
        "opacity=0.86,text opacity=1,inner sep=0pt,/tikz/every even column/.append style={{column "
        "sep={:.1f}pt}}}},legend cell align=left,{}",
        (legend.frame.x - frame.x) / frame.w, (frame.bottom() - legend.frame.y) / frame.h,
        legend.boxed ? "white" : "none", theme_.tick_size,
        rows > 1 ? fmt::format("transpose legend,legend columns={}", rows)
                 : std::string("legend columns=-1"));
  }

  /// What stands for an entry, as the options of an image.
  std::string legend_image(const LegendEntry& entry) const {
    const SeriesStyle style = theme_.style_of(entry.tone);
    const std::string colour = tex_colour(style.colour);
    const std::string marker = tex_marker(style, theme_.marker_radius);
    switch (entry.symbol) {
      case Symbol::line:
        return line_style(style, entry.solid) + ",no marks";
      case Symbol::marked_line:
        return line_style(style, entry.solid) + "," + marker;
      case Symbol::marker:
        return fmt::format("only marks,color={},{}", colour, marker);
      case Symbol::patch:
        return "area legend,draw=none,fill=" + colour;
      case Symbol::region:
        return fmt::format("area legend,draw={0},draw opacity=0.4,fill={0},fill opacity={1:g}",
                           colour, entry.opacity);
      case Symbol::outline:
        return "area legend,fill=none,draw=" + colour;
      case Symbol::masked:
        return fmt::format("area legend,draw={},fill={}", tex_colour(theme_.muted),
                           tex_colour(theme_.masked));
    }
    return {};
  }

  void colour_bar(const Panel& panel, const ColourBarLayout& bar) {
    AxisLayout axis;
    axis.scale = bar.scale;
    axis.ticks = bar.ticks;
    const Rect& r = bar.rect;
    const Axis& spec = panel.colour->axis;
    out_ += fmt::format(
        "\\begin{{axis}}[at={{({:.2f}pt,{:.2f}pt)}},anchor=south west,scale only "
        "axis,width={:.2f}pt,"
        "height={:.2f}pt,xmin=0,xmax=1,xtick=\\empty,\n  {}\n  tick align=outside,tick pos=right,"
        "yticklabel pos=right,axis on top,minor tick num=0,major tick length={:.1f}pt]\n",
        r.x, layout_.size.h - r.bottom(), r.w, r.h, axis_options('y', spec, axis, r),
        theme_.tick_length);
    Image ramp{1, 256, {}};
    for (int i = 255; i >= 0; --i) {
      const Colour c = colour_at(panel.colour->map, i / 255.0);
      ramp.rgba.insert(ramp.rgba.end(), {c.r, c.g, c.b, 255});
    }
    const std::string name = fmt::format("{}-{}.png", stem_, files_.size() + 1);
    files_.push_back({name, encode_png(ramp)});
    out_ += fmt::format(
        "\\node[anchor=south west,inner sep=0pt] at (axis description cs:0,0) "
        "{{\\includegraphics[width={:.2f}pt,height={:.2f}pt]{{{}}}}};\n\\end{{axis}}\n",
        r.w, r.h, name);
  }

  const Figure& figure_;
  const Layout& layout_;
  const Theme& theme_;
  std::string stem_;
  std::string out_;
  std::vector<OutputFile> files_;
  std::size_t panel_ = 0;
};

}  // namespace

std::vector<OutputFile> pgfplots_files(const Figure& figure, const Layout& layout,
                                       const Theme& theme, const std::string& stem) {
  return PgfWriter(figure, layout, theme, stem).write();
}

}  // namespace kvscope
