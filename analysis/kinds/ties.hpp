// A census of ties: how often the cut of a method's top-k lies among equal scores, by the number
// type that scores are stored in and by the size of the pages that are ranked, and how many keys
// another legal order of equal scores would change.
#pragma once

#include <stop_token>
#include <vector>

#include "analysis/base/analysis.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"
#include "core/model/transformer.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope {

struct TiesOptions {
  std::vector<MethodSpec> selectors;  // empty: default_tie_methods()
  Budget budget{Budget::Kind::tokens, 256.0};
  std::vector<Index> layers;  // empty = all that are recorded
  /// The recorded model, to decode on after the trace's prompt with both orders of ties; null = no
  /// closed loop.
  const Transformer* model = nullptr;

  Index steps = option(steps, "steps", 16,
                       "decode steps looked at, evenly spaced, the first and the last among them",
                       at_least(2));
  Index dense_layers =
      option(dense_layers, "dense-layers", 0, "leading layers left out", at_least(0));
  Index new_tokens = option(new_tokens, "new-tokens", 200,
                            "with --model: tokens decoded after the prompt, at most", at_least(1));
};

/// quest, quoka, loki, sparq without its mean value, and the oracle.
std::vector<MethodSpec> default_tie_methods();

/// A case is a method, the pages that it ranks (its own units, 16, 64) and the type of its scores
/// (f64 as it makes them, f32, bf16, fp8 with a scale per row). A row is one list owner at one
/// step; rows that keep all their candidates have no cut and are not counted. Queries and keys that
/// are no numbers are refused as they are read.
///
/// Arrays, by layer, case and step; NaN where the method cannot take the case, which the summary's
/// "rows" explain
///   rows       rows with a cut
///   ties       those whose cut lies among equal scores
///   tied       units in these sets, mean over the rows with a tie; 0 without
///   changed    keys that come and go with the order of equal scores, mean over rows
///   close      rows whose exact gap between the k-th and the next score is below one rounding step
///              of the type there
/// and by layer and case
///   gap_steps  median over rows of that gap in rounding steps; NaN for f64
/// With a model, by case (its own units, f32, bf16 and fp8; NaN for the others), see
/// analysis/kinds/ties_live.hpp:
///   live/steps          tokens decoded until the two orders differ in one, or new_tokens
///   live/first_changed  the first step with other logits; -1 for none
///   live/first_token    the first step with another token; -1 for none
///   live/logit_change   largest change of a logit in these steps
///
/// What is written for a step depends on no other step that is looked at, on no seed and no thread
/// count. Throws ConfigError for options out of range, a budget that a method does not take or
/// another model than the recorded one; Interrupted on a stop.
nlohmann::ordered_json analyze_ties(const TraceSource& trace, const TiesOptions& options,
                                    const AnalysisRun& run);

}  // namespace kvscope
