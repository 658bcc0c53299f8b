// What one forward call asks of one attention layer: the operations and bytes of every stage,
// counted from the lists that a method really made.
#pragma once

#include <array>
#include <optional>

#include "core/attention/selection.hpp"
#include "core/selectors/selector.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// The shape of a call of one sequence.
struct CallShape {
  double n_q = 0.0;
  double n_kv = 0.0;
  double d_head = 0.0;
  double n_tok = 1.0;  // queries
  double n_ctx = 0.0;  // keys, the call's own included
  double group() const { return n_q / n_kv; }
};

/// Attending to keys: all heads of a layer together.
struct AttendWork {
  double pairs = 0.0;  // of a query and a key, over all query heads: 4 d_head FLOPs each
  double keys = 0.0;   // keys loaded, with their values: the union over a KV head's lists, summed
  double runs = 0.0;   // runs of adjacent keys among them
  double rows = 1.0;   // query rows that share what is loaded: rows of a list x heads that share it
};

/// Everything that a method does in a layer of a call.
struct LayerWork {
  CallShape shape;
  AttendWork attend;
  bool is_dense = false;      // everything visible; nothing below was done
  double score_flops = 0.0;   // the method's formula (SelectCost)
  double score_bytes = 0.0;   // in elements of two bytes, as SelectCost counts
  double append_bytes = 0.0;  // what the method writes about the call's own keys, likewise
  double ranked = 0.0;        // scores among which the largest are found, over all lists
  double summaries = 0.0;     // pseudo-keys (centroids, means), over all KV heads
};

/// Its numbers, in the order in which stores keep them.
std::array<double*, 14> numbers_of(LayerWork& work);

/// Everything visible, as flash attention reads it. window: the layer's sliding window.
LayerWork dense_work(const CallShape& shape, std::optional<Index> window = std::nullopt);

/// The work behind a selection. `tokens`: positions of the call's queries. cost: the method's own.
/// A dense selection without scoring is dense_work.
LayerWork measured_work(const Selection& selection, const SelectCost& cost, Index n_q, Index n_kv,
                        Index d_head, TokenRange tokens, Index page_size);

}  // namespace kvscope
