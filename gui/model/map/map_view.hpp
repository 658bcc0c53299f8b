// Where somebody looks at an attention map: a rectangle of it, on so many pixels.
#pragma once

#include <optional>
#include <vector>

#include "gui/model/map/map_grid.hpp"

namespace kvscope::gui {

/// A point of the map in tokens; query 3, key 5 covers [3, 4) x [5, 6).
struct MapPoint {
  double query = 0.0;
  double key = 0.0;
};

/// A rectangle of the map in tokens.
struct MapRect {
  MapPoint from;
  MapPoint to;
};

/// One pair.
struct MapPair {
  Index query = 0;
  Index key = 0;
  bool operator==(const MapPair&) const = default;
};

/// The viewport: keys run to the right, queries downwards, one scale for both. Every change keeps
/// it inside limits: never beyond the map, which lies at the axes where it is smaller than the
/// view; a pixel is never more than the whole map needs nor less than 1 / 64 of a token.
class MapView {
 public:
  /// Another map or another size of the screen's part, in pixels. A map of another length is
  /// fitted; the same one keeps its place (its centre, if the size changed).
  void set_map(Index n_tokens);
  /// The same map has got longer: all of it is shown if all of it was, else nothing moves.
  void grow(Index n_tokens);
  void set_size(double width, double height);

  void fit();
  /// Fits a rectangle, in its middle.
  void fit(const MapRect& rect);
  void fit_width();                   // all keys side by side, at the same middle query
  void fit_queries(TokenRange rows);  // some queries one below the other, at the same middle key
  /// factor > 1 looks closer; the map's point under the pixel stays under it where limits allow.
  void zoom(double factor, double x, double y);
  void pan(double dx, double dy);  // the picture moves by pixels
  /// Moves as little as needed to show the pair; not at all if it is shown.
  void reveal(MapPair pair);
  void centre_on(MapPoint point);
  void look_at(MapPoint centre, double tokens_per_pixel);

  bool is_fitted() const;  // the whole map is in sight
  double width() const { return width_; }
  double height() const { return height_; }
  double tokens_per_pixel() const { return scale_; }
  MapPoint origin() const { return origin_; }
  MapRect shown() const;  // may reach beyond the map
  MapPoint at(double x, double y) const;
  double x_of(double key) const { return (key - origin_.key) / scale_; }
  double y_of(double query) const { return (query - origin_.query) / scale_; }
  /// The pair under a pixel; empty outside the map.
  std::optional<MapPair> hit(double x, double y) const;

  /// The finest level whose cells are at least a pixel: no cell is skipped when it is drawn.
  int level() const;
  /// Tiles of a level that are in sight, nearest to the middle first.
  std::vector<TileId> tiles(const MapGrid& grid, int level) const;
  /// Tokens in sight along either side, inside the map.
  TokenRange queries() const;
  TokenRange keys() const;

 private:
  double fit_scale() const;
  void clamp();

  Index n_tokens_ = 0;
  double width_ = 1.0;
  double height_ = 1.0;
  MapPoint origin_;
  double scale_ = 1.0;  // tokens per pixel
};

}  // namespace kvscope::gui
