// The drawing of an attention map in a window: tiles, axes, colour bar, lines of the selection, the
// small map in the corner; and what the mouse and keys do to the viewport.
#pragma once

#include <imgui.h>

#include <optional>
#include <string>
#include <vector>

#include "gui/model/map/attention_tiles.hpp"
#include "gui/model/map/map_colours.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/tile_textures.hpp"

namespace kvscope::gui {

/// Everything that one frame shows.
struct MapScene {
  const MapGrid& grid;
  const MapPicture& picture;
  const MapColours& colours;
  const TileTextures& textures;
  const Texture* overlay = nullptr;  // of the selected keys
  MapRect overlay_part{};
  bool hides_kept = false;         // the overlay covers them; without it, nothing is known
  const MapTile* whole = nullptr;  // for the corner; null: not wanted
  std::optional<Index> query{};    // selected
  std::optional<Index> key{};
  std::vector<Bookmark> bookmarks{};  // of this head
  std::string bar_title{};            // above the colour bar
  std::string left_words{};           // below the map
  std::string right_words{};
};

/// What was done in this frame.
struct MapGesture {
  std::optional<MapPair> hovered;
  std::optional<MapPair> clicked;
  bool moved = false;        // the viewport changed
  bool bar_clicked = false;  // the colour bar
  int step_query = 0;        // Shift and arrows
  int step_key = 0;
  bool to_selection = false;
};

class AttentionMapView {
 public:
  /// The viewport takes what the window leaves after axes and colour bar. Call before asking the
  /// tiles for a picture.
  void begin(const PanelContext& context, MapView& view);
  /// Draws the scene and reads the mouse (over the map) and keys (while the mouse is over it).
  MapGesture draw(const PanelContext& context, MapView& view, const MapScene& scene);

  /// The map's part of the screen, in the last frame.
  ImVec2 low() const { return low_; }
  ImVec2 high() const { return high_; }

 private:
  void draw_ground(const PanelContext& context, const MapView& view, const MapScene& scene) const;
  void hatch(const PanelContext& context, ImVec2 from, ImVec2 to) const;
  void draw_tiles(const PanelContext& context, const MapView& view, const MapScene& scene) const;
  void draw_selection(const PanelContext& context, const MapView& view,
                      const MapScene& scene) const;
  void draw_brush(const PanelContext& context, const MapView& view, const MapScene& scene) const;
  void draw_bookmarks(const PanelContext& context, const MapView& view,
                      const MapScene& scene) const;
  void draw_axes(const PanelContext& context, const MapView& view) const;
  /// The tokens' texts beside rows and below columns that are large enough; their room is part of
  /// the axes.
  void draw_token_texts(const PanelContext& context, const MapView& view) const;
  void draw_words(const PanelContext& context, const MapScene& scene) const;
  bool draw_bar(const PanelContext& context, const MapScene& scene) const;
  void draw_corner(const PanelContext& context, const MapView& view, const MapScene& scene) const;
  /// Where the small map lies; empty if it is not shown: nothing is out of sight, or no room.
  struct Corner {
    ImVec2 low;
    float side = 0.0f;
  };
  std::optional<Corner> corner(const PanelContext& context, const MapView& view,
                               const MapScene& scene) const;
  void read_corner(const Corner& corner, MapView& view, const MapScene& scene, MapGesture& gesture);
  void read_mouse(const PanelContext& context, MapView& view, MapGesture& gesture);
  void read_keys(MapView& view, const MapScene& scene, MapGesture& gesture) const;
  ImVec2 screen(const MapView& view, MapPoint point) const;

  ImVec2 area_low_{0, 0};  // of everything
  ImVec2 area_high_{0, 0};
  float text_room_ = 0.0f;   // of token texts, left of the map and below it; 0: none
  bool has_zoomed_ = false;  // by the wheel, in the last frame: the map stays under the cursor
  ImVec2 low_{0, 0};         // of the map
  ImVec2 high_{0, 0};
  bool dragged_ = false;
  std::optional<ImVec2> band_from_;  // a rectangle is drawn to zoom into
};

}  // namespace kvscope::gui
