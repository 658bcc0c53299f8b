// Comparisons as figures: maps side by side, kept keys of one query, attention of two models.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "gui/model/compare_kept.hpp"
#include "gui/model/compare_query.hpp"
#include "gui/model/compare_sides.hpp"

namespace kvscope::gui {

/// What of the selection is marked in a figure.
struct CompareMarks {
  std::optional<Index> query;
  std::optional<Index> key;
};

/// Three panels: kept share of A, of B, and A - B on a diverging scale that is symmetric around 0.
/// Without shared_scale A and B have colours of their own.
plot::Figure compare_maps_figure(const KeptComparison& comparison, const CompareSides& sides,
                                 bool shared_scale, const CompareMarks& marks);

/// Attention of the query along positions with the kept keys as points, and below it a line per
/// kept key: both, only A, only B.
plot::Figure compare_keys_figure(const QueryKeys& query, const CompareSides& sides,
                                 const CompareMarks& marks);

/// Attention of both rows along positions, and below it A - B.
plot::Figure compare_rows_figure(const RowDifference& rows, const CompareSides& sides,
                                 const CompareMarks& marks);

/// "+0.038 [0.031, 0.046]".
std::string signed_with_interval(double value, const std::optional<Interval>& interval);

/// Names of the rug's rows from the bottom up, and the row that lies at y.
inline constexpr double kRugRows = 3.0;
std::optional<NotedKey::Part> rug_part_at(double y);

/// The key of a part nearest to a position; empty if the part has none.
std::optional<KeyPos> nearest_key(const KeyPart& part, double pos);

}  // namespace kvscope::gui
