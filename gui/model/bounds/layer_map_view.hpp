// The layer map between the selected trace and the second one, as the panel shows it, and whether
// the two can be compared at all.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/kinds/layer_map.hpp"
#include "analysis/plot/figure.hpp"
#include "core/trace/source.hpp"
#include "gui/model/jobs/jobs.hpp"
#include "gui/model/session/session.hpp"
#include "gui/model/traces/trace_part.hpp"

namespace kvscope::gui {

/// Which matrix is shown.
enum class LayerMapMetric { kl, total_variation, pinsker_floor };

/// Why the traces cannot be compared, as sentences; empty if they can.
struct LayerMapObstacle {
  std::string sentence;
  bool prefix_helps = false;  // comparing the common prefix would do
};
std::optional<LayerMapObstacle> layer_map_obstacle(const TraceSource& verifier,
                                                   const TraceSource& draft,
                                                   const LayerMapOptions& options);

/// One cell of the map.
struct LayerMapCell {
  Index draft_layer = 0;  // true numbers of the models
  Index verifier_layer = 0;
  double kl = 0.0;  // nats
  double kl_smoothed = 0.0;
  double total_variation = 0.0;
  double pinsker_floor = 0.0;
  bool in_monotone = false;  // the monotone map pairs these layers
  bool is_least = false;     // the draft layer of least divergence from this verifier layer
};

/// analyze_layer_map's result and what the panel reads from it.
struct LayerMap {
  LayerMapOptions options;
  MemoryResult result;
  std::string verifier;  // file names
  std::string draft;
  std::vector<Index> draft_layers;
  std::vector<Index> verifier_layers;
  std::vector<LayerMapCell> cells;  // [draft slot, verifier slot]
  /// A total of the summary, as "rows", "monotone_cost" (nats); NaN where there is none.
  double total(const char* key) const { return number_of(result.summary()["totals"], key); }
  /// Empty outside the map.
  const LayerMapCell* cell(Index draft_slot, Index verifier_slot) const;
  /// The cell that the monotone map has for a verifier layer; null if that layer stays dense or is
  /// not in the map.
  const LayerMapCell* mapped(Index verifier_layer) const;
  std::size_t bytes() const {
    return sizeof *this + cells.size() * sizeof(LayerMapCell) + bytes_of(result);
  }
};

/// Throws what analyze_layer_map throws.
LayerMap layer_map(const TraceSource& verifier, const TraceSource& draft,
                   const LayerMapOptions& options, JobContext& job);

/// The command line's figure "layer-map" of one matrix, with a caption that names both traces.
plot::Figure layer_map_figure(const LayerMap& map, LayerMapMetric metric);

/// Makes the second trace the selected one and the other way round; nothing without a second one.
void swap_traces(Session& session);

/// Traces that are open besides the selected one, as indices of Session::documents().
std::vector<Index> other_traces(const Session& session);

/// One line per cell: draft_layer,verifier_layer,kl,kl_smoothed,total_variation,pinsker_floor,
/// monotone,argmax.
std::string layer_map_csv(const LayerMap& map);

}  // namespace kvscope::gui
