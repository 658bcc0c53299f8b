// Coverage of one method at one budget: what every layer and query head keeps, from rows of a sweep
// (method_rows.hpp), layer by layer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/figures/figure_kind.hpp"
#include "gui/model/methods/method_rows.hpp"
#include "gui/model/methods/recall_view.hpp"
#include "gui/model/session/methods.hpp"

namespace kvscope::gui {

/// The panel's switches.
struct CoverageSwitches {
  RecallMetric metric = option(metric, "metric", RecallMetric::mass,
                               "heads: what is measured against dense attention");
  bool lock_colours = option(lock_colours, "lock-colours", false,
                             "colours keep their meaning when layer, method or budget change, so "
                             "that pictures can be compared");
  double heads_low = option(heads_low, "heads-low", 0.0, "locked colours of the heads: low end");
  double heads_high =
      option(heads_high, "heads-high", 1.0, "locked colours of the heads: high end");
  bool operator==(const CoverageSwitches&) const = default;
};

struct HeadsQuestion {
  std::string trace;  // file name, for the caption
  std::vector<Index> layers;
  std::vector<Index> q_heads;
  Index layer = 0;  // computed first
  Index n_tokens = 0;
  Phase phase = Phase::prefill;
  MethodItem method;
  Parameters parameters;
  RecallMetric metric = RecallMetric::mass;
  std::string key() const;
};

/// One request per layer, the selected one first; a single one for methods that pass context
/// between layers.
std::vector<MethodRowsRequest> plan_heads(const HeadsQuestion& question);

struct HeadsPicture {
  plot::Figure figure;     // without panels if there is nothing to see
  std::string sentence;    // why there is nothing
  std::string unfinished;  // what is still to come; empty: nothing
  std::vector<SweepRow> rows;
  std::size_t bytes() const;
  /// The row of a head; null if it is not computed.
  const SweepRow* find(Index layer, Index q_head) const;
};

/// The figure coverage-heads of the rows that are there; layers to come are masked. rows: by
/// request; null = not computed.
HeadsPicture heads_picture(const HeadsQuestion& question,
                           const std::vector<std::shared_ptr<const MethodRows>>& rows);

/// The metric's number in a row.
double metric_of(const SweepRow& row, RecallMetric metric);

/// The figure with other colour ranges: what "lock colours" keeps.
void set_colours(plot::Figure& figure, double low, double high);

}  // namespace kvscope::gui
