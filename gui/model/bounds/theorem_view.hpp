// Theorem B.1 on the rows of one head, as the panel shows it: the measured cosine of a key with its
// query beside the bounds on it, a point per row against the line on which both are equal.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "analysis/figures/theorem_panel.hpp"
#include "analysis/kinds/theorem_b1.hpp"
#include "analysis/plot/figure.hpp"
#include "gui/model/jobs/jobs.hpp"
#include "gui/model/traces/trace_part.hpp"

namespace kvscope::gui {

using figures::is_upper;
using figures::kTheoremBounds;
using figures::title_of;

/// Proved: a violation would be a mistake of ours.
inline bool must_hold(TheoremBound bound) {
  return bound >= TheoremBound::jensen;
}

/// What decides the numbers.
struct TheoremRequest {
  Index layer = 0;
  Index q_head = 0;
  TheoremB1Options options;
  /// For keys of a cache.
  std::string key() const;
};

/// One bound over all rows.
struct TheoremColumn {
  std::span<const float> bound;            // [row]
  std::span<const std::uint8_t> violated;  // [row], 0 or 1
  Index violations = 0;
  double gap_mean = 0.0;  // how far the bound is from the cosine on its good side, mean over rows
};

/// analyze_theorem_b1's result, and its arrays. Rows in which k* is the only visible key hold NaN.
/// Moving keeps the arrays where they are.
struct TheoremRows {
  std::string trace;  // file name
  TheoremRequest request;
  MemoryResult result;
  std::span<const std::int64_t> query;                // [row], ascending
  std::span<const std::int32_t> star;                 // [row], position of k*
  std::span<const float> cos;                         // [row], cos(k*, q)
  std::span<const float> weight;                      // [row], softmax weight of k*
  std::span<const float> log_odds;                    // [row]
  std::span<const float> norm_eff;                    // [row], N_eff
  std::span<const float> cos_mean_query;              // [row], cos(M_Q, q)
  std::array<TheoremColumn, kTheoremBounds> columns;  // by TheoremBound
  Index n_stated = 0;                                 // rows that make a statement
  Index n_tokens = 0;

  std::size_t n_rows() const { return query.size(); }
  const TheoremColumn& column(TheoremBound bound) const {
    return columns[static_cast<std::size_t>(bound)];
  }
  /// What the bound is about: cos(k*, q), or cos(M_Q, q).
  std::span<const float> measured(TheoremBound bound) const {
    return is_upper(bound) ? cos_mean_query : cos;
  }
  /// The measured row nearest to a query; empty if there is none.
  std::optional<std::size_t> nearest(Index query_pos) const;
  std::size_t bytes() const { return sizeof *this + bytes_of(result); }
};

/// analyze_theorem_b1 over one head. Throws what that throws.
TheoremRows theorem_rows(const TraceSource& trace, const TheoremRequest& request, JobContext& job);

/// Which bounds are shown.
enum class TheoremPicture {
  one,        // the chosen one, large
  all,        // the four lower bounds beside each other
  main_text,  // the upper bounds on cos(M_Q, q)
};

/// What colours the points.
enum class TheoremColour { weight, position };

/// The bounds that a picture shows, in order.
std::vector<TheoremBound> bounds_of(TheoremPicture picture, TheoremBound chosen);

/// The bounds against the measured cosine, a panel each; points are of rows. Throws ConfigError if
/// no row makes a statement.
plot::Figure theorem_plot(const TheoremRows& rows, const std::vector<TheoremBound>& bounds,
                          TheoremColour colour);

/// Adds a mark for one row to each panel of theorem_plot's figure; none where the row says nothing.
void mark_row(plot::Figure& figure, const TheoremRows& rows,
              const std::vector<TheoremBound>& bounds, std::size_t row);

/// One line per row: query, star, weight, log_odds, norm_eff, both cosines, each bound, and whether
/// it is violated.
std::string theorem_csv(const TheoremRows& rows);

}  // namespace kvscope::gui
