// One selector on its way through a recorded sequence: brings its state to the next measured call
// and asks it there.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/sim/protocol.hpp"
#include "core/sim/replay.hpp"
#include "core/sim/replay_calls.hpp"

namespace kvscope {

/// Side tensors of a recording as a replayed call sees them, for methods that choose by a model's
/// own indexer. Reads index keys of a layer once and index queries call by call.
class ReplaySide {
 public:
  /// What a call of the tokens in `call` sees in a layer, good until the next question. Empty
  /// tensors for a layer without an indexer; null for a recording without any.
  const SideView* of(const TraceSource& trace, Index layer, TokenRange call);

 private:
  std::map<Index, Tensor<float>> index_k_;  // by layer: [n_key_heads, n_tokens, width]
  Tensor<float> index_q_;                   // [n_heads, call.size(), width]
  Tensor<float> index_w_;                   // [n_heads, call.size()]
  SideView view_;
};

/// Keys and values of one layer, all KV heads.
struct ReplayLayer {
  Index layer = 0;
  std::optional<Index> window;
  std::span<const float> sink_logits;  // [n_q] or empty; of the trace's info
  Tensor<float> k;                     // [n_kv, n_tokens, d_head]
  Tensor<float> v;                     // [n_kv, n_tokens, d_head]
  const TraceSource* trace = nullptr;  // where side tensors are read from; must outlive the layer
};

/// The first n_tokens keys and values of a recorded layer; none of a layer with a window,
/// which stays dense.
ReplayLayer read_layer(const TraceSource& trace, Index layer, Index n_tokens);

/// True if the recorded layers without a window, up to the last of `layers`, are of one shape.
bool has_like_layers(const TraceInfo& info, const std::vector<Index>& layers);
/// Throws ConfigError if they are not, and the method carries what it finds in one layer to others.
void require_like_layers(const TraceSource& trace, const std::vector<Index>& layers,
                         const MethodSpec& selector);

/// The attention structure of a recording whose layers do not differ.
AttentionShape shape_of(const TraceInfo& info);

/// Queries of all heads at the positions of `range`: [n_q, range.size(), d_head].
Tensor<float> read_queries(const TraceSource& trace, Index layer, TokenRange range);

/// Pairs that one SelectorRun answers: all budgets of a method, or one of a method whose state
/// depends on its budget.
class ReplayRun {
 public:
  ReplayRun(const std::vector<ReplayPair>& pairs, std::vector<std::size_t> members,
            const AttentionShape& shape, std::optional<Index> dense_layers);

  /// Learns from another text, if the method wants to; never from the replayed one. Throws
  /// ConfigError if there is no such text (null), or if it is a recording of another model.
  void calibrate(const TraceSource* text, const std::vector<ReplayLayer>& layers, ThreadPool& pool);
  /// Appends what lies before `begin`. Methods with a history live through it in calls like the
  /// model's own: prefill chunks up to n_prompt, then those of `calls`; the others only see the
  /// keys.
  void advance(const TraceSource& trace, const std::vector<ReplayLayer>& layers, Index begin,
               const CallPlan& calls, Index n_prompt);
  void begin_call(Phase phase, TokenRange call, std::span<const Tensor<float>> draft_rows);
  /// Asks about one layer; selections() and costs() then hold one entry per member, and looked_at,
  /// if it is given, what the method looked at.
  void ask(const ReplayLayer& layer, TensorView<const float> q, TokenRange call,
           ThreadPool* pool = nullptr, SelectionTrace* looked_at = nullptr);

  const std::vector<std::size_t>& members() const { return members_; }
  std::span<const Selection> selections() const { return selections_; }
  const std::vector<SelectCost>& costs() const { return costs_; }
  const SelectorCaps& caps() const { return run_->caps(); }

 private:
  AttentionQuestion layer_call(const ReplayLayer& layer, TensorView<const float> q,
                               Index n_keys) const;

  std::vector<std::size_t> members_;  // indices into the pairs
  std::unique_ptr<SelectorRun> run_;
  AttentionShape shape_;
  bool has_history_ = false;
  std::span<const Selection> selections_;
  std::vector<SelectCost> costs_;
  std::unique_ptr<ReplaySide> side_;  // of methods that need it
  std::vector<float> no_query_;       // [d_head]: stands for queries that nobody looks at
};

/// The fewest runs that answer all pairs.
std::vector<ReplayRun> make_runs(const std::vector<ReplayPair>& pairs, const AttentionShape& shape,
                                 std::optional<Index> dense_layers);

}  // namespace kvscope
