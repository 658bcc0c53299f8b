#include "gui/model/map/map_view.hpp"

#include <algorithm>
#include <cmath>

namespace kvscope::gui {

namespace {

constexpr double kClosest = 1.0 / 64.0;  // tokens per pixel

/// The origin of one side: a map that is smaller than the view lies at its axes.
double clamped_origin(double origin, double seen, double n_tokens) {
  if (seen >= n_tokens) return 0.0;
  return std::clamp(origin, 0.0, n_tokens - seen);
}

TokenRange inside(double from, double to, Index n_tokens) {
  const auto begin = static_cast<Index>(std::floor(std::max(0.0, from)));
  const auto end = static_cast<Index>(std::ceil(std::max(0.0, to)));
  return {std::min(begin, n_tokens), std::min(std::max(begin, end), n_tokens)};
}

}  // namespace

void MapView::set_map(Index n_tokens) {
  if (n_tokens == n_tokens_) return;
  n_tokens_ = n_tokens;
  fit();
}

void MapView::grow(Index n_tokens) {
  if (n_tokens == n_tokens_) return;
  const bool fitted = is_fitted();
  n_tokens_ = n_tokens;
  if (fitted) fit();
}

void MapView::set_size(double width, double height) {
  width = std::max(1.0, width);
  height = std::max(1.0, height);
  if (width == width_ && height == height_) return;
  const bool fitted = is_fitted();
  const MapPoint middle = at(width_ / 2.0, height_ / 2.0);
  width_ = width;
  height_ = height;
  if (fitted) {
    fit();
  } else {
    centre_on(middle);
  }
}

bool MapView::is_fitted() const {
  return scale_ >= fit_scale();
}

double MapView::fit_scale() const {
  return std::max(kClosest, static_cast<double>(n_tokens_) / std::min(width_, height_));
}

void MapView::clamp() {
  scale_ = std::clamp(scale_, kClosest, fit_scale());
  const auto n = static_cast<double>(n_tokens_);
  origin_.query = clamped_origin(origin_.query, height_ * scale_, n);
  origin_.key = clamped_origin(origin_.key, width_ * scale_, n);
}

void MapView::fit() {
  scale_ = fit_scale();
  clamp();
}

void MapView::fit(const MapRect& rect) {
  scale_ =
      std::max((rect.to.key - rect.from.key) / width_, (rect.to.query - rect.from.query) / height_);
  centre_on({(rect.from.query + rect.to.query) / 2.0, (rect.from.key + rect.to.key) / 2.0});
}

void MapView::fit_width() {
  const double query = at(0.0, height_ / 2.0).query;
  scale_ = static_cast<double>(n_tokens_) / width_;
  centre_on({query, static_cast<double>(n_tokens_) / 2.0});
}

void MapView::fit_queries(TokenRange rows) {
  const double key = at(width_ / 2.0, 0.0).key;
  scale_ = static_cast<double>(rows.size()) / height_;
  centre_on({static_cast<double>(rows.begin + rows.end) / 2.0, key});
}

void MapView::zoom(double factor, double x, double y) {
  if (!(factor > 0.0)) return;
  const MapPoint fixed = at(x, y);
  scale_ = std::clamp(scale_ / factor, kClosest, fit_scale());
  origin_ = {fixed.query - y * scale_, fixed.key - x * scale_};
  clamp();
}

void MapView::pan(double dx, double dy) {
  origin_.query -= dy * scale_;
  origin_.key -= dx * scale_;
  clamp();
}

void MapView::reveal(MapPair pair) {
  const auto moved = [](double origin, double seen, Index token) {
    const auto t = static_cast<double>(token);
    if (t < origin) return t - 0.1 * seen;
    if (t + 1.0 > origin + seen) return t + 1.0 - 0.9 * seen;
    return origin;
  };
  origin_.query = moved(origin_.query, height_ * scale_, pair.query);
  origin_.key = moved(origin_.key, width_ * scale_, pair.key);
  clamp();
}

void MapView::look_at(MapPoint centre, double tokens_per_pixel) {
  scale_ = tokens_per_pixel;
  centre_on(centre);
}

void MapView::centre_on(MapPoint point) {
  scale_ = std::clamp(scale_, kClosest, fit_scale());
  origin_ = {point.query - height_ * scale_ / 2.0, point.key - width_ * scale_ / 2.0};
  clamp();
}

MapRect MapView::shown() const {
  return {origin_, at(width_, height_)};
}

MapPoint MapView::at(double x, double y) const {
  return {origin_.query + y * scale_, origin_.key + x * scale_};
}

std::optional<MapPair> MapView::hit(double x, double y) const {
  if (x < 0.0 || y < 0.0 || x >= width_ || y >= height_) return std::nullopt;
  const MapPoint point = at(x, y);
  const MapPair pair{static_cast<Index>(std::floor(point.query)),
                     static_cast<Index>(std::floor(point.key))};
  if (pair.query < 0 || pair.key < 0 || pair.query >= n_tokens_ || pair.key >= n_tokens_) {
    return std::nullopt;
  }
  return pair;
}

int MapView::level() const {
  int level = 0;
  while (static_cast<double>(Index{1} << level) < scale_ * (1.0 - 1e-9)) ++level;
  return level;
}

TokenRange MapView::queries() const {
  const MapRect rect = shown();
  return inside(rect.from.query, rect.to.query, n_tokens_);
}

TokenRange MapView::keys() const {
  const MapRect rect = shown();
  return inside(rect.from.key, rect.to.key, n_tokens_);
}

std::vector<TileId> MapView::tiles(const MapGrid& grid, int level) const {
  std::vector<TileId> found;
  const TokenRange rows = queries();
  const TokenRange cols = keys();
  if (rows.size() == 0 || cols.size() == 0) return found;
  const Index side = kTileCells << level;
  for (Index row = rows.begin / side; row * side < rows.end; ++row) {
    for (Index col = cols.begin / side; col * side < cols.end; ++col) {
      if (grid.sees_anything({level, row, col})) found.push_back({level, row, col});
    }
  }
  const MapPoint middle = at(width_ / 2.0, height_ / 2.0);
  const auto distance = [&](TileId id) {
    const double half = static_cast<double>(side) / 2.0;
    const double dy = static_cast<double>(id.row * side) + half - middle.query;
    const double dx = static_cast<double>(id.col * side) + half - middle.key;
    return dx * dx + dy * dy;
  };
  std::ranges::stable_sort(found, [&](TileId a, TileId b) { return distance(a) < distance(b); });
  return found;
}

}  // namespace kvscope::gui
