#include "gui/render/cloud_keys.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/plot/rich_text.hpp"
#include "analysis/plot/scale.hpp"
#include "gui/render/colour.hpp"
#include "gui/render/marker_stamp.hpp"

namespace kvscope::gui {

namespace {

/// Of a label in secondary size, on one line.
ImVec2 extent_of(const KeyPlace& place, const std::string& label) {
  ImFont* font = place.fonts.small();
  ImVec2 extent{0.0f, font->FontSize};
  for (const plot::TextRun& run : plot::parse_rich(label)) {
    const float size = font->FontSize * static_cast<float>(run.scale);
    extent.x += font->CalcTextSizeA(size, FLT_MAX, 0.0f, run.text.c_str()).x;
  }
  return extent;
}

/// Words in secondary size with a soft ground behind, so that points do not drown them.
void draw_words(const KeyPlace& place, ImVec2 at, const std::string& label, plot::Colour colour) {
  place.fonts.require(plot::plain_text(label));
  ImFont* font = place.fonts.small();
  const ImVec2 extent = extent_of(place, label);
  at = {std::floor(at.x), std::floor(at.y)};
  const float room = place.look.px(2);
  place.list.AddRectFilled({at.x - room, at.y}, {at.x + extent.x + room, at.y + extent.y},
                           packed(plot::with_alpha(place.look.surface, 0.72)), place.look.px(2));
  for (const plot::TextRun& run : plot::parse_rich(label)) {
    const auto scale = static_cast<float>(run.scale);
    const float lower =
        font->Ascent * (1.0f - scale) - font->FontSize * static_cast<float>(run.rise);
    place.list.AddText(font, font->FontSize * scale, {at.x, at.y + lower}, packed(colour),
                       run.text.c_str());
    at.x += font->CalcTextSizeA(font->FontSize * scale, FLT_MAX, 0.0f, run.text.c_str()).x;
  }
}

float bar_thickness(const KeyPlace& place) {
  return place.look.px(9);
}

}  // namespace

float bar_width(const KeyPlace& place) {
  return bar_thickness(place) + extent_of(place, "0.0001").x + place.look.px(6);
}

float entries_height(const KeyPlace& place) {
  return extent_of(place, "x").y * 1.25f;
}

void draw_entries(const KeyPlace& place, std::span<const KeyEntry> entries) {
  const float line = entries_height(place);
  const float radius = 0.28f * line;
  ImVec2 at = place.low;
  for (const KeyEntry& entry : entries) {
    const float width = 2.8f * radius + extent_of(place, entry.label).x;
    if (at.x > place.low.x && at.x + width > place.high.x) {
      at = {place.low.x, at.y + line};
    }
    if (at.y + line > place.high.y) return;
    MarkerStamp(entry.marker, static_cast<double>(radius))
        .draw(place.list, {at.x + radius, at.y + 0.4f * line}, packed(entry.colour));
    draw_words(place, {at.x + 2.8f * radius, at.y}, entry.label, place.look.ink);
    at.x += width + 1.2f * line;
  }
}

void draw_colour_bar(const KeyPlace& place, const plot::ColourAxis& axis) {
  const Look& look = place.look;
  const std::string& label = axis.axis.label;
  const ImVec2 words = extent_of(place, label);
  const float thickness = bar_thickness(place);
  const float x = std::floor(place.high.x - bar_width(place));
  const float room = place.high.y - place.low.y;
  const float height = std::floor(std::min(look.px(180), 0.6f * room));
  if (height < look.px(40) || x < place.low.x + look.px(60)) return;
  const float top = std::floor(place.low.y + 0.5f * (room - height));
  constexpr int kSteps = 64;
  const plot::Theme theme = plot::make_theme(plot::Venue::slide, look.ground);  // for its colours
  for (int i = 0; i < kSteps; ++i) {
    const float y0 = top + height * static_cast<float>(i) / kSteps;
    const float y1 = top + height * static_cast<float>(i + 1) / kSteps;
    const double unit = 1.0 - (static_cast<double>(i) + 0.5) / kSteps;
    place.list.AddRectFilled({x, std::floor(y0)}, {x + thickness, std::floor(y1)},
                             packed(theme.point_colour(axis.map, unit)));
  }
  const plot::Scale scale(axis.axis.scale, *axis.axis.range);
  for (const plot::Tick& tick : plot::choose_ticks(axis.axis, *axis.axis.range, 5)) {
    const double unit = scale.to_unit(tick.at);
    if (!(unit >= 0.0 && unit <= 1.0)) continue;
    const float y = std::floor(top + height * (1.0f - static_cast<float>(unit)));
    place.list.AddLine({x + thickness, y}, {x + thickness + look.px(3), y}, packed(look.muted));
    draw_words(place, {x + thickness + look.px(5), y - 0.5f * words.y}, tick.label, look.ink);
  }
  const float left = std::max(place.low.x, place.high.x - words.x);
  draw_words(place, {left, top - words.y - look.px(5)}, label, look.ink);
}

void draw_small_axes(const KeyPlace& place, const Orbit& orbit,
                     const std::array<std::string, 3>& labels) {
  const Look& look = place.look;
  const float length = look.px(34);
  const ImVec2 from{place.low.x + length + look.px(10), place.high.y - length - look.px(10)};
  if (from.y - length < place.low.y || from.x + length > place.high.x) return;
  const auto [right, up, toward] = orbit.axes();
  std::array<std::size_t, 3> order{0, 1, 2};  // far ones first
  std::ranges::sort(
      order, [&toward = toward](std::size_t a, std::size_t b) { return toward[a] < toward[b]; });
  for (const std::size_t c : order) {
    const ImVec2 to{from.x + length * static_cast<float>(right[c]),
                    from.y - length * static_cast<float>(up[c])};
    const double near = 0.45 + 0.55 * (0.5 + 0.5 * toward[c]);
    place.list.AddLine(from, to, packed(plot::with_alpha(look.ink, near)), look.px(1.5f));
    const std::string name = "PC" + std::to_string(c + 1);
    const ImVec2 extent = extent_of(place, name);
    draw_words(place,
               {to.x + look.px(7) * static_cast<float>(right[c]) - 0.5f * extent.x,
                to.y - look.px(7) * static_cast<float>(up[c]) - 0.5f * extent.y},
               name, plot::with_alpha(look.ink, near));
  }
  // How much each axis holds, to the right of them.
  const float line = extent_of(place, "x").y * 1.15f;
  float y = place.high.y - 3.0f * line;
  for (const std::string& label : labels) {
    draw_words(place, {from.x + length + look.px(26), y}, label, look.muted);
    y += line;
  }
}

}  // namespace kvscope::gui
