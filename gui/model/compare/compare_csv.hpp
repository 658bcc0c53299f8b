// Comparisons as CSV: one line per cell or key, with every digit.
#pragma once

#include <string>

#include "gui/model/compare/compare_kept.hpp"
#include "gui/model/compare/compare_query.hpp"
#include "gui/model/traces/document.hpp"

namespace kvscope::gui {

/// query_begin, query_end, key_begin, key_end (first positions after the cell), share_a, share_b,
/// difference; cells that no measured query sees are left out.
std::string compare_maps_csv(const KeptComparison& comparison);

/// query, key, token_id, attention, kept: "both", "a", "b" or empty; one line per visible key.
std::string compare_keys_csv(const QueryKeys& query, const Document& document);

/// query, key, token_id, attention_a, attention_b, difference.
std::string compare_rows_csv(const RowDifference& rows, const Document& document);

}  // namespace kvscope::gui
