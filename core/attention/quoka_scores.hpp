// QuoKA's switches, and its choice of queries for one KV group and one chunk as pure functions.
// Keys are scored, and lists made, by the selector alone (core/selectors/methods/quoka.cpp).
//
// In five lines (arXiv 2602.08722, algorithm 1): per query head, take the N_Q queries of the chunk
// that point least along the mean query; make them unit vectors; average slot j over the group's
// heads without normalising again; score each key by the largest dot product of its unit vector
// with those averages; keep the best B_SA keys. Attention then uses the ORIGINAL keys and ALL
// queries of the chunk. No 1/sqrt(d) anywhere.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "core/base/fields.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// What a chunk's queries are compared with.
enum class QuokaMean {
  raw,   // the mean of the raw queries, as printed: long queries weigh more
  unit,  // the mean of the unit queries: another method, kept for comparison
};

/// Which tokens of the group's heads are averaged in one slot.
enum class QuokaPairing {
  rank,  // slot j holds each head's own j-th choice, best first (what the printed reshape does)
  position_sorted,  // the same choices, each head's in order of position
  shared_tokens,    // one choice for the whole group, by the head mean of the cosines
};

/// Which queries of a chunk score keys. All but the first are ablations.
enum class QuokaQueryChoice { farthest, nearest, random, last, all };

/// How the products of a key with the slots become its score; the mean is an ablation.
enum class QuokaAggregate { max, mean };

/// What a slot and a key are compared by; dot products are the published ablation.
enum class QuokaSimilarity { cosine, dot };

/// The method's switches, listed once for the selector and for `analyze quoka`.
struct QuokaRules {
  Index n_queries =
      option(n_queries, "n-queries", 16, "N_Q: representative queries of a chunk, per query head",
             in(1, 1'000'000));  // N_Q
  QuokaQueryChoice queries =
      option(queries, "queries", QuokaQueryChoice::farthest,
             "which queries score keys: farthest from the chunk's mean query, or an ablation");
  QuokaMean mean = option(mean, "mean", QuokaMean::raw,
                          "queries are compared with the mean of the raw or of the unit queries");
  QuokaPairing pairing =
      option(pairing, "pairing", QuokaPairing::rank, "tokens of a group's heads that share a slot");
  QuokaAggregate aggregate =
      option(aggregate, "aggregate", QuokaAggregate::max, "over the slots of a chunk");
  QuokaSimilarity similarity = option(similarity, "similarity", QuokaSimilarity::cosine,
                                      "cosine, or the dot product of the published ablation");
  bool mask_scores = option(mask_scores, "mask-scores", true,
                            "if the chunk's keys compete: a query does not score later keys");
  bool force_self = option(force_self, "force-self", true,
                           "if the chunk's keys compete: every query keeps its own position");
  Index dense_layers =
      option(dense_layers, "dense-layers", 0, "leading layers kept dense", at_least(0));
  Index seed = option(seed, "seed", 0, "queries=random: the draw", at_least(0));
  double eps = option(eps, "eps", 1e-12, "vectors are divided by the larger of their norm and this",
                      at_least(1e-30));
};

/// S-hat of a key that no slot may score: behind every other one, but still there for a budget that
/// takes everything.
inline constexpr double kQuokaUnscored = std::numeric_limits<double>::lowest();

/// Mean over the rows of q [n_tok, d_head], or of their unit vectors.
std::vector<double> quoka_mean_query(TensorView<const float> q, QuokaMean mean, double eps);

/// cos(q_i, mean) for each row of q [n_tok, d_head]; 0 for zero vectors.
std::vector<double> quoka_cosines(TensorView<const float> q, std::span<const double> mean,
                                  double eps);

/// Step 1 for the heads of one KV group.
struct QuokaCosines {
  std::vector<std::vector<double>> heads;  // [group][n_tok] cos(q, mean); S_q is minus this
  bool has_zero_mean = false;  // a head's mean query is zero: its choice is the tie rule's
};

/// q: per head [n_tok, d_head], all equal in shape.
QuokaCosines quoka_group_cosines(std::span<const TensorView<const float>> q, QuokaMean mean,
                                 double eps);

/// Step 2: the rows of each slot, [group][n_slots], from the cosines [group][n_tok] of at least one
/// head. n_queries >= 1.
std::vector<std::vector<Index>> quoka_pick_slots(std::span<const std::vector<double>> cosines,
                                                 Index n_queries, QuokaPairing pairing);

/// Step 3: slot j is the mean over heads of their j-th pick, each divided by max(norm, eps); with
/// `unit` false the raw queries are averaged (the published ablation with dot products). q: per
/// head [n_tok, d_head]; picks [n_heads][n_slots].
Tensor<double> quoka_slot_means(std::span<const TensorView<const float>> q,
                                std::span<const std::vector<Index>> picks, bool unit, double eps);

}  // namespace kvscope
