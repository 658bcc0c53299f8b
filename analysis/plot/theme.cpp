#include "analysis/plot/theme.hpp"

#include <algorithm>

namespace kvscope::plot {

namespace {

/// After Okabe and Ito, "Color Universal Design" (2008), any two at least 19 apart (CIE 1976);
/// black is kept for references, yellow is too light for lines on paper.
std::vector<Colour> series_colours(Ground ground) {
  std::vector<Colour> colours;
  const std::uint32_t blue = ground == Ground::light ? 0x0060A8 : 0x2F7FE0;
  const std::uint32_t sky = ground == Ground::light ? 0x3B96CE : 0x56B4E9;  // to be seen on paper
  for (std::uint32_t rgb : {blue, 0xD55E00U, 0x009E73U, 0xCC79A7U, 0xE69F00U, sky})
    colours.push_back(colour_from_rgb(rgb));
  // beyond Okabe and Ito's: grey for controls, then what is left between them, darker or duller
  constexpr std::uint32_t kMore[2][6] = {
      {0x7A7A7A, 0x7A4A21, 0x882255, 0x8A8A00, 0x332288, 0x117766},
      {0xB0B0B0, 0xF0E442, 0xFFB8D8, 0xA8A83A, 0x8E86E8, 0x66CDAA}};
  for (const std::uint32_t rgb : kMore[ground == Ground::light ? 0 : 1])
    colours.push_back(colour_from_rgb(rgb));
  return colours;
}

struct Widths {
  double column;  // inches
  double full;
  double letters;  // points
};

Widths widths_of(Venue venue) {
  static constexpr Widths kWidths[] = {{3.03, 6.30, 8.0}, {3.25, 6.75, 8.0}, {5.5, 5.5, 8.0},
                                       {5.5, 5.5, 8.0},   {3.5, 7.16, 8.0},  {10.0, 10.0, 16.0}};
  return kWidths[static_cast<std::size_t>(venue)];
}

}  // namespace

SeriesStyle Theme::style_of(const Tone& tone) const {
  constexpr int kMarkers = 9;
  constexpr int kDashes = 4;
  switch (tone.role) {
    case Role::reference:  // 0: the oracle, 1: full attention, then further oracles and budgets
      return {ink, static_cast<MarkerShape>(tone.slot % kMarkers),
              tone.slot == 1 ? Dash::dotted : static_cast<Dash>(1 + tone.slot % 3)};
    case Role::highlight:
      return {highlight, MarkerShape::star, Dash::solid};
    case Role::neutral:
      return {neutral, MarkerShape::circle, Dash::solid};
    case Role::ordered: {
      const double unit = static_cast<double>(tone.slot) / std::max(1, tone.n - 1);
      return {colour_at(ColourMap::sequential,
                        ordered.low + (ordered.high - ordered.low) * std::clamp(unit, 0.0, 1.0)),
              static_cast<MarkerShape>(tone.slot % kMarkers), Dash::solid};
    }
    case Role::series:
      break;
  }
  const int n = static_cast<int>(series.size());
  const int slot = tone.slot < 0 ? 0 : tone.slot;
  return {series[static_cast<std::size_t>(slot % n)],
          static_cast<MarkerShape>((slot + tone.source) % kMarkers),
          static_cast<Dash>((slot + 2 * (slot / n) + tone.source) % kDashes)};
}

Colour Theme::point_colour(ColourMap map, double unit) const {
  const double first = map == ColourMap::sequential ? first_of_points : 0.0;
  return colour_at(map, first + (1.0 - first) * std::clamp(unit, 0.0, 1.0));
}

Theme make_theme(Venue venue, Ground ground) {
  const Widths widths = widths_of(venue);
  Theme theme;
  theme.column_width = 72.0 * widths.column;
  theme.full_width = 72.0 * widths.full;
  const double k = widths.letters / 8.0;
  theme.label_size = widths.letters;
  theme.title_size = widths.letters;
  theme.tick_size = 7.0 * k;
  for (double* length : {&theme.line_width, &theme.rule_width, &theme.grid_width,
                         &theme.marker_radius, &theme.tick_length, &theme.margin, &theme.gap}) {
    *length *= k;
  }
  const bool light = ground == Ground::light;
  theme.ground = colour_from_rgb(light ? 0xFFFFFF : 0x16181D);
  theme.ink = colour_from_rgb(light ? 0x1A1A1A : 0xE8E8E8);
  theme.muted = colour_from_rgb(light ? 0x5A5A5A : 0xA8A8A8);
  theme.grid = colour_from_rgb(light ? 0xE4E4E4 : 0x33363D);
  theme.masked = colour_from_rgb(light ? 0xE2E2E2 : 0x3C4048);
  theme.neutral = colour_from_rgb(light ? 0x949494 : 0x7C8088);
  theme.highlight = colour_from_rgb(0xD81B60);  // apart from every series and both colour maps
  theme.series = series_colours(ground);
  theme.first_of_points = light ? 0.0 : 0.15;
  theme.ordered = light ? Range{0.0, 0.58} : Range{0.32, 1.0};
  return theme;
}

}  // namespace kvscope::plot
