// Exact attention rows of a calibration text, for methods that learn from them.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/trace/source.hpp"

namespace kvscope {

/// The layers with full attention, ascending. Throws ConfigError, beginning with the method's name,
/// unless `text` holds q, k and v of all of them, of all heads and positions.
std::vector<Index> full_attention_layers(const TraceSource& text, std::string_view method);

/// Gets a query head, the place of its row in `positions`, and the row's softmax weights [position
/// + 1] (an attention sink takes its part, so that they may sum to less than 1).
using WeightRowVisitor =
    std::function<void(Index q_head, Index index, std::span<const double> weights)>;

/// Visits the rows at `positions` (ascending) of all query heads of one KV head, head by head, in
/// one thread.
void visit_weight_rows(const TraceSource& text, Index layer, Index kv_head,
                       std::span<const Index> positions, const WeightRowVisitor& visit);

}  // namespace kvscope
