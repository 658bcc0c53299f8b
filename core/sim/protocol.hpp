// Runs one selector through a sequence: the numbered call protocol of core/selectors/selector.hpp,
// done once for replay, live simulation and tests.
//
// Use:
//   SelectorRun run(MethodSpec("quest").make(), shape, {Budget::parse("tokens=512")});
//   for each forward call:  run.begin_call(Phase::prefill, n_tok);
//     for each layer, ascending:  selections = run.layer_call(question);  // from select to evict
//   after a rejection of drafts:  run.rollback(n_keys);
//
// The run owns the alive masks and the cross-layer context. Layers that are never asked (not
// recorded) cost nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/selectors/score_engine.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

/// What the question about a layer may come with.
struct LayerExtras {
  /// Threads that the method may work on, outside any other loop of this pool; null = the
  /// calling thread alone.
  ThreadPool* pool = nullptr;
  SelectionTrace* trace = nullptr;  // see SelectCall
  const SideView* side = nullptr;   // see SelectCall
  /// The queries that were accepted of the layer's last verification (SelectorRun::n_verified), and
  /// the keys up to them, where it was asked about rows that lie elsewhere.
  const RemoteRows* verified = nullptr;
};

/// A method's selection for a question, or another one in its place. Nothing is left to a backend
/// then, which would choose unseen.
using WatchSelection = std::function<Selection(Selector& method, const SelectCall& call)>;

/// True if one run may answer several budgets: nothing that it keeps depends on the budget.
bool can_share_scoring(const SelectorCaps& caps);

class SelectorRun {
 public:
  /// One selection per budget. Throws ConfigError if the method does not understand a budget's
  /// kind, or if there are several and can_share_scoring is false. A method that takes no budget
  /// ignores them (there must be one all the same). dense_layers: leading layers left dense instead
  /// of the method's own default. precision: of the method's scores.
  SelectorRun(std::unique_ptr<Selector> selector, const AttentionShape& shape,
              std::vector<Budget> budgets, std::optional<Index> dense_layers = std::nullopt,
              ScorePrecision precision = ScorePrecision::f64);

  /// See Selector::calibrate; for those that ask for it, before the first call.
  void calibrate(const TraceSource& text, std::span<const Index> layers, ThreadPool& pool) {
    selector_->calibrate(text, layers, pool);
  }

  /// While closed, the method is not asked: selections are "everything visible".
  /// Only for methods whose later selections do not depend on earlier ones.
  void set_open(bool is_open) { is_open_ = is_open; }

  /// Of a run with one budget: sees every question to the method.
  void set_watch(WatchSelection watch) { watch_ = std::move(watch); }

  /// Starts a forward call with n_tok queries. draft_rows: see SelectCall; needed by
  /// caps().needs_draft in verify. Throws ConfigError if they are missing.
  void begin_call(Phase phase, Index n_tok, std::span<const Tensor<float>> draft_rows = {});

  /// Steps 3 to 7 for one layer; layers must come in ascending order within a call. Returns one
  /// checked selection per budget, good until the next layer_call. In a phase that the method is
  /// not defined for, and in its dense layers, every key that is alive is selected. A dense
  /// selection means every visible key; keys that are dead are never in a selection. Throws
  /// ShapeError naming the tensor that does not fit, ConfigError for missing values. input: keys
  /// and values of the whole context, the call's own included, v empty unless the method needs
  /// values; positions and scores are the run's own.
  std::span<const Selection> layer_call(const AttentionQuestion& input,
                                        const LayerExtras& extras = {});

  /// The plan by which layer_call would answer for this layer in the running call, where a backend
  /// may follow it alone; a plan by nothing where all visible keys are the selection.
  std::optional<ListPlan> plan(Index layer) const;
  /// What layer_call needs on the host; of the rest the shapes, and a RemoteRows for the data.
  HostRows host_rows() const;
  /// Takes the place of layer_call where a backend answered by a plan: the shapes of its
  /// tensors are looked at, not their data.
  void planned_call(const AttentionQuestion& input, Selection selection);

  /// Goes on where another run stands, of the same method with the same shape and budgets. Throws
  /// ConfigError for a method that remembers more than the runs do (Selector::remembers).
  void go_on_from(const SelectorRun& other);

  /// Forgets the keys at positions >= n_keys. What was evicted stays evicted: a permanent method
  /// evicts for a verification when the next call begins, of the tokens that are left then.
  void rollback(Index n_keys);

  /// How many queries of the layer's last verification the running call has a permanent method
  /// evict for: those that no rollback took away.
  Index n_verified(Index layer) const;
  /// True if the layer's running call was a verification that is still to be evicted for.
  bool waits(Index layer) const;
  /// True if a permanent method verifies, or did: it needs queries again when their call is over.
  bool looks_back() const;

  /// Positions so far, the running call included.
  Index n_keys() const { return n_keys_; }
  Index pos_begin() const { return pos_begin_; }
  const Selector& selector() const { return *selector_; }
  const SelectorCaps& caps() const { return caps_; }
  const AttentionShape& shape() const { return shape_; }
  const std::vector<Budget>& budgets() const { return budgets_; }
  /// True if the method itself answers for this layer in the running call; false where it stays
  /// dense.
  bool selects_in(Index layer) const { return !keeps_dense(layer); }
  /// What the last layer_call or planned_call answered (to the first budget).
  const Selection& last_selection() const { return selections_.front(); }
  /// The layer's mask as the last call left it.
  const AliveMask& alive(Index layer) const { return alive_[static_cast<std::size_t>(layer)]; }
  /// The question that layer_call asked last (its budget is the last one's), with the alive mask as
  /// it was then. Its tensors are the caller's.
  const SelectCall& last_call() const { return call_; }
  /// Counted work of the last layer_call's selection for one of the budgets; nothing where the
  /// method did not answer itself (dense layers, phases that it rests in).
  SelectCost cost(std::size_t budget) const;

 private:
  void check_input(const AttentionQuestion& input) const;
  void make_question(const AttentionQuestion& input, const LayerExtras& extras);
  /// Counts the call's keys as seen in the layer, and makes the question to the method.
  void begin_layer(const AttentionQuestion& input, const LayerExtras& extras);
  /// Has the method see and evict what it did not in the layer's last verification.
  void evict_after_verify(const AttentionQuestion& input, const LayerExtras& extras);
  bool keeps_dense(Index layer) const;

  /// The queries of a layer's verification whose evictions are still to come.
  struct Verified {
    Tensor<float> q;  // [n_q, n_tok, d_head], or empty where they lie elsewhere
    Index begin = 0;
    Index n_tok = 0;
    bool is_remote = false;
  };

  std::unique_ptr<Selector> selector_;
  SelectorCaps caps_;
  AttentionShape shape_;
  std::vector<Budget> budgets_;
  Index dense_layers_ = 0;
  bool is_open_ = true;
  WatchSelection watch_;

  std::vector<AliveMask> alive_;    // [n_layers]
  std::vector<Verified> verified_;  // [n_layers] or empty: of a permanent method
  AliveMask before_evict_;          // of the last layer_call of a permanent method
  CrossLayerContext context_;
  std::unique_ptr<ScoreEngine> engine_;
  SelectCall call_;
  Phase phase_ = Phase::prefill;
  Index n_calls_ = 0;     // forward calls begun
  Index next_layer_ = 0;  // the first layer that may still be asked in the running call
  Index pos_begin_ = 0;
  Index n_keys_ = 0;
  std::span<const Tensor<float>> draft_rows_;
  std::vector<Selection> selections_;  // [n_budgets]
};

}  // namespace kvscope
