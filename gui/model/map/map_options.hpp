// The switches of the attention map, as sessions keep them.
#pragma once

#include "analysis/kinds/attention_map.hpp"
#include "core/base/fields.hpp"
#include "gui/model/map/map_colours.hpp"
#include "gui/model/map/map_view.hpp"

namespace kvscope::gui {

struct MapOptions {
  MapPooling pooling = option(pooling, "pooling", MapPooling::max,
                              "zoomed out, a cell shows the largest or the mean of its weights");
  MapScaleKind scale = option(scale, "scale", MapScaleKind::log,
                              "colours by weight, by its logarithm, or by its rank among the "
                              "visible cells");
  bool mask_sinks = option(mask_sinks, "mask-sinks", true, "leave the first keys out of the scale");
  Index n_sink =
      option(n_sink, "n-sink", 4, "how many of the first keys count as sinks", in(1, 64));
  bool overlay = option(overlay, "overlay", false, "show the keys that the method keeps");
  bool lost =
      option(lost, "lost", false, "with the overlay: hide what is kept and show only what is lost");
  bool minimap = option(minimap, "minimap", true, "the whole map in the corner");
  bool fixed_range = option(fixed_range, "fixed-range", false, "keep the range of colours");
  double low = option(low, "low", 1e-6, "weight at the lower end of a fixed range", in(0.0, 1.0));
  double high = option(high, "high", 1.0, "weight at the upper end of a fixed range", in(0.0, 1.0));
  /// Keys that the scale leaves out.
  Index sinks() const { return mask_sinks ? n_sink : 0; }
};

/// Where the map is looked at; what it begins with shows all of any map.
struct MapPlace {
  MapPoint centre = {option(centre.query, "query", 0.0, "in the middle of the view", in(0.0, 1e9)),
                     option(centre.key, "key", 0.0, "in the middle of the view", in(0.0, 1e9))};
  double tokens_per_pixel =
      option(tokens_per_pixel, "tokens-per-pixel", 1e9, "scale", in(1e-3, 1e9));
};

}  // namespace kvscope::gui
