// A selection: which keys each query may attend to, as sorted position lists, forced kept apart from scored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Key positions are absolute and fit 32 bits.
using KeyPos = std::int32_t;

/// Who owns one list: each query head, each KV head (its whole group), or the layer (all heads).
enum class ListOwner { q_head, kv_head, layer };

/// One list of keys. Both parts ascending, without repeats and disjoint. Positions beyond a query's own are
/// allowed (a list may serve many queries); the causal mask and the window apply afterwards, per row.
struct KeyList {
  std::vector<KeyPos> scored;  // earned by a score: what the budget pays for
  std::vector<KeyPos> forced;  // kept by rule: sinks, recents, the running chunk, the last page
  Index size() const { return static_cast<Index>(scored.size() + forced.size()); }
};

/// Both parts merged, ascending.
std::vector<KeyPos> merged(const KeyList& list);

/// An output that is not plain softmax over the list: y = weight * y_list + (1 - weight) * rest (SparQ's mean value).
struct OutputMix {
  Tensor<float> weight;  // [n_q, n_tok]; empty = 1 everywhere
  Tensor<float> rest;    // [n_q, d_head]
};

/// What a selector answers for one layer and one call.
struct Selection {
  ListOwner owner = ListOwner::kv_head;
  bool is_dense = false;              // everything visible; lists stay empty
  Index n_tok = 0;                    // queries of the call
  Index rows_per_list = 0;            // queries that share a list, in order; n_tok = the whole call
  std::vector<KeyList> lists;         // [n_owners][n_row_blocks]
  OutputMix mix;
  /// Optional, for plots: the selector's score of each key. [n_owners, n_keys]; empty if none.
  Tensor<float> scores;

  Index n_row_blocks() const { return rows_per_list == 0 ? 0 : (n_tok + rows_per_list - 1) / rows_per_list; }
  /// The list that query `row` of the call uses under owner `owner_index`.
  const KeyList& list(Index owner_index, Index row) const {
    return lists[static_cast<std::size_t>(owner_index * n_row_blocks() + row / rows_per_list)];
  }
};

/// Index of the list owner that serves a query head. group = n_q / n_kv.
inline Index owner_of(ListOwner owner, Index q_head, Index group) {
  switch (owner) {
    case ListOwner::q_head: return q_head;
    case ListOwner::kv_head: return q_head / group;
    case ListOwner::layer: return 0;
  }
  return 0;
}

/// Throws ShapeError (our own mistake or a plug-in's) unless every list is sorted, unique, disjoint and inside [0, n_keys).
void check_selection(const Selection& selection, Index n_owners, Index n_keys);

}  // namespace kvscope
