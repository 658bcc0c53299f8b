#include "gui/panels/attention_map_view.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/plot/scale.hpp"
#include "core/base/escape.hpp"
#include "core/base/number_text.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

namespace {

constexpr float kBarWidth = 12.0f;  // points
constexpr float kBarLabels = 62.0f;
constexpr float kTick = 4.0f;
constexpr float kTokenText = 68.0f;

ImU32 tinted(plot::Colour colour, double alpha) {
  return packed(plot::with_alpha(colour, alpha));
}

ImVec2 text_size(ImFont* font, const std::string& text) {
  return font->CalcTextSizeA(font->FontSize, FLT_MAX, 0.0f, text.data(), text.data() + text.size());
}

void text_at(ImDrawList& list, ImFont* font, ImVec2 at, ImU32 colour, const std::string& text) {
  list.AddText(font, font->FontSize, {std::round(at.x), std::round(at.y)}, colour, text.data(),
               text.data() + text.size());
}

/// Ticks of an axis of positions.
std::vector<plot::Tick> position_ticks(double from, double to, double pixels, double spacing) {
  plot::Axis axis;
  axis.whole_numbers = true;
  return plot::choose_ticks(axis, {from, to}, std::max(2, static_cast<int>(pixels / spacing)));
}

/// What stands beside the colour bar: places in [0, 1] and words.
std::vector<plot::Tick> bar_ticks(const MapColours& colours, int n_wanted) {
  std::vector<plot::Tick> ticks;
  if (colours.kind() == MapScaleKind::percentile) {
    for (double u : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      ticks.push_back({u, number_text(colours.weight_at(u), 3)});
    }
    return ticks;
  }
  plot::Axis axis;
  if (colours.kind() == MapScaleKind::log) axis.scale = plot::ScaleKind::log10;
  for (const plot::Tick& tick : plot::choose_ticks(axis, colours.range(), n_wanted)) {
    if (tick.at < colours.range().low * (1.0 - 1e-9) ||
        tick.at > colours.range().high * (1.0 + 1e-9)) {
      continue;
    }
    ticks.push_back({colours.unit(tick.at), number_text(tick.at, 3)});
  }
  return ticks;
}

}  // namespace

ImVec2 AttentionMapView::screen(const MapView& view, MapPoint point) const {
  return {low_.x + static_cast<float>(view.x_of(point.key)),
          low_.y + static_cast<float>(view.y_of(point.query))};
}

void AttentionMapView::begin(const PanelContext& context, MapView& view) {
  const Look& look = context.look;
  ImFont* small = context.fonts.small();
  area_low_ = ImGui::GetCursorScreenPos();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  area_high_ = {area_low_.x + room.x, area_low_.y + room.y};
  const float letters = small->FontSize;
  const auto document = context.session.document();
  // A fitted map shrinks by the room of its texts: they stay until it is smaller than that, or
  // they would come and go for ever.
  const double needed = (text_room_ > 0.0f ? 0.6 : 0.9) * static_cast<double>(letters);
  const bool shows_texts = document && document->has_text() &&
                           1.0 / view.tokens_per_pixel() >= needed && room.x > look.px(420) &&
                           room.y > look.px(320);
  const float room_before = std::exchange(text_room_, shows_texts ? look.px(kTokenText) : 0.0f);
  const float left = text_size(small, "000000").x + look.px(kTick + 4) + letters + text_room_;
  const float below = 3 * letters + look.px(kTick + 8) + text_room_;
  low_ = {std::round(area_low_.x + left), std::round(area_low_.y + look.px(2))};
  high_ = {std::round(
               std::max(low_.x + look.px(60), area_high_.x - look.px(kBarWidth + kBarLabels + 12))),
           std::round(std::max(low_.y + look.px(60), area_high_.y - below))};
  const MapPoint corner = view.at(0.0, 0.0);
  view.set_size(static_cast<double>(high_.x - low_.x), static_cast<double>(high_.y - low_.y));
  // the texts take room from the map: what is seen stays where it is on the screen
  const double moved = static_cast<double>(text_room_ - room_before);
  const bool keeps_place = std::exchange(has_zoomed_, false) && !view.is_fitted();
  if (moved != 0.0 && keeps_place)
    view.pan(-moved - view.x_of(corner.key), -view.y_of(corner.query));
  if (view.is_fitted()) {  // the whole map: no frame around nothing
    const float side = std::min(high_.x - low_.x, high_.y - low_.y);
    high_ = {low_.x + side, low_.y + side};
  }
}

MapGesture AttentionMapView::draw(const PanelContext& context, MapView& view,
                                  const MapScene& scene) {
  MapGesture gesture;
  // the corner's item comes first: what lies on top gets the mouse
  if (const auto small = corner(context, view, scene)) read_corner(*small, view, scene, gesture);
  ImGui::SetCursorScreenPos(low_);
  ImGui::InvisibleButton("map", {high_.x - low_.x, high_.y - low_.y});
  read_mouse(context, view, gesture);
  if (ImGui::IsItemHovered()) {
    claim_arrows();
    read_keys(view, scene, gesture);
  }

  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.PushClipRect(low_, high_, true);
  draw_ground(context, view, scene);
  draw_tiles(context, view, scene);
  draw_brush(context, view, scene);
  draw_selection(context, view, scene);
  draw_bookmarks(context, view, scene);
  if (band_from_) {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    list.AddRectFilled(*band_from_, mouse, tinted(context.look.accent, 0.15));
    list.AddRect(*band_from_, mouse, packed(context.look.accent));
  }
  draw_corner(context, view, scene);
  list.PopClipRect();
  list.AddRect({low_.x - 1, low_.y - 1}, {high_.x + 1, high_.y + 1}, packed(context.look.line));
  draw_axes(context, view);
  draw_words(context, scene);
  gesture.bar_clicked = draw_bar(context, scene);
  return gesture;
}

// ---- drawing ----

void AttentionMapView::draw_ground(const PanelContext& context, const MapView& view,
                                   const MapScene& scene) const {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const auto n = static_cast<double>(scene.grid.n_tokens);
  const plot::Theme theme = plot::make_theme(plot::Venue::slide, context.look.ground);
  list.AddRectFilled(low_, high_, packed(context.look.surface));
  list.AddRectFilled(screen(view, {0.0, 0.0}), screen(view, {n, n}), packed(theme.masked));
  // queries that are not in the trace: hatched, since they are not masked but unknown
  const TokenRange rows = scene.grid.rows;
  for (const TokenRange gap :
       {TokenRange{0, rows.begin}, TokenRange{rows.end, scene.grid.n_tokens}}) {
    if (gap.size() <= 0) continue;
    const ImVec2 from = screen(view, {static_cast<double>(gap.begin), 0.0});
    const ImVec2 to = screen(view, {static_cast<double>(gap.end), n});
    hatch(context, from, to);
  }
}

/// What is not known, as far as it is in sight.
void AttentionMapView::hatch(const PanelContext& context, ImVec2 from, ImVec2 to) const {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 a{std::max(from.x, low_.x), std::max(from.y, low_.y)};
  const ImVec2 b{std::min(to.x, high_.x), std::min(to.y, high_.y)};
  if (a.x >= b.x || a.y >= b.y) return;
  list.PushClipRect(a, b, true);
  const float step = context.look.px(7);
  for (float x = a.x - (b.y - a.y); x < b.x; x += step) {
    list.AddLine({x, b.y}, {x + (b.y - a.y), a.y}, tinted(context.look.muted, 0.35));
  }
  list.PopClipRect();
}

void AttentionMapView::draw_tiles(const PanelContext& context, const MapView& view,
                                  const MapScene& scene) const {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const auto n = static_cast<double>(scene.grid.n_tokens);
  // the last cells may reach beyond the context: cut
  list.PushClipRect(screen(view, {0.0, 0.0}), screen(view, {n, n}), true);
  for (const MapTile* tile : scene.picture.tiles) {
    const Texture* texture = scene.textures.find(tile->id);
    if (texture == nullptr) continue;
    const double side = static_cast<double>(Index{1} << tile->id.level);
    const double first = static_cast<double>(kTileCells) * side;
    const MapPoint from{static_cast<double>(tile->id.row) * first,
                        static_cast<double>(tile->id.col) * first};
    const MapPoint to{from.query + static_cast<double>(tile->n_rows) * side,
                      from.key + static_cast<double>(tile->n_cols) * side};
    list.AddImage(texture->id(), screen(view, from), screen(view, to));
  }
  if (scene.overlay != nullptr) {
    list.AddImage(scene.overlay->id(), screen(view, scene.overlay_part.from),
                  screen(view, scene.overlay_part.to));
  }
  if (scene.hides_kept) {
    // Where the layer does not reach, or is not there yet, kept attention would look lost.
    const MapRect part = scene.overlay != nullptr ? scene.overlay_part : MapRect{};
    const plot::Theme theme = plot::make_theme(plot::Venue::slide, context.look.ground);
    const double top = std::clamp(part.from.query, 0.0, n);
    const double bottom = std::clamp(part.to.query, 0.0, n);
    const auto cover = [&](MapPoint from, MapPoint to) {
      const ImVec2 a = screen(view, from);
      const ImVec2 b = screen(view, to);
      if (a.x >= b.x || a.y >= b.y) return;
      list.AddRectFilled(a, b, packed(theme.masked));
      hatch(context, a, b);
    };
    cover({0.0, 0.0}, {top, n});
    cover({bottom, 0.0}, {n, n});
    cover({top, 0.0}, {bottom, part.from.key});
    cover({top, part.to.key}, {bottom, n});
  }
  list.PopClipRect();
}

void AttentionMapView::draw_selection(const PanelContext& context, const MapView& view,
                                      const MapScene& scene) const {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const bool wide = view.tokens_per_pixel() < 0.2;  // a token is five pixels: two lines around it
  const ImU32 halo = tinted(context.look.surface, 0.8);
  const auto n = static_cast<double>(scene.grid.n_tokens);
  const ImVec2 end = screen(view, {n, n});
  const float right = std::min(high_.x, end.x);
  const float bottom = std::min(high_.y, end.y);
  const auto draw = [&](const Pointed& at, ImU32 colour, float width) {
    const auto line = [&](ImVec2 a, ImVec2 b) {
      list.AddLine(a, b, halo, 2.0f + width);
      list.AddLine(a, b, colour, width);
    };
    const auto horizontal = [&](double query) {
      const float y = std::floor(screen(view, {query, 0.0}).y);
      line({low_.x, y}, {right, y});
    };
    const auto vertical = [&](double key) {
      const float x = std::floor(screen(view, {0.0, key}).x);
      line({x, low_.y}, {x, bottom});
    };
    if (at.query) {
      const auto query = static_cast<double>(*at.query);
      horizontal(wide ? query : query + 0.5);
      if (wide) horizontal(query + 1.0);
    }
    if (at.keys.size() > 0) {
      const bool has_two = wide || at.keys.size() > 1;
      vertical(static_cast<double>(at.keys.begin) + (has_two ? 0.0 : 0.5));
      if (has_two) vertical(static_cast<double>(at.keys.end));
    }
  };
  draw(pointed(), packed(context.look.ink), 1.0f);
  Pointed selected = scene.key ? Pointed::at_key(*scene.key) : Pointed{};
  selected.query = scene.query;
  draw(selected, packed(context.look.accent), 2.0f);
}

/// Rows and columns of a lasso: bars at the edges, and light, the less the more of them there are.
void AttentionMapView::draw_brush(const PanelContext& context, const MapView& view,
                                  const MapScene& scene) const {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const float edge = context.look.px(4);
  const auto n = static_cast<double>(scene.grid.n_tokens);
  const auto bars = [&](const std::vector<Index>& positions, bool are_queries) {
    const double rest = 1.0 - static_cast<double>(positions.size()) / n;
    const ImU32 light = tinted(context.look.accent, 0.3 * rest * rest * rest);
    const auto at = [&](Index pos) {
      const ImVec2 place = screen(view, {static_cast<double>(pos), static_cast<double>(pos)});
      return std::floor(are_queries ? place.y : place.x);
    };
    const float low = are_queries ? low_.y : low_.x;
    const float high = are_queries ? high_.y : high_.x;
    const auto fill = [&](float from, float to, float depth, ImU32 colour) {
      are_queries ? list.AddRectFilled({low_.x, from}, {low_.x + depth, to}, colour)
                  : list.AddRectFilled({from, low_.y}, {to, low_.y + depth}, colour);
    };
    float drawn = low;  // several positions lie on one pixel
    for (const Index pos : positions) {
      const float from = std::max(drawn, at(pos));
      const float to = std::min(std::max(at(pos) + 1.0f, at(pos + 1)), high);
      if (to <= from) continue;
      fill(from, to, are_queries ? high_.x - low_.x : high_.y - low_.y, light);
      fill(from, to, edge, packed(context.look.accent));
      drawn = to;
    }
  };
  bars(context.session.brush().queries, /*are_queries=*/true);
  bars(context.session.brush().keys, /*are_queries=*/false);
}

/// A ring at a bookmark's pair, or at the edge of its row if it has no key, with its number.
void AttentionMapView::draw_bookmarks(const PanelContext& context, const MapView& view,
                                      const MapScene& scene) const {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  ImFont* small = context.fonts.small();
  const ImU32 accent = packed(context.look.accent);
  const ImU32 halo = tinted(context.look.surface, 0.8);
  const float radius = context.look.px(5);
  list.PushClipRect(low_, high_, true);
  for (const Bookmark& mark : scene.bookmarks) {
    const double query = static_cast<double>(mark.query) + 0.5;
    ImVec2 at = screen(view, {query, mark.key ? static_cast<double>(*mark.key) + 0.5 : 0.0});
    if (!mark.key) at.x = low_.x + radius + 1.0f;
    list.AddCircle(at, radius, halo, 0, 4.0f);
    list.AddCircle(at, radius, accent, 0, 2.0f);
    const std::string& words = mark.note;
    if (words.empty()) continue;
    const std::string shown = shortened(clean_text(words.substr(0, words.find('\n'))), 40);
    const ImVec2 size = small->CalcTextSizeA(small->FontSize, 1e6f, 0.0f, shown.c_str());
    ImVec2 to{at.x + 1.6f * radius, at.y - 0.5f * size.y};
    if (to.x + size.x > high_.x) to.x = at.x - 1.6f * radius - size.x;
    list.AddRectFilled({to.x - 2, to.y}, {to.x + size.x + 2, to.y + size.y}, halo);
    list.AddText(small, small->FontSize, to, accent, shown.c_str());
  }
  list.PopClipRect();
}

void AttentionMapView::draw_axes(const PanelContext& context, const MapView& view) const {
  const Look& look = context.look;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  ImFont* small = context.fonts.small();
  const ImU32 ink = packed(look.muted);
  const ImU32 faint = tinted(look.line, 0.6);
  const TokenRange keys = view.keys();
  const TokenRange queries = view.queries();
  const float tick = look.px(kTick);
  // a position is written at the middle of its row or column
  const double wide = view.tokens_per_pixel() < 1.0 ? 0.5 : 0.0;
  for (const plot::Tick& t :
       position_ticks(static_cast<double>(keys.begin), static_cast<double>(keys.end),
                      keys.size() / view.tokens_per_pixel(), static_cast<double>(look.px(90)))) {
    const float x = low_.x + static_cast<float>(view.x_of(t.at + wide));
    if (x < low_.x || x > high_.x) continue;
    list.AddLine({x, high_.y + 1}, {x, high_.y + 1 + tick + text_room_},
                 text_room_ > 0 ? faint : ink);
    const ImVec2 size = text_size(small, t.label);
    text_at(list, small,
            {std::clamp(x - size.x / 2, area_low_.x, area_high_.x - size.x),
             high_.y + tick + look.px(2) + text_room_},
            ink, t.label);
  }
  for (const plot::Tick& t :
       position_ticks(static_cast<double>(queries.begin), static_cast<double>(queries.end),
                      queries.size() / view.tokens_per_pixel(), static_cast<double>(look.px(60)))) {
    const float y = low_.y + static_cast<float>(view.y_of(t.at + wide));
    if (y < low_.y || y > high_.y) continue;
    list.AddLine({low_.x - 1 - tick - text_room_, y}, {low_.x - 1, y},
                 text_room_ > 0 ? faint : ink);
    const ImVec2 size = text_size(small, t.label);
    text_at(list, small,
            {low_.x - tick - look.px(3) - size.x - text_room_,
             std::clamp(y - size.y / 2, area_low_.y, high_.y - size.y / 2)},
            ink, t.label);
  }
  const std::string key_words = "key position";
  const ImVec2 key_size = text_size(small, key_words);
  // words stand at the middle of the map's own part
  const float map_right = std::clamp(
      low_.x + static_cast<float>(view.x_of(static_cast<double>(keys.end))), low_.x, high_.x);
  const float map_bottom = std::clamp(
      low_.y + static_cast<float>(view.y_of(static_cast<double>(queries.end))), low_.y, high_.y);
  text_at(list, small,
          {std::max(low_.x, (low_.x + map_right - key_size.x) / 2),
           high_.y + tick + look.px(3) + small->FontSize + text_room_},
          ink, key_words);
  if (text_room_ > 0.0f) draw_token_texts(context, view);
  // "query position" upwards: letters are turned by turning their corners
  const std::string query_words = "query position";
  const ImVec2 size = text_size(small, query_words);
  const int first = list.VtxBuffer.Size;
  const ImVec2 at{std::round(area_low_.x), std::round((low_.y + map_bottom + size.x) / 2)};
  list.PushClipRectFullScreen();
  text_at(list, small, at, ink, query_words);
  list.PopClipRect();
  for (int i = first; i < list.VtxBuffer.Size; ++i) {
    ImVec2& corner = list.VtxBuffer[i].pos;
    corner = {at.x + (corner.y - at.y), at.y - (corner.x - at.x)};
  }
}

void AttentionMapView::draw_words(const PanelContext& context, const MapScene& scene) const {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  ImFont* small = context.fonts.small();
  const ImU32 ink = packed(context.look.muted);
  const float y = area_high_.y - small->FontSize - context.look.px(1);
  text_at(list, small, {low_.x, y}, ink, scene.left_words);
  const float width = text_size(small, scene.right_words).x;
  const float right = area_high_.x - width;
  if (right > low_.x + text_size(small, scene.left_words).x + context.look.px(12)) {
    text_at(list, small, {right, y}, ink, scene.right_words);
  }
}

bool AttentionMapView::draw_bar(const PanelContext& context, const MapScene& scene) const {
  const Look& look = context.look;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  ImFont* small = context.fonts.small();
  const ImU32 ink = packed(look.muted);
  const float line = small->FontSize + look.px(3);
  const float left = high_.x + look.px(12);
  const float top = low_.y + line + look.px(2);
  const plot::Theme theme = plot::make_theme(plot::Venue::slide, look.ground);
  const bool has_gaps = scene.grid.rows.size() < scene.grid.n_tokens;
  const int n_swatches =
      1 + (has_gaps ? 1 : 0) + (scene.overlay != nullptr ? 1 : 0) + (scene.hides_kept ? 1 : 0);
  const float bottom = high_.y - static_cast<float>(n_swatches) * line - look.px(8);
  text_at(list, small, {left, low_.y}, ink, scene.bar_title);
  const float right = left + look.px(kBarWidth);
  if (bottom - top > look.px(20)) {
    constexpr int kSteps = 64;
    for (int i = 0; i < kSteps; ++i) {
      const float y1 = bottom - (bottom - top) * static_cast<float>(i) / kSteps;
      const float y0 = bottom - (bottom - top) * static_cast<float>(i + 1) / kSteps;
      const ImU32 below =
          packed(plot::colour_at(plot::ColourMap::sequential, static_cast<double>(i) / kSteps));
      const ImU32 above =
          packed(plot::colour_at(plot::ColourMap::sequential, static_cast<double>(i + 1) / kSteps));
      list.AddRectFilledMultiColor({left, y0}, {right, y1}, above, above, below, below);
    }
    list.AddRect({left - 1, top - 1}, {right + 1, bottom + 1}, packed(look.line));
    const int wanted = std::max(2, static_cast<int>((bottom - top) / look.px(44)));
    for (const plot::Tick& t : bar_ticks(scene.colours, wanted)) {
      const float y = bottom - static_cast<float>(t.at) * (bottom - top);
      list.AddLine({right + 1, y}, {right + 1 + look.px(3), y}, ink);
      text_at(list, small, {right + look.px(6), y - small->FontSize / 2}, ink, t.label);
    }
  }
  // what has no weight to show, and the layer above
  float y = high_.y - static_cast<float>(n_swatches) * line;
  const auto swatch = [&](plot::Colour fill, bool hatched, const std::string& words) {
    const ImVec2 a{left, y + look.px(1)};
    const ImVec2 b{right, y + look.px(1) + small->FontSize - look.px(2)};
    list.AddRectFilled(a, b, packed(fill));
    if (hatched) list.AddLine({a.x, b.y}, {b.x, a.y}, packed(look.muted));
    list.AddRect(a, b, packed(look.line));
    text_at(list, small, {right + look.px(6), y}, ink, words);
    y += line;
  };
  swatch(theme.masked, false, "masked");
  if (has_gaps) swatch(theme.masked, true, "no query");
  if (scene.overlay != nullptr && !scene.hides_kept) swatch(theme.highlight, false, "kept");
  if (scene.overlay != nullptr && scene.hides_kept) swatch(look.surface, false, "kept");
  if (scene.hides_kept) swatch(theme.masked, true, "unknown");
  ImGui::SetCursorScreenPos({left - look.px(2), low_.y});
  ImGui::InvisibleButton("bar",
                         {std::max(1.0f, area_high_.x - left), std::max(1.0f, high_.y - low_.y)});
  if (ImGui::IsItemHovered()) ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
  return ImGui::IsItemClicked();
}

/// Token texts on the axes of a map that is zoomed far in.
void AttentionMapView::draw_token_texts(const PanelContext& context, const MapView& view) const {
  const auto document = context.session.document();
  if (!document) return;
  const Look& look = context.look;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  ImGui::PushFont(context.fonts.small());
  const float letters = ImGui::GetFontSize();
  const Selection& selection = context.session.selection();
  const float gap = look.px(5);
  const float room = text_room_ - gap;
  const auto ink_of = [&](bool is_selected) {
    return packed(is_selected ? look.accent : look.ink);
  };
  const TokenRange queries = view.queries();
  for (Index query = queries.begin; query < queries.end; ++query) {
    const float y = low_.y + static_cast<float>(view.y_of(static_cast<double>(query) + 0.5));
    if (y < low_.y || y > high_.y) continue;
    const std::string text = fitting(document->token_text(query), room);
    list.AddText({std::round(low_.x - gap - text_size(ImGui::GetFont(), text).x),
                  std::round(y - letters / 2)},
                 ink_of(query == selection.query), text.c_str());
  }
  const TokenRange keys = view.keys();
  list.PushClipRectFullScreen();  // letters are turned by turning their corners
  for (Index key = keys.begin; key < keys.end; ++key) {
    const float x = low_.x + static_cast<float>(view.x_of(static_cast<double>(key) + 0.5));
    if (x < low_.x || x > high_.x) continue;
    const std::string text = fitting(document->token_text(key), room);
    // Upwards, ending at the axis.
    const ImVec2 at{std::round(x - letters / 2),
                    std::round(high_.y + gap + text_size(ImGui::GetFont(), text).x)};
    const int first = list.VtxBuffer.Size;
    list.AddText(at, ink_of(selection.key == key), text.c_str());
    for (int i = first; i < list.VtxBuffer.Size; ++i) {
      ImVec2& corner = list.VtxBuffer[i].pos;
      corner = {at.x + (corner.y - at.y), at.y - (corner.x - at.x)};
    }
  }
  list.PopClipRect();
  ImGui::PopFont();
}

}  // namespace kvscope::gui
