// Theorem B.1 on recorded rows: the measured cosine of a key with its query beside the bounds that
// its softmax weight gives, as printed and in forms that hold (see core/attention/theorem_b1.hpp
// for the statements).
#pragma once

#include "analysis/base/analysis.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

/// Which key of a row plays k*.
enum class StarKey {
  argmax,   // the key of largest weight, lowest position among equals
  rank,     // the key of the given rank by weight
  current,  // the query's own position
  first,    // the first visible key: the sink under full attention
  random,   // one visible key, drawn by seed, layer, head and position
};

struct TheoremB1Options {
  Index rows = option(rows, "rows", 4096,
                      "query rows per head, evenly spaced over the trace; all if it has no more",
                      at_least(1));
  StarKey star = option(star, "star", StarKey::argmax,
                        "which key is k*: argmax, rank, current, first or random");
  Index rank =
      option(rank, "rank", 1, "with --star rank: 1 is the key of largest weight", at_least(1));
  Index seed = option(seed, "seed", 0, "with --star random: where the drawing starts");
  double tolerance =
      option(tolerance, "tolerance", 1e-9,
             "a bound counts as violated if it exceeds the cosine by more", at_least(0.0));
  bool operator==(const TheoremB1Options&) const = default;
};

/// Arrays, [layer, q_head, row] with the rows' positions in `row_pos`; rows in which k* is the only
/// visible key, or that see fewer keys than its rank (star_pos -1), hold NaN.
///   cos, weight, log_odds     of k*; the log-odds stay exact where the weight rounds to 1
///   norm_eff                  N_eff; M_eff is its square
///   n_others, star_pos        visible keys besides k*; position of k*
///   bounds/printed, bounds/repaired, bounds/jensen, bounds/worst    lower bounds on cos
///   cos_mean_query            cos(M_Q, q) for the mean query of the prompt
///   main_text/relaxed, main_text/exact                              upper bounds on it
///   violated/printed ... violated/main_text_exact    1 where that bound fails by more
///                    than rounding
///
/// The summary counts, per layer and in total, rows, violations and mean gaps of each bound.
/// Printed and repaired may be violated; the others are proved, and their violations must be 0.
/// Throws ConfigError for options out of range or a trace without all q and k; Interrupted on a
/// stop.
nlohmann::ordered_json analyze_theorem_b1(const TraceSource& trace, const TheoremB1Options& options,
                                          const AnalysisRun& run);

}  // namespace kvscope
