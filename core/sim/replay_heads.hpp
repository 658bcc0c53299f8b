// Replays a layer one KV head after another: the memory of one head instead of all, and the same
// bits.
#pragma once

#include "core/sim/replay.hpp"

namespace kvscope {

/// True if the methods of these pairs choose for each KV head without a look at others. Not those
/// that divide a budget among heads, keep one list for a layer, pass context between layers, learn
/// from another text or an artifact, follow a draft or the model's indexer, draw by a head's number
/// or share what they cost among heads, or came at run time.
bool chooses_by_head(const std::vector<ReplayPair>& pairs);

/// True if replay_layers goes by heads: the methods allow it, the keys and values of a layer take
/// more than options.most_layer_bytes, and nobody wants to see rows or selections.
bool goes_by_head(const TraceInfo& info, const std::vector<ReplayPair>& pairs,
                  const ReplayOptions& options);

/// As replay_layers, which hands over to it.
std::vector<LayerReplay> replay_by_head(const TraceSource& trace, const std::vector<Index>& layers,
                                        const std::vector<ReplayPair>& pairs,
                                        const ReplayOptions& options, ThreadPool& pool,
                                        const ProgressFn& progress, const std::stop_token& stop);

}  // namespace kvscope
