#include "gui/model/map/selected_layer.hpp"

#include <algorithm>
#include <cmath>

#include "gui/model/map/map_colours.hpp"

namespace kvscope::gui {

namespace {

constexpr double kLeastOpacity = 0.4;
constexpr Index kQueriesPerPixel = 8;

/// The pixels of one token, at least one; may lie outside.
struct Pixels {
  Index begin;
  Index end;
};
Pixels pixels_of(double from, double to) {
  const auto begin = static_cast<Index>(std::floor(from));
  return {begin, std::max(begin + 1, static_cast<Index>(std::floor(to)))};
}
Pixels cut(Pixels pixels, Index n) {
  return {std::clamp<Index>(pixels.begin, 0, n), std::clamp<Index>(pixels.end, 0, n)};
}

/// Covers a row of pixels up to the last key that its queries see.
void hatch_row(SelectedLayer& layer, const MapView& view, Index y, const Hatching& hatching) {
  constexpr Index kStep = 7;
  const double end = std::ceil(view.at(0.0, static_cast<double>(y + 1)).query);
  const Pixels seen = cut({0, static_cast<Index>(std::ceil(view.x_of(end)))}, layer.width);
  const std::uint32_t ground = rgba(hatching.ground);
  const std::uint32_t line = rgba(hatching.line);
  for (Index x = seen.begin; x < seen.end; ++x)
    layer.pixels[static_cast<std::size_t>(y * layer.width + x)] =
        (x + y) % kStep == 0 ? line : ground;
}

}  // namespace

SelectedLayer fold_selected(const MethodSelections& kept, const MapView& view, plot::Colour colour,
                            const std::optional<Hatching>& unmeasured) {
  SelectedLayer layer{.width = static_cast<Index>(std::ceil(view.width())),
                      .height = static_cast<Index>(std::ceil(view.height()))};
  layer.shown = {view.origin(),
                 view.at(static_cast<double>(layer.width), static_cast<double>(layer.height))};
  const auto width = static_cast<std::size_t>(layer.width);
  layer.pixels.assign(width * static_cast<std::size_t>(layer.height), 0);
  const auto columns = [&](Index key) {
    return cut(
        pixels_of(view.x_of(static_cast<double>(key)), view.x_of(static_cast<double>(key + 1))),
        layer.width);
  };

  std::vector<std::uint32_t> keys_in(width, 0);
  const TokenRange keys = view.keys();
  for (Index key = keys.begin; key < keys.end; ++key) {
    const Pixels own = columns(key);
    for (Index x = own.begin; x < own.end; ++x) ++keys_in[static_cast<std::size_t>(x)];
  }

  std::vector<std::uint32_t> hits(layer.pixels.size(), 0);
  std::vector<std::uint32_t> rows_in(static_cast<std::size_t>(layer.height), 0);
  std::vector<std::uint32_t> row_hits(width);
  const TokenRange queries = view.queries();
  const auto add_row = [&](const MethodSelections::Call& call, Index pos) {
    std::ranges::fill(row_hits, 0);
    const Index end = std::min(keys.end, pos + 1);
    const auto hit = [&](Index key) {
      const Pixels own = columns(key);
      for (Index x = own.begin; x < own.end; ++x) ++row_hits[static_cast<std::size_t>(x)];
    };
    if (call.selection.is_dense) {
      for (Index key = keys.begin; key < end; ++key) hit(key);
    } else {
      const auto of_row = call.selection.list(0, pos - call.tokens.begin).keys;
      const auto first = std::ranges::lower_bound(of_row, keys.begin);
      for (auto key = first; key != of_row.end() && *key < end; ++key) hit(*key);
    }
    const Pixels lines =
        cut(pixels_of(view.y_of(static_cast<double>(pos)), view.y_of(static_cast<double>(pos + 1))),
            layer.height);
    for (Index y = lines.begin; y < lines.end; ++y) {
      ++rows_in[static_cast<std::size_t>(y)];
      std::uint32_t* line = hits.data() + static_cast<std::size_t>(y) * width;
      for (std::size_t x = 0; x < width; ++x) line[x] += row_hits[x];
    }
  };
  const Index step = std::max<Index>(1, queries.size() / (kQueriesPerPixel * layer.height));
  for (const MethodSelections::Call& call : kept.layers.front().calls) {
    const TokenRange asked = overlap(call.tokens, queries);
    for (Index pos = asked.begin; pos < asked.end; pos += step) add_row(call, pos);
  }

  std::uint32_t shades[256];
  for (int i = 0; i < 256; ++i) {
    const double share = kLeastOpacity + (1.0 - kLeastOpacity) * i / 255.0;
    shades[i] = rgba(plot::with_alpha(colour, colour.alpha * share));
  }
  for (std::size_t y = 0; y < rows_in.size(); ++y) {
    if (rows_in[y] == 0) {
      if (unmeasured) hatch_row(layer, view, static_cast<Index>(y), *unmeasured);
      continue;
    }
    for (std::size_t x = 0; x < width; ++x) {
      const std::uint32_t n = hits[y * width + x];
      if (n == 0) continue;
      const double share = static_cast<double>(n) / (static_cast<double>(rows_in[y]) * keys_in[x]);
      layer.pixels[y * width + x] =
          shades[static_cast<std::size_t>(std::lround(255.0 * std::min(1.0, share)))];
    }
  }
  return layer;
}

}  // namespace kvscope::gui
