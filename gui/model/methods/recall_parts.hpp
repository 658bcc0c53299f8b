// Parts of a recall picture: what the sweep calls its switches, the budgets behind measured curves,
// heads that miss the target, curves of opened sweeps.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/selection.hpp"
#include "analysis/figures/sweep_curves.hpp"
#include "gui/model/methods/recall_view.hpp"

namespace kvscope::gui {

/// The sweep's name of a metric.
std::string_view sweep_column(RecallMetric metric);
figures::Along sweep_axis(RecallAlong along);
bool takes_tokens(const std::optional<Budget>& budget);
FigureOptions recall_figure_options(const RecallQuestion& question);

/// "layers 0 to 4, all query heads, 264 of 4096 queries": what curves of these rows are means over.
std::string means_over(const RecallQuestion& question, const Table& table,
                       const figures::SweepSelection& selection);

/// The budgets behind the points of the curves, which are of rows of the table: mark_budgets and
/// reference.
void note_budgets(RecallPicture& picture, const RecallQuestion& question, const Table& table);

/// Budgets that reach the target, and heads that miss it, from the rows themselves.
void note_targets(RecallPicture& picture, const RecallQuestion& question, const Table& table,
                  const figures::SweepSelection& selection, const std::vector<bool>& is_current);

/// Curves of opened sweeps of the question's trace (by its hash) beside the picture's own: without
/// markers, in their methods' colours, named by their file, with what they are means over. Of
/// others a note says why they are not there.
void add_opened(RecallPicture& picture, const RecallQuestion& question,
                const std::vector<OpenedSweep>& opened);

}  // namespace kvscope::gui
