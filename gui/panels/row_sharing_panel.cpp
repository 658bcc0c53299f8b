// How much the rows of a verification call share the keys that they keep.
#include "analysis/kinds/overlap.hpp"
#include "gui/panels/analysis_panel.hpp"

namespace kvscope::gui {

std::unique_ptr<Panel> make_row_sharing_panel() {
  return std::make_unique<AnalysisPanel<RowSharingOptions>>(
      PanelInfo{"row-sharing", "Row sharing",
                "How many of the keys that a verification call reads each of its rows keeps, by "
                "layer.",
                Extent::trace},
      AnalysisCard{.figure = "row-sharing",
                   .metrics = {"row_share", "jaccard", "call_keys"},
                   .rows = "row_share",
                   .scope = AnalysisScope::trace,
                   .lists_figure = true},
      [](const TraceSource& trace, const TraceSource*, const RowSharingOptions& options,
         const AnalysisRun& run) { analyze_row_sharing(trace, options, run); });
}

}  // namespace kvscope::gui
