// The colours of an attention map as it is looked at: automatic ranges that keep still while
// something moves, and the popup in which they are fixed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gui/model/map/attention_tiles.hpp"
#include "gui/model/map/map_options.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// The switch that masks the sink; grey where there is none.
void mask_sink_box(MapOptions& options, bool has_sink);

class MapScale {
 public:
  /// Once per frame, before anything is coloured. `subject` names the head that the picture is of:
  /// another one is counted at once. Asks for another frame if the colours will have to follow.
  void update(PanelContext& context, const MapPicture& picture, const MapView& view,
              const MapOptions& options, const std::string& subject, bool moving);
  /// The popup "range": range, sinks, corner. ImGui::OpenPopup(kPopup) opens it.
  void popup(const PanelContext& context, MapOptions& options, bool has_sink) const;
  static constexpr const char* kPopup = "range";

  /// Call after update() only.
  const MapColours& colours() const { return *colours_; }
  bool has_colours() const { return colours_.has_value(); }
  /// Another number after every change.
  std::uint64_t version() const { return version_; }
  /// The colours do not suit the picture yet.
  bool is_behind() const { return is_behind_; }

 private:
  void count(PanelContext& context, const MapPicture& picture, const MapView& view,
             const MapOptions& options, const std::string& subject, bool moving);

  WeightCounts counts_;
  std::string counted_;  // what the counts are of
  std::string subject_;
  double next_count_ = 0.0;  // not before this time
  bool is_behind_ = false;
  std::optional<MapColours> colours_;
  std::string colours_key_;
  std::uint64_t version_ = 0;
};

}  // namespace kvscope::gui
