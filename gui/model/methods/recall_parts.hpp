// Parts of a recall picture: what the sweep calls its switches, the budgets behind measured curves,
// heads that miss the target, curves of opened sweeps.
#pragma once

#include "analysis/figures/selection.hpp"
#include "analysis/figures/sweep_curves.hpp"
#include "core/base/vocabulary.hpp"
#include "gui/model/methods/recall_view.hpp"

namespace kvscope::gui {

/// The sweep's name of a metric.
std::string_view sweep_column(RecallMetric metric);
figures::Along sweep_axis(RecallAlong along);
bool takes_tokens(const std::optional<Budget>& budget);
FigureOptions recall_figure_options(const RecallQuestion& question);

/// The budgets behind the points of the curves, which are of rows of the table: mark_budgets and
/// reference.
void note_budgets(RecallPicture& picture, const RecallQuestion& question, const Table& table);

/// Budgets that reach the target, and heads that miss it, from the rows themselves.
void note_targets(RecallPicture& picture, const RecallQuestion& question, const Table& table,
                  const figures::SweepSelection& selection, const std::vector<bool>& is_current);

/// Curves of opened sweeps beside the picture's own: without markers, named by their file. `specs`:
/// methods of the picture, whose colours they share.
void add_opened(RecallPicture& picture, const RecallQuestion& question,
                const std::vector<OpenedSweep>& opened, const std::vector<std::string>& specs);

}  // namespace kvscope::gui
