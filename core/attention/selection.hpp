// A selection: which keys each query may attend to, as flat position lists; optionally weighted,
// and with summaries that stand for keys which are not in any list.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/base/raw_vector.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Key positions are absolute and fit 32 bits.
using KeyPos = std::int32_t;

/// Who owns one list: each query head, each KV head (its whole group), or the layer (all heads).
enum class ListOwner { q_head, kv_head, layer };

/// One list of keys while a method makes it. Both parts ascending, without repeats and disjoint.
/// Positions beyond a query's own are allowed (a list may serve many queries); the causal mask and
/// the window apply afterwards, per row.
struct KeyList {
  std::vector<KeyPos> scored;  // earned by a score: what the budget pays for
  std::vector<KeyPos> forced;  // kept by rule: sinks, recents, the running chunk, the last page
  /// Empty, or one per scored key: added to its score before the softmax (minus the logarithm of
  /// the probability with which a sampler drew it). Forced keys have weight 1.
  std::vector<float> log_weight;
  Index size() const { return static_cast<Index>(scored.size() + forced.size()); }
};

/// One list inside a selection. Views: good while the selection lives and nothing is added.
struct ListView {
  std::span<const KeyPos> keys;             // ascending, both parts
  std::span<const std::uint8_t> is_forced;  // [keys.size()]
  std::span<const float> log_weight;        // [keys.size()], or empty: all zero
  Index size() const { return static_cast<Index>(keys.size()); }
  bool empty() const { return keys.empty(); }
  /// Copies of one part, ascending.
  std::vector<KeyPos> scored() const { return part(0); }
  std::vector<KeyPos> forced() const { return part(1); }
  std::vector<KeyPos> part(std::uint8_t forced_flag) const;
  /// The keys for which stays(key) is true, with their parts and weights.
  template <class Stays>
  KeyList where(Stays&& stays) const {
    KeyList kept;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!stays(keys[i])) continue;
      (is_forced[i] != 0 ? kept.forced : kept.scored).push_back(keys[i]);
      if (!log_weight.empty() && is_forced[i] == 0) kept.log_weight.push_back(log_weight[i]);
    }
    return kept;
  }
};

/// Pseudo-keys that stand for many keys (cluster centroids, a mean value). Every query of
/// the call attends to those of its KV head as to keys: with score scale * q.k + log_count
/// before the softmax.
struct Summaries {
  std::vector<Index> begin;      // [n_kv + 1] rows of the arrays below; empty: there are none
  Tensor<float> k;               // [n, d_head]
  Tensor<float> v;               // [n, d_head]
  std::vector<float> log_count;  // [n] logarithm of the keys that it stands for
  /// Empty, or [n_q, n_tok]: the list keeps this share of the output and the KV head's one summary
  /// has the rest, whatever its score (SparQ's alpha); k and log_count are not looked at.
  Tensor<float> list_share;

  bool empty() const { return begin.empty(); }
  bool has_stated_share() const { return list_share.count() > 0; }
  Index count(Index kv_head) const { return empty() ? 0 : end_of(kv_head) - begin_of(kv_head); }
  Index begin_of(Index kv_head) const { return begin[static_cast<std::size_t>(kv_head)]; }
  Index end_of(Index kv_head) const { return begin[static_cast<std::size_t>(kv_head) + 1]; }
  Summaries clone() const;
};

/// What a selector chooses for one layer and one call. Lists are only added, in order: owners
/// outside, blocks of rows inside.
class Selection {
 public:
  ListOwner owner = ListOwner::kv_head;
  bool is_dense = false;    // everything visible; there are no lists
  Index n_tok = 0;          // queries of the call
  Index rows_per_list = 0;  // queries that share a list, in order; n_tok = the whole call
  Summaries summaries;

  Selection() = default;
  Selection(ListOwner list_owner, Index call_n_tok, Index list_rows)
      : owner(list_owner), n_tok(call_n_tok), rows_per_list(list_rows) {}
  static Selection dense(ListOwner list_owner, Index call_n_tok) {
    Selection all(list_owner, call_n_tok, call_n_tok);
    all.is_dense = true;
    return all;
  }

  /// A copy, or one of the lists alone: summaries belong to who made them.
  Selection clone() const;
  Selection lists_alone() const;

  /// Appends a list: its two parts merged.
  void add(const KeyList& list);
  /// Appends a list as it stands in another selection.
  void add(const ListView& list);
  /// Appends all lists of a part that was made apart.
  void append(const Selection& part);
  /// The same for several parts in order. run(n, task) calls task(i) for each i in [0, n), perhaps
  /// side by side.
  using RunTasks = std::function<void(Index n, const std::function<void(Index)>& task)>;
  void append(std::span<const Selection* const> parts, const RunTasks& run);
  void reserve(std::size_t n_keys);

  Index n_lists() const { return static_cast<Index>(begin_.size()) - 1; }
  Index n_row_blocks() const {
    return rows_per_list == 0 ? 0 : (n_tok + rows_per_list - 1) / rows_per_list;
  }
  /// The list at a place of the order [n_owners][n_row_blocks].
  ListView at(Index index) const;
  /// The list that query `row` of the call uses under owner `owner_index`.
  ListView list(Index owner_index, Index row) const {
    return at(owner_index * n_row_blocks() + row / rows_per_list);
  }

  /// The flat arrays: keys of all lists after each other, where each list begins ([n_lists + 1]),
  /// which keys are forced, and their log-weights (empty: none has any).
  std::span<const KeyPos> keys() const { return keys_; }
  std::span<const Index> begins() const { return begin_; }
  std::span<const std::uint8_t> forced_flags() const { return is_forced_; }
  std::span<const float> log_weights() const { return log_weight_; }

 private:
  void add_weights(std::size_t n_before, std::span<const float> weights);
  RawVector<KeyPos> keys_;
  RawVector<std::uint8_t> is_forced_;
  std::vector<float> log_weight_;  // empty until a list brings weights
  std::vector<Index> begin_{0};
};

/// Index of the list owner that serves a query head. group = n_q / n_kv.
inline Index owner_of(ListOwner owner, Index q_head, Index group) {
  switch (owner) {
    case ListOwner::q_head:
      return q_head;
    case ListOwner::kv_head:
      return q_head / group;
    case ListOwner::layer:
      return 0;
  }
  return 0;
}

/// Throws ShapeError (our own mistake or a plug-in's) unless every list is ascending, unique and
/// inside [0, n_keys), weights are finite, and summaries have the shapes stated above.
void check_selection(const Selection& selection, Index n_owners, Index n_keys);

}  // namespace kvscope
