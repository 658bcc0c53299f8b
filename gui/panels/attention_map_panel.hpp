// The attention map of the selected head: pan and zoom over every pair of query and key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gui/model/map/map_figure.hpp"
#include "gui/model/map/map_options.hpp"
#include "gui/panels/attention_map_view.hpp"
#include "gui/panels/kept_overlay.hpp"
#include "gui/panels/map_scale.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/tile_textures.hpp"

namespace kvscope::gui {

class AttentionMapPanel final : public Panel {
 public:
  PanelInfo info() const override;
  void controls(PanelContext& context) override;
  void draw(PanelContext& context) override;
  std::optional<plot::Figure> figure() const override;
  nlohmann::ordered_json options() const override;
  void set_options(const nlohmann::ordered_json& options) override;
  std::vector<PanelChoice> choices() const override;
  bool is_busy() const override;
  Places landmarks() const override;

  /// For tests: where the map lies on screen, and its viewport.
  const AttentionMapView& canvas() const { return canvas_; }
  const MapView& view() const { return view_; }

 private:
  void follow_selection(const Session& session);
  void draw_map(PanelContext& context);
  void ask_sink(const PanelContext& context);
  MapOptions options_here() const;
  void report(const PanelContext& context);
  void forget_picture();
  /// Of the map: done while a picture fills in, which the words below it tell.
  JobStatus status_of(const Selection& selection) const;
  void act(PanelContext& context, const MapGesture& gesture);
  /// What a click on this pair means: of a cell that pools many, its largest weight.
  MapPair clicked_pair(MapPair pair) const;
  void tooltip(const PanelContext& context, MapPair pair) const;
  std::string left_words() const;
  std::string right_words() const;

  MapOptions options_;
  std::optional<AttentionTiles> tiles_;
  std::string subject_;      // document and head that picture_ is of
  std::string growing_key_;  // of the document of the last frame
  bool is_stale_ = false;    // another head is selected, and not there yet
  MapNames names_;
  MapView view_;
  std::optional<MapPlace> wanted_view_;  // by a session, until a map is there
  AttentionMapView canvas_;
  MapPicture picture_;
  TileTextures textures_;
  bool textures_whole_ = true;

  MapScale scale_;
  AsyncValue<SinkShare> sink_;
  bool has_sink_ = true;  // until it is known
  bool awaits_sink_ = false;
  KeptOverlay overlay_;

  std::optional<Index> query_;  // as last seen, to notice what other panels choose
  std::optional<Index> key_;
  bool moving_ = false;
};

}  // namespace kvscope::gui
