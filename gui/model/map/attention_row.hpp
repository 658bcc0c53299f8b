// One exact attention row: how much a query of a head looks at every key before it.
#pragma once

#include <stop_token>
#include <vector>

#include "core/trace/source.hpp"

namespace kvscope::gui {

/// Softmax weights of one query, computed from q and k in f64 scores.
struct AttentionRow {
  Index query = 0;
  TokenRange visible;
  std::vector<float> probs;  // [visible.size()], of positions visible.begin + i
  double sink_weight = 0.0;  // what the learned sink takes of the row
  std::size_t bytes() const { return sizeof *this + probs.size() * sizeof(float); }
  /// 0 for keys that the query does not see.
  double prob(Index pos) const {
    return pos >= visible.begin && pos < visible.end
               ? probs[static_cast<std::size_t>(pos - visible.begin)]
               : 0.0;
  }
};

/// Throws ConfigError for a position or head that was not recorded.
AttentionRow attention_row(const TraceSource& trace, Index layer, Index q_head, Index query);

}  // namespace kvscope::gui
