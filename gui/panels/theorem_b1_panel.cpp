// Theorem B.1 on the rows of the selected head: the measured cosine against the bounds on it.
#include "analysis/kinds/theorem_b1.hpp"
#include "gui/panels/analysis_panel.hpp"

namespace kvscope::gui {

std::unique_ptr<Panel> make_theorem_b1_panel() {
  return std::make_unique<AnalysisPanel<TheoremB1Options>>(
      PanelInfo{"theorem-b1", "Theorem B.1",
                "The cosine of a key k* with its query against the bounds that its softmax weight "
                "gives. Click a point to go to its query and key."},
      AnalysisCard{
          .figure = "theorem-b1",
          .metrics = {"jensen", "printed", "repaired", "worst", "printed,repaired,jensen,worst",
                      "main_text_relaxed,main_text_exact"},
          .rows = "cos",
          .query = "row_pos",
          .key = "star_pos",
          .renamed = {{"bound", "metric"}},
          .words = {"star_pos", "weight", "cos", "cos_mean_query"}},
      [](const TraceSource& trace, const TraceSource*, const TheoremB1Options& options,
         const AnalysisRun& run) { analyze_theorem_b1(trace, options, run); });
}

}  // namespace kvscope::gui
