// What every query head does, in one line of numbers each and a small picture: how far back it
// looks, how widely, what it gives to the first tokens, to its neighbours and to tokens that call
// for a repetition, and what a sparse method would take from it.
//
// All numbers are means over query rows at equal distances. With A the exact weights of a row at
// position t over its visible keys j (an attention sink, a logit without a key, takes part in the
// softmax; the keys then hold less than 1):
//   distance          sum A (t - j) / sum A, in tokens: how far back the attention lies
//   entropy           of A / sum A, in nats; a flat row over n keys has log n
//   sink_share        sum of A over the first `sink_tokens` positions of the sequence
//   local_share       sum of A over the last `local_tokens` visible keys, the query's own included
//   retrieval         sum of A over the keys that a retrieval head looks for. With a needle: its
//                     positions, for rows behind it. Without: the tokens that followed an earlier
//                     occurrence of the row's own token (key j + 1 for each j < t - 1 with token j
//                     = token t): the attention pattern of induction heads (Olsson et al. 2022)
//   retrieval_chance  what a flat row would give to those keys: their share of the visible ones
//   no_key_share      what the attention sink takes: 1 - sum A
// Rows that see none of the keys looked for (no earlier occurrence of their token) are left out of
// the means of retrieval and retrieval_chance; a head all of whose rows lack it has NaN. A lost
// mass is 1 - the mass that a method keeps (core/sim/metrics.hpp), mean over the calls of a replay:
// what kvscope sweep calls mass_mean, taken from 1.
#pragma once

#include <array>

#include "analysis/base/analysis.hpp"
#include "analysis/base/pooled_rows.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/base/trace_selection.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

struct HeadsOptions : ReplayedCalls {
  using SharedOptions = ReplayedCalls;
  TraceSelection selection;
  Index rows = option(rows, "rows", 512,
                      "query rows per head, evenly spaced over the trace; all if it has no more",
                      at_least(1));
  Index sink_tokens = option(sink_tokens, "sink-tokens", 4,
                             "first positions of the sequence that count as sink", at_least(1));
  Index local_tokens =
      option(local_tokens, "local-tokens", 128,
             "last visible keys that count as local, the query's own among them", at_least(1));
  std::string needle =
      option(needle, "needle", "",
             "positions of the fact that a retrieval head looks for, as 120-127 [the tokens that "
             "followed an earlier occurrence of the current token]");
  std::string selector =
      option(selector, "selector", "quoka,quest",
             "methods whose loss is measured, as a sweep names them; empty for none");
  std::string budget =
      option(budget, "budget", "256",
             "one budget for them, as tokens=256 or ratio=0.1; a number is tokens");
  Index dense_layers = option(dense_layers, "dense-layers", 0,
                              "leading layers that the methods leave dense", at_least(0));
  Index cells =
      option(cells, "cells", 32, "most cells per side of a head's small map", in(4.0, 128.0));
  MapPooling pooling = option(pooling, "pooling", MapPooling::max,
                              "a cell shows the max or the mean of its weights");
};

/// A number of each head, under the name of its array.
struct HeadMeasure {
  std::string_view name;
  std::string_view label;  // of an axis
  std::string_view units;
  bool is_share;
};
inline constexpr std::array<HeadMeasure, 7> kHeadMeasures = {{
    {"distance", "Mean attention distance (tokens)", "token", false},
    {"entropy", "Entropy (nats)", "nat", false},
    {"sink_share", "Share of the first tokens", "1", true},
    {"local_share", "Share of the nearest keys", "1", true},
    {"retrieval", "Retrieval score", "1", true},
    {"retrieval_chance", "Retrieval score of a flat row", "1", true},
    {"no_key_share", "Share of the attention sink", "1", true},
}};

/// Arrays, f64 unless said
///   distance ... no_key_share [layer, q_head]   as above
///   lost_mass [layer, q_head, method]           attention that each method loses; NaN in a layer
///                                               that stays dense (sliding window, dense-layers)
///   map [layer, q_head, query_block, key_block] f32: weights of the measured rows, pooled; NaN
///                                               where none of them sees a key
///   row_pos, query_block, key_block             positions of the rows, first ones of the blocks
///
/// The summary has "layers" (means over the heads, and the head with the best retrieval), "methods"
/// (what each loses, and the head that loses most), "rows" (one per head and method), "skipped"
/// (sentences: methods left out) and "totals". Throws ConfigError for options out of range, unknown
/// methods, more than one budget, a needle outside the trace, or a trace without q, k (and v for
/// methods) of all positions; Interrupted on a stop. The same bits for any number of threads.
nlohmann::ordered_json analyze_heads(const TraceSource& trace, const HeadsOptions& options,
                                     const AnalysisRun& run);

}  // namespace kvscope
