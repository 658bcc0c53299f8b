// The query-selection panel's pictures: the scatter of one head, and the map of all correlations
// that are known so far.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/figures/query_panels.hpp"
#include "gui/model/queries/query_selection_view.hpp"

namespace kvscope::gui {

/// The panel's switches.
struct QuerySelectionSwitches {
  QuerySpan span =
      option(span, "span", QuerySpan::prompt,
             "S_q compares a query with the mean of the whole prompt or of its own chunk");
  bool skip_sink =
      option(skip_sink, "skip-sink", true,
             "the first position counts neither as the largest weight's key nor as a query");
  Index skip_recent = option(
      skip_recent, "skip-recent", 0,
      "last visible keys, the query's own first, that do not count as the largest weight's key: "
      "reveals heads that attend only to their neighbours",
      in(0, 4096));
  bool picks =
      option(picks, "picks", true, "emphasise the queries that QuoKA keeps of the current chunk");
};

/// The analysis' options for the switches and the session's chunk length.
QuerySelectionOptions options_of(const QuerySelectionSwitches& switches, Index chunk);

/// The scatter's points: measured queries that count and have both numbers.
struct DrawnQueries : figures::QueryPoints {
  std::vector<std::size_t> index;  // into QuerySelectionHead's arrays
};
DrawnQueries query_points(const QuerySelectionHead& head, const QuerySelectionSwitches& switches);

/// Indices into `picks` of those that have both numbers, in its order.
std::vector<std::size_t> drawn_picks(const ChunkPicks& picks, QuerySpan span);

/// S_q against the largest weight (logarithmic), coloured by position. Mark 0 is the cloud of
/// query_points; mark 1, if there are any, drawn_picks.
/// Throws ConfigError if no query has both numbers.
plot::Figure scatter_figure(const QuerySelectionHead& head, Index layer, Index q_head,
                            const QuerySelectionSwitches& switches, const ChunkPicks* picks);

/// Known correlations by layer: Pearson of S_q and the log weight per recorded head.
using LayerCorrelations = std::map<Index, std::vector<double>>;

/// Layer x head; layers that are not known yet are masked, the selected head boxed.
plot::Figure strip_figure(const TraceInfo& info, const LayerCorrelations& known, Index layer,
                          Index q_head);

/// Both, side by side, as the figure kind "query-scores" shows them.
plot::Figure joined_figure(plot::Figure scatter, const plot::Figure& strip);

/// One coefficient in words.
struct Coefficient {
  std::string name;     // "Pearson r"
  double value = 0.0;   // NaN: not defined
  std::string meaning;  // a sentence
};
std::vector<Coefficient> coefficients_of(const QuerySelectionHead& head, QuerySpan span);

/// Columns q_head, pos, token_id, s_q_prompt, s_q_chunk, log_max_weight, max_weight, max_key,
/// breadth, picked: one line per measured query, then those of the chunk that were not measured.
std::string query_selection_csv(const QuerySelectionHead& head, Index layer, Index q_head,
                                std::span<const TokenId> tokens, const ChunkPicks* picks);

}  // namespace kvscope::gui
