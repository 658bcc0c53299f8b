// The switches of the attention map, as sessions keep them.
#pragma once

#include <array>

#include "analysis/attention_map.hpp"
#include "core/base/fields.hpp"
#include "gui/model/map/map_colours.hpp"
#include "gui/model/map/map_view.hpp"

namespace kvscope {
template <>
struct EnumNames<gui::MapScaleKind> {
  static constexpr std::array<std::string_view, 3> value = {"linear", "log", "percentile"};
};
}  // namespace kvscope

namespace kvscope::gui {

struct MapOptions {
  MapPooling pooling = MapPooling::max;
  MapScaleKind scale = MapScaleKind::log10;
  bool mask_sinks = true;
  Index n_sink = 4;
  bool overlay = false;
  bool lost = false;
  bool minimap = true;
  bool fixed_range = false;
  double low = 1e-6;
  double high = 1.0;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"pooling", "a cell shows the max or the mean of its weights"}, self.pooling);
    visit(Field{"scale", "colours by weight, by its logarithm, or by rank"}, self.scale);
    visit(Field{"mask-sinks", "leave the first keys out of the scale"}, self.mask_sinks);
    visit(Field{"n-sink", "how many of the first keys count as sinks"}.in(1, 64), self.n_sink);
    visit(Field{"overlay", "show the keys that the method keeps"}, self.overlay);
    visit(Field{"lost", "with the overlay: hide what is kept and show only what is lost"},
          self.lost);
    visit(Field{"minimap", "the whole map in the corner"}, self.minimap);
    visit(Field{"fixed-range", "keep the range of colours"}, self.fixed_range);
    visit(Field{"low", "weight at the lower end of a fixed range"}.in(0.0, 1.0), self.low);
    visit(Field{"high", "weight at the upper end of a fixed range"}.in(0.0, 1.0), self.high);
  }
  /// Keys that the scale leaves out.
  Index sinks() const { return mask_sinks ? n_sink : 0; }
};

/// Where the map is looked at; what it begins with shows all of any map.
struct MapPlace {
  MapPoint centre;
  double tokens_per_pixel = 1e9;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"query", "in the middle of the view"}.in(0.0, 1e9), self.centre.query);
    visit(Field{"key", "in the middle of the view"}.in(0.0, 1e9), self.centre.key);
    visit(Field{"tokens-per-pixel", "scale"}.in(1e-3, 1e9), self.tokens_per_pixel);
  }
};

}  // namespace kvscope::gui
