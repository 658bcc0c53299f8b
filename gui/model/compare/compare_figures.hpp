// Comparisons as figures: maps side by side, kept keys of one query, attention of two models. And
// as CSV (compare_csv.cpp): one line per cell or key, with every digit.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "analysis/plot/figure.hpp"
#include "gui/model/compare/compare_kept.hpp"
#include "gui/model/compare/compare_query.hpp"
#include "gui/model/compare/compare_sides.hpp"
#include "gui/model/traces/document.hpp"

namespace kvscope::gui {

/// How the sides look in every figure.
inline constexpr plot::Tone kToneA{plot::Role::series, 0};
inline constexpr plot::Tone kToneB{plot::Role::series, 1};
inline constexpr plot::Tone kToneBoth{plot::Role::series, 2};

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

/// The key under the cursor of compare_keys_figure, in data coordinates: in the rug the nearest
/// kept one of its row, above it the position. Empty outside the visible keys, and in an empty row.
std::optional<Index> key_under(const QueryKeys& query, std::size_t panel, double x, double y);

/// "both", "only A", "only B" or "neither".
std::string_view kept_by(const QueryKeys& query, Index key);

/// query_begin, query_end, key_begin, key_end (first positions after the cell), share_a, share_b,
/// difference; cells that no measured query sees are left out.
std::string compare_maps_csv(const KeptComparison& comparison);

/// query, key, token_id, attention, kept: "both", "a", "b" or empty; one line per visible key.
std::string compare_keys_csv(const QueryKeys& query, const Document& document);

/// query, key, token_id, attention_a, attention_b, difference.
std::string compare_rows_csv(const RowDifference& rows, const Document& document);

}  // namespace kvscope::gui
