// Where a recorder puts what the model showed, unit by unit.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/model/tokenizer.hpp"
#include "core/tensor/tensor.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// The rows of one layer in one unit, already reduced to the recorded heads. Absent parts are empty views.
/// n_tok: tokens of the unit; n_rows: those of them inside TraceInfo::rows.
struct LayerRows {
  Index layer = 0;
  TensorView<const float> q;          // [q_heads, n_rows, d_head]
  TensorView<const float> k;          // [kv_heads, n_tok, d_head]
  TensorView<const float> v;          // [kv_heads, n_tok, d_head]
  TensorView<const float> lse;        // [q_heads, n_rows]
  TensorView<const float> attn;       // [q_heads, n_rows, n_tokens of the trace], zero where invisible
  TensorView<const std::int32_t> topk_pos;  // [q_heads, n_rows, N] by falling probability; -1 pads
  TensorView<const float> topk_prob;        // [q_heads, n_rows, N]; 0 pads
  TensorView<const float> q_norm;     // [q_heads, n_rows]   (stats)
  TensorView<const float> k_norm;     // [kv_heads, n_tok]   (stats)
};

/// Write access to one trace. Protocol: begin, then per unit (in order): write_layer for each
/// recorded layer in order, write_logits if captured, set_tokens, commit_unit; at the end finish, or abandon.
/// Any call may throw IoError (disk full); what was committed before stays recoverable.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  /// `info` has all shapes of the planned run (n_tokens, units). Token bytes may be empty.
  virtual void begin(const TraceInfo& info) = 0;
  virtual void write_layer(const LayerRows& rows) = 0;
  virtual void write_logits(TensorView<const float> logits) = 0;  // [n_rows, n_vocab]
  /// Ids (and bytes, unless empty) of the unit's tokens.
  virtual void write_tokens(std::span<const TokenId> ids, std::span<const std::string> bytes) = 0;
  /// From here on the unit survives a kill.
  virtual void commit_unit() = 0;
  /// Makes the trace readable under its final name. `status`: complete or interrupted (fewer units than planned).
  virtual void finish(TraceStatus status) = 0;
};

}  // namespace kvscope
