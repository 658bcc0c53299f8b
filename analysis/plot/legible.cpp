#include "analysis/plot/legible.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "analysis/plot/rich_text.hpp"
#include "core/base/error.hpp"
#include "core/base/lists.hpp"

namespace kvscope::plot {

namespace {

/// Titles that take more room than they are worth: panels below each other have wider ones.
bool has_tall_titles(const Figure& figure, const Layout& layout, const Theme& theme,
                     const TextMetrics& metrics) {
  constexpr std::size_t kMostLines = 3;
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    const double room = 1.05 * layout.panels[p].frame.w;
    if (wrap_rich(metrics, figure.panels[p].title, theme.title_size, room).size() > kMostLines)
      return true;
  }
  return false;
}

/// Why the figure cannot be read as it is laid out: frames of a few millimetres, titles that run
/// into each other, words that leave their panel. Empty if it can.
std::string why_illegible(const Figure& figure, const Layout& layout, const Theme& theme,
                          const TextMetrics& metrics) {
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    const Rect& frame = layout.panels[p].frame;
    // 22 mm at 8 pt; the cells of a small map, without numbers, can be seen in 17
    const bool is_small_map = std::all_of(
        figure.panels[p].marks.begin(), figure.panels[p].marks.end(), [](const Mark& mark) {
          const auto* map = std::get_if<HeatMap>(&mark);
          return map != nullptr && !map->print_values && map->n_cols <= 48;
        });
    const double least = (is_small_map ? 6.0 : 8.0) * theme.label_size;
    if (frame.w < least)
      return fmt::format("frames of {:.0f} mm, expected at least {:.0f}", frame.w * 25.4 / 72.0,
                         least * 25.4 / 72.0);
    const std::optional<LegendLayout>& legend = layout.panels[p].legend;
    if (figure.columns > 1 && legend && legend->frame.w > frame.w + theme.gap)
      return "a legend is wider than its panel";
    std::vector<std::tuple<double, double, double>> notes;  // place down and across, width
    for (const Mark& mark : figure.panels[p].marks) {
      const auto* note = std::get_if<Note>(&mark);
      if (note == nullptr) continue;
      double widest = 0.0;
      for (const std::string& line : split_words(note->text, '\n'))
        widest = std::max(widest, rich_width(metrics, line, theme.tick_size));
      if (widest > frame.w) return "words do not fit into their panel";
      notes.emplace_back(note->y, note->x * frame.w, widest);
    }
    std::ranges::sort(notes);
    for (std::size_t i = 1; i < notes.size(); ++i) {
      const auto& [y, x, width] = notes[i];
      const auto& [y_before, x_before, width_before] = notes[i - 1];
      if (y == y_before && x - x_before < 0.5 * (width + width_before))
        return "words run into each other";
    }
  }
  // titles stand centred over their frames: beside each other they must not touch
  std::vector<std::tuple<double, double, double>> spans;  // baseline, left, right
  for (const PlacedText& words : layout.words) {
    if (!words.is_title) continue;
    const double half = 0.5 * rich_width(metrics, words.text, words.style.size);
    if (words.at.x - half < -1.0 || words.at.x + half > layout.size.w + 1.0)
      return "a title is wider than the figure";
    spans.emplace_back(words.at.y, words.at.x - half, words.at.x + half);
  }
  std::ranges::sort(spans);
  for (std::size_t i = 1; i < spans.size(); ++i) {
    const auto& [y, left, right] = spans[i];
    const auto& [above, other_left, other_right] = spans[i - 1];
    if (std::abs(y - above) < 0.5 * theme.title_size && left < other_right + 2.0)
      return "titles run into each other";
  }
  return "";
}

}  // namespace

Layout legible_layout(Figure& figure, double width, std::optional<double> height, Columns columns,
                      const Theme& theme, const TextMetrics& metrics) {
  const bool asked = columns == Columns::as_asked;
  const auto n_panels = static_cast<int>(figure.panels.size());
  figure.columns = std::clamp(figure.columns, 1, std::max(1, n_panels));
  for (;; --figure.columns) {
    const bool is_last = asked || figure.columns == 1;
    std::string reason;
    try {
      Layout layout = layout_figure(figure, width, height, theme, metrics);
      reason = why_illegible(figure, layout, theme, metrics);
      const bool is_crowded = !is_last && has_tall_titles(figure, layout, theme, metrics);
      if (reason.empty() && !is_crowded) return layout;
    } catch (const ConfigError&) {
      if (is_last) throw;
      continue;
    }
    if (!is_last) continue;
    throw ConfigError(
        "figure {}: {:.2f} in are too narrow for {} panel{} side by side "
        "({}); give it more --width{}",
        figure.name, width / 72.0, figure.columns, figure.columns == 1 ? "" : "s", reason,
        asked && n_panels > 1 && figure.columns > 1 ? " or fewer --columns" : "");
  }
}

}  // namespace kvscope::plot
