// QuoKA's query selection and key scores for one KV group and one chunk, as pure functions.
//
// In five lines (arXiv 2602.08722, algorithm 1): per query head, take the N_Q queries of the chunk
// that point least along the mean query; make them unit vectors; average slot j over the group's
// heads without normalising again; score each key by the largest dot product of its unit vector
// with those averages; keep the best B_SA keys. Attention then uses the ORIGINAL keys and ALL
// queries of the chunk. No 1/sqrt(d) anywhere.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "core/attention/score_rows.hpp"
#include "core/base/fields.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// What a chunk's queries are compared with.
enum class QuokaMean {
  raw,   // the mean of the raw queries, as printed: long queries weigh more
  unit,  // the mean of the unit queries: another method, kept for comparison
};
template <>
struct EnumNames<QuokaMean> {
  static constexpr std::array<std::string_view, 2> value = {"raw", "unit"};
};

/// Which tokens of the group's heads are averaged in one slot.
enum class QuokaPairing {
  rank,  // slot j holds each head's own j-th choice, best first (what the printed reshape does)
  position_sorted,  // the same choices, each head's in order of position
  shared_tokens,    // one choice for the whole group, by the head mean of the cosines
};
template <>
struct EnumNames<QuokaPairing> {
  static constexpr std::array<std::string_view, 3> value = {"rank", "position_sorted",
                                                            "shared_tokens"};
};

struct QuokaScoring {
  Index n_queries = 16;  // N_Q
  QuokaMean mean = QuokaMean::raw;
  QuokaPairing pairing = QuokaPairing::rank;
  double eps = 1e-12;  // vectors are divided by max(norm, eps)
};

/// The queries that stand for a chunk in one KV group.
struct QuokaQueries {
  std::vector<std::vector<double>> cosines;  // [group][n_tok] cos(q, mean); S_q is minus this
  std::vector<std::vector<Index>>
      picks;                   // [group][n_slots] token of each slot, counted inside the chunk
  Tensor<double> mean_unit;    // [n_slots, d_head] averages of unit queries; norm <= 1
  bool has_zero_mean = false;  // a head's mean query is zero: its choice is the tie rule's
};

/// Mean over the rows of q [n_tok, d_head], or of their unit vectors.
std::vector<double> quoka_mean_query(TensorView<const float> q, QuokaMean mean, double eps);

/// cos(q_i, mean) for each row of q [n_tok, d_head]; 0 for zero vectors.
std::vector<double> quoka_cosines(TensorView<const float> q, std::span<const double> mean,
                                  double eps);

/// The n_queries tokens of lowest cosine, lowest first; every token in order if there are no more
/// than that.
std::vector<Index> quoka_pick(std::span<const double> cosines, Index n_queries);

/// Step 3: slot j is the mean over heads of their j-th pick, each divided by max(norm, eps); with
/// `unit` false the raw queries are averaged (the published ablation with dot products). q: per
/// head [n_tok, d_head]; picks [n_heads][n_slots].
Tensor<double> quoka_slot_means(std::span<const TensorView<const float>> q,
                                std::span<const std::vector<Index>> picks, bool unit, double eps);

/// Steps 1 to 3 for the heads of one KV group. q: per head [n_tok, d_head], all equal in shape.
QuokaQueries quoka_select_queries(std::span<const TensorView<const float>> q,
                                  const QuokaScoring& scoring);

/// Steps 4 and 5: S-hat [candidates.size()], the largest product of a slot with each unit key.
/// last_visible: per slot, the last position it may score, or empty for no limit; keys that no slot
/// may score get -infinity. `scratch` is reused memory.
std::vector<double> quoka_key_scores(const QuokaQueries& queries, const KeyTable& unit_keys,
                                     TokenRange candidates, std::span<const Index> last_visible,
                                     ScoreRows& scratch);

}  // namespace kvscope
