// QuoKA on one KV group of one layer: the plan of chunks, and the arrays that a layer fills.
#pragma once

#include <optional>
#include <stop_token>
#include <vector>

#include "analysis/base/layer_arrays.hpp"
#include "analysis/kinds/quoka.hpp"

namespace kvscope {

/// One chunk of the replay.
struct QuokaChunk {
  TokenRange tokens;  // its queries
  bool is_decode = false;
  TokenRange candidates;  // keys that compete; empty if the chunk is dense
  Index budget = 0;       // how many of them are kept, at most
  Index score_begin = 0;  // where its candidates start in key_scores/values
  Index kept_begin = 0;   // where its kept positions start in selected/positions
  /// True if the budget leaves something out.
  bool cuts() const { return budget < candidates.size(); }
};

/// Chunks of the prompt, then one chunk per decoded token.
struct QuokaPlan {
  QuokaPlan(const TraceInfo& info, const QuokaOptions& options);
  std::vector<QuokaChunk> chunks;
  Index n_scores = 0;  // entries of key_scores/values per KV head
  Index n_kept = 0;    // entries of selected/positions per KV head
  /// The last whole prompt chunk, for statistics at one visible length; empty if there is none.
  std::optional<Index> last_whole_chunk;
};

/// All arrays of one layer, by slots of the recorded heads.
struct QuokaLayer {
  QuokaLayer(ResultWriter& output, const TraceInfo& info, const QuokaPlan& plan,
             const QuokaOptions& options);

  LayerArrays arrays;
  Tensor<float>&s_q, &s_q_prompt, &mass, &log_max_weight, &breadth;  // [q_head, pos]
  Tensor<std::int32_t>& selected_queries;                            // [q_head, chunk, slot]
  Tensor<std::int32_t>& selected;                                    // [kv_head, entry]
  Tensor<float>* key_scores;            // [kv_head, entry]; null if they are not stored
  Tensor<float>& oracle_recall;         // [kv_head, chunk]
  Tensor<std::int32_t>& loaded;         // [kv_head, chunk]
  Tensor<std::uint8_t>& sink_selected;  // [kv_head, chunk]
  Tensor<std::uint8_t>& zero_mean;      // [kv_head, chunk], in no file
};

/// True if QuoKA selects in this layer: full attention, and past the dense layers.
bool quoka_selects_in(const TraceInfo& info, const QuokaOptions& options, Index layer);

/// Fills the slots of one KV head and its query heads: the selector sees them as a model of one KV
/// head, so queries=random draws otherwise than in a replay.
void quoka_group(const TraceSource& trace, const QuokaOptions& options, const QuokaPlan& plan,
                 Index layer, Index kv_slot, ThreadPool& pool, std::stop_token stop,
                 QuokaLayer& out);

}  // namespace kvscope
