// Where a recorder puts what the model showed, call by call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/tensor/tensor.hpp"
#include "core/tensor/typed_rows.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// The rows of one layer in one call, already reduced to the recorded heads. Absent parts are empty
/// views. n_tok: tokens of the call; n_rows: those of them inside TraceInfo::rows.
struct LayerRows {
  Index layer = 0;
  TypedRows q;                     // [q_heads, n_rows, d_head]
  TypedRows k;                     // [kv_heads, n_tok, d_head]
  TypedRows v;                     // [kv_heads, n_tok, d_head]
  TensorView<const float> lse;     // [q_heads, n_rows]
  TensorView<const float> q_norm;  // [q_heads, n_rows]   (stats)
  TensorView<const float> k_norm;  // [kv_heads, n_tok]   (stats)
  /// [kv_heads, n_pages, d_head] of keys (stats): the pages that this call fills,
  /// [begin / page_size, end / page_size).
  TensorView<const float> page_min;
  TensorView<const float> page_max;
  /// What q, k, v and lse lie in, if they may be read after the call as long as this is kept; null:
  /// all views are valid during the call only.
  std::shared_ptr<const void> memory = nullptr;
};

/// A block of attention rows of one layer in one call. Dense rows are large, so a call's rows may
/// come in several blocks, in order. Absent parts are empty views.
struct AttnRows {
  Index layer = 0;
  /// [q_heads, n, call end]: columns from there on are invisible, hence zero.
  TensorView<const float> attn;
  TensorView<const std::int32_t> topk_pos;  // [q_heads, n, N] by falling probability; -1 pads
  TensorView<const float> topk_prob;        // [q_heads, n, N]; 0 pads
};

/// The experts of the rows of one mixture-of-experts layer in one call.
struct RoutingRows {
  Index layer = 0;
  TensorView<const std::int32_t> expert;  // [n_rows, n_experts_per_token] by falling weight
  TensorView<const float> weight;         // [n_rows, n_experts_per_token]
};

/// The side tensors of one layer in one call (core/trace/side.hpp), as far as the recording has
/// them; absent parts are empty views.
struct SideRows {
  Index layer = 0;
  TensorView<const float> index_q;                // [n_heads, n_rows, width]
  TensorView<const float> index_k;                // [n_key_heads, n_tok, width]
  TensorView<const float> index_w;                // [n_heads, n_rows]
  TensorView<const std::int32_t> index_selected;  // [n_lists, n_rows, n_selected]
  TensorView<const float> k_pre_rope;             // [kv_heads, n_tok, d_head]
};

/// Write access to one trace. Protocol: begin, then per call (in order): for each recorded layer in
/// order write_layer and, if attention rows are captured, write_attn until all rows are there;
/// write_logits if captured, write_tokens, commit_call; at the end finish, or destroy the receiver
/// (what was committed stays recoverable). Any function may throw IoError (disk full); what was
/// committed before stays recoverable.
class TraceReceiver {
 public:
  virtual ~TraceReceiver() = default;
  /// `info` has all shapes of the planned run (n_tokens, calls). Token bytes may be empty.
  virtual void begin(const TraceInfo& info) = 0;
  /// Right after begin(): the ids that prefill calls will bring, so that a killed recording says
  /// which text it was of. Receivers that outlive no kill ignore them.
  virtual void announce_prompt(std::span<const TokenId> ids) { (void)ids; }
  virtual void write_layer(const LayerRows& rows) = 0;
  /// Receivers that keep no attention rows ignore them.
  virtual void write_attn(const AttnRows& rows) { (void)rows; }
  /// The layer's experts, after its write_layer; receivers that keep no routing ignore them.
  virtual void write_routing(const RoutingRows& rows) { (void)rows; }
  /// The layer's side tensors, after its write_layer; receivers that keep none ignore them.
  virtual void write_side(const SideRows& rows) { (void)rows; }
  virtual void write_logits(TensorView<const float> logits) = 0;  // [n_rows, n_vocab]
  /// Ids (and bytes, unless empty) of the call's tokens.
  virtual void write_tokens(std::span<const TokenId> ids, std::span<const std::string> bytes) = 0;
  /// Before commit_call(): TraceInfo::moved_scores so far, as many as begin() was given.
  virtual void write_moved_scores(std::span<const float> by_layer) { (void)by_layer; }
  /// From here on the call survives a kill; where there are n_waiting_calls(), not yet the last
  /// ones.
  virtual void commit_call() = 0;
  /// Makes the trace readable under its final name. `status`: complete (fewer calls than
  /// planned only where decoding ended by itself) or interrupted.
  virtual void finish(TraceStatus status) = 0;
  /// Bytes of tensor data written, and the hash of the contents once finish() returned (else
  /// empty).
  virtual std::int64_t bytes_written() const { return 0; }
  virtual std::string content_hash() const { return {}; }
  /// Calls given to commit_call() that a kill would still lose, since they wait for the disk.
  virtual Index n_waiting_calls() const { return 0; }
  /// What becomes of the committed calls if the recording ends here with an error: a clause for its
  /// message, or empty.
  virtual std::string recovery_hint() const { return {}; }
};

}  // namespace kvscope
