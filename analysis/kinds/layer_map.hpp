// SpecAttn's layer map: how far each draft layer's attention is from each verifier layer's over the
// same tokens, and which draft layer should predict which verifier layer.
#pragma once

#include "analysis/base/analysis.hpp"
#include "core/attention/layer_divergence.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

/// Which query rows are compared.
enum class RowChoice { spaced, all };

/// How the token ids of the two traces must agree.
enum class TokenMatch {
  exact,          // same ids, same length
  common_prefix,  // the leading part on which they agree is compared
};

struct LayerMapOptions {
  RowChoice row_choice = option(row_choice, "row-choice", RowChoice::spaced,
                                "query rows compared: spaced (--rows of them) or all");
  Index rows = option(rows, "rows", 256, "with --row-choice spaced: how many rows, evenly spaced",
                      at_least(1));
  Index min_visible = option(min_visible, "min-visible", 16,
                             "rows with fewer visible keys are left out", at_least(2));
  Smoothing smoothing = option(smoothing, "smoothing", Smoothing::when_zero,
                               "when eps is added to a row: when_zero, always or never");
  double eps = option(eps, "eps", kSmoothingEps, "a' = (a + eps) / (1 + L eps)", in(1e-300, 1e-3));
  bool drop_sink =
      option(drop_sink, "drop-sink", false, "leave out key 0 and renormalise both rows");
  Index dense_layers =
      option(dense_layers, "dense-layers", 0,
             "first verifier layers that the monotone map leaves out", at_least(0));
  double nucleus = option(nucleus, "nucleus", 0.95,
                          "p of the floor p - sqrt(KL / 2) on the verifier's mass", in(0.0, 1.0));
  TokenMatch token_match =
      option(token_match, "token-match", TokenMatch::exact,
             "token ids must agree: exact, or common_prefix to compare that far");
  bool operator==(const LayerMapOptions&) const = default;
};

/// D[i][j] = mean over rows of KL(verifier layer j || draft layer i) in nats; each row is the
/// layer's attention averaged over its recorded heads.
///
/// [draft_layer, verifier_layer]
///   kl               D
///   kl_smoothed      D with every row smoothed by eps: how much the smoothing matters
///   total_variation  mean total variation distance
///   pinsker_floor    mean of p - sqrt(KL / 2): what the verifier must have on the draft's nucleus
///
/// [row, draft_layer, verifier_layer], positions in `row_pos`
///   kl_rows          KL of each row
///
/// [verifier_layer]
///   monotone_map, argmax_map   draft layer by its true number; -1 where the verifier is dense
///   monotone_kl, argmax_kl     D there
///
/// Throws ConfigError for options out of range, traces without all q and k, differing token ids,
/// or too few tokens; Interrupted on a stop.
nlohmann::ordered_json analyze_layer_map(const TraceSource& verifier, const TraceSource& draft,
                                         const LayerMapOptions& options, const AnalysisRun& run);

}  // namespace kvscope
