// A selector decides which keys a layer's queries attend to. This header is the call protocol of
// all of them.
//
// Per sequence:
//   1. calibrate(text)     once, if caps().needs_calibration (Kascade's anchors, Loki's maps);
//                          a method whose option names a file of `kvscope fit` loads that instead
//   2. reset(shape)        before every sequence
// Per forward call (a prefill chunk, a decode step, a verification of gamma drafts), per layer in
// ascending order:
//   3. the engine appends the call's keys and values to its cache and marks them alive
//   4. select(call)            the selection; only alive and visible keys count as candidates
//   5. the engine attends to the selection (causal mask per row, softmax renormalised over
//      the list)
//   6. observe(call, ...)      if caps().needs_probs: the softmax weights over what was attended
//   7. evict(call, ...)        permanent methods clear bits of the alive mask; nothing else may
// The engine owns keys, values, true positions, the alive mask and the cross-layer context, and
// what a selector keeps of them from call to call: page boxes, hashes, votes (ScoreEngine::kept).
// When drafts are rejected, it cuts all of these; a selector is not told.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/attention/list_plan.hpp"
#include "core/attention/question.hpp"
#include "core/attention/remote_rows.hpp"
#include "core/attention/selection.hpp"
#include "core/base/fields.hpp"
#include "core/selectors/artifact_origin.hpp"
#include "core/tensor/tensor.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

struct KeyRotation;  // core/selectors/key_rotation.hpp
struct Learned;      // core/selectors/learned.hpp

enum class Phase { prefill, decode, verify };

class OutputProjection;
class ScoreEngine;
class ThreadPool;
class TraceSource;

/// The model's attention structure, fixed for a sequence.
struct AttentionShape {
  Index n_layers = 0;
  Index n_q = 0;
  Index n_kv = 0;
  Index d_head = 0;
  Index max_tokens = 0;
  float score_scale = 1.0f;
  float score_cap = 0.0f;  // 0 = none; see ScoreRule
  /// [n_layers] or empty: layers with a sliding window, which the engine leaves as they are and
  /// never asks about.
  std::vector<bool> has_window;
  /// By layer; null: how the model rotates its queries and keys is not known.
  std::shared_ptr<const std::vector<KeyRotation>> rotations;
  /// Null: the model's output projection is not at hand (a recording does not have it).
  std::shared_ptr<const OutputProjection> projection;
  Index group() const { return n_q / n_kv; }
  /// The first layer from `layer` on that is asked about; n_layers if there is none.
  Index next_asked(Index layer) const {
    while (layer < n_layers && layer < static_cast<Index>(has_window.size()) &&
           has_window[static_cast<std::size_t>(layer)]) {
      ++layer;
    }
    return layer;
  }
};

/// How much a selector may keep. Whether forced positions count inside is a property of the method
/// (caps).
struct Budget {
  enum class Kind { tokens, pages, ratio, mass };
  Kind kind = Kind::tokens;
  double value = 1024.0;

  /// "tokens=1024", "pages=64", "ratio=0.25", "p=0.95". Throws ConfigError: 0 or negative, ratio or
  /// p outside (0, 1].
  static Budget parse(std::string_view text);
  std::string to_string() const;
  /// Tokens for a context of n_keys candidates: ratio floors, at least 1; pages times page_size.
  /// Kind mass throws ConfigError.
  Index tokens(Index n_candidates, Index page_size) const;
};

template <>
struct EnumNames<Budget::Kind> {
  static constexpr std::array<std::string_view, 4> value = {"tokens", "pages", "ratio", "p"};
};

/// The kind's name, "none" without a budget: the column budget_kind of tables.
inline std::string kind_of(const std::optional<Budget>& budget) {
  return std::string(budget ? enum_name(budget->kind) : "none");
}

/// What most methods take.
inline const std::vector<Budget::Kind> kTokenBudgets = {Budget::Kind::tokens, Budget::Kind::ratio};

/// Static description of a method: drives menus, legality checks and the cost columns.
struct SelectorCaps {
  bool prefill = true;
  bool decode = true;
  bool verify = true;
  ListOwner owner = ListOwner::kv_head;
  bool permanent = false;    // evicts keys for good
  bool needs_probs = false;  // observe() must be fed
  bool needs_calibration = false;
  bool needs_draft = false;  // SelectCall::draft_rows must be there
  bool needs_side = false;   // SelectCall::side must be there: a recording with the model's indexer
  bool needs_values = false;
  bool needs_rotation = false;    // AttentionShape::rotations must be known
  bool needs_projection = false;  // AttentionShape::projection must be there: inside a model
  bool needs_all_heads = false;   // draws by a head's number, or its heads share a cost
  bool cross_layer = false;       // uses SelectCall::context, or compares layers when it calibrates
  bool is_static = false;         // ignores q and k
  bool uses_pool = false;         // so heavy that replay gives it all threads, one method at a time
  std::vector<Budget::Kind> budgets;  // kinds it understands; empty = takes none
  bool forced_inside_budget = false;
  bool keeps_by_option = false;  // permanent, and an option says how many keys stay, not the budget
  Index page_size = 1;           // granularity of the lists
  Index dense_layers = 0;        // the method's own default of leading layers kept dense
  /// The option that names a file of `kvscope fit`; empty: the method has nothing to learn.
  std::string_view artifact_option = {};
  /// A budget of N tokens is N on the average of a layer's KV heads; one of them may hold more.
  bool divides_budget = false;
  /// Steps that one list serves: those between must be gone through too (wrapper every).
  Index steps_per_choice = 1;

  /// " is not defined for prefill, but for decode": why a phase leaves a method out.
  std::string not_defined_for(Phase phase) const;

  /// True if the method answers in this phase; elsewhere it rests and attention is dense.
  bool is_defined(Phase phase) const {
    return phase == Phase::prefill ? prefill : phase == Phase::decode ? decode : verify;
  }
};

/// Which keys are still there, per KV head (layer's share). The engine owns it; only evict() clears
/// bits.
class AliveMask {
 public:
  AliveMask() = default;
  explicit AliveMask(Index n_kv) : bits_(static_cast<std::size_t>(n_kv)) {}
  void append(Index n_keys);
  void truncate(Index n_keys);
  void kill(Index kv_head, KeyPos pos);
  bool is_alive(Index kv_head, KeyPos pos) const {
    const auto at = static_cast<std::size_t>(pos);
    return (bits_[static_cast<std::size_t>(kv_head)][at / 64] >> (at % 64) & 1) != 0;
  }
  /// The positions of `range` that are alive, ascending.
  std::vector<KeyPos> keys(Index kv_head, TokenRange range) const;
  Index n_alive(Index kv_head) const;
  Index n_alive(Index kv_head, TokenRange range) const;
  bool all_alive(Index kv_head) const;
  Index n_keys() const { return n_keys_; }

 private:
  /// What is alive of a word of 64 positions, as far as it lies in the range.
  std::uint64_t word(Index kv_head, Index at, TokenRange range) const;

  std::vector<std::vector<std::uint64_t>> bits_;  // [n_kv][n_keys / 64], 0 behind n_keys
  std::vector<Index> n_dead_;
  Index n_keys_ = 0;
};

/// What later layers of the same call may read of earlier ones. The engine makes a fresh one per
/// call.
struct CrossLayerContext {
  std::map<std::string, std::vector<KeyPos>, std::less<>> lists;
  /// Lists of all owners and blocks of rows.
  std::map<std::string, Selection, std::less<>> selections;
};

/// What a method looked at while it chose, for analyses: filled where a call asks for it, as far as
/// the method has it.
struct SelectionTrace {
  TokenRange scored;  // positions that got scores; pages of methods that score pages
  std::vector<std::vector<double>> scores;  // [n_owners][scored.size()], dead keys at -infinity
  /// QuoKA: [n_q][n_tok] of each query with its head's mean query.
  std::vector<std::vector<double>> cosines;
  std::vector<std::vector<Index>> picks;    // QuoKA: [n_q][n_slots] rows of the call, slot by slot
  std::vector<std::uint8_t> has_zero_mean;  // QuoKA: [n_kv] a head's mean query is zero
  /// vAttention: [n_q][n_tok] of the list's softmax denominator, relative.
  std::vector<std::vector<double>> denominator_errors;
};

/// What a layer's own indexer made of a call and its context (core/trace/side.hpp); empty views:
/// the layer has no indexer, and the model attends to everything there.
struct SideView {
  TensorView<const float> index_q;  // [n_heads, n_tok, width]
  TensorView<const float> index_k;  // [n_key_heads, n_ctx, width]
  TensorView<const float> index_w;  // [n_heads, n_tok], or empty: no gates
};

/// One question to a selector.
struct SelectCall : AttentionQuestion {
  Phase phase = Phase::prefill;
  Index step = 0;  // counts forward calls from 0
  const AliveMask* alive = nullptr;
  Budget budget = {};
  CrossLayerContext* context = nullptr;
  /// verify: head-averaged attention rows of every draft layer, [n_draft_layers][n_rows, n_ctx],
  /// rows of the drafted tokens.
  std::span<const Tensor<float>> draft_rows = {};
  /// What scoring runs on; null = the calling thread, f64, nothing kept. Threads never
  /// change a selection.
  ScoreEngine* engine = nullptr;
  SelectionTrace* trace = nullptr;  // null = nobody wants to know
  const SideView* side = nullptr;   // null = the model's indexer, if it has one, was not recorded
};

/// Softmax weights over the attended keys, for methods that vote with them.
struct ObservedProbs {
  Index layer = 0;
  Index pos_begin = 0;
  Index n_tok = 0;
  /// probs(q_head, row, key): zero where not attended. Rows are made one at a time to bound memory.
  virtual ~ObservedProbs() = default;
  virtual void row(Index q_head, Index row, std::span<float> probs) const = 0;  // probs [n_ctx]
  /// Adds factor * probs, over the given rows of the call and the query heads of each owner
  /// (kv_head or layer), to sums [n_owners][n_ctx]. On the call's engine: all threads; in f64 the
  /// very sums of row() by query head and row.
  virtual void add_votes(ListOwner owner, TokenRange rows, double factor,
                         std::span<std::vector<double>> sums) const = 0;
};

/// Counted work of one call in one layer, from the method's formula (see its file), over the keys
/// that SelectCall::alive still holds.
struct SelectCost {
  double score_flops = 0.0;
  double score_bytes = 0.0;     // keys and metadata read to score
  double metadata_bytes = 0.0;  // held besides the cache
};

class Selector {
 public:
  virtual ~Selector() = default;
  /// That of the registry, if it made the method.
  virtual std::string_view name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  /// Once, when options have their values; throws ConfigError where they do not go together.
  virtual void configure() {}
  virtual SelectorCaps caps() const = 0;
  /// Why SelectionTrace::scores does not say what this method chooses by, in words that follow its
  /// name; empty: it does, so that another choice can be made from them (wrapper coarsen, the
  /// census of ties).
  virtual std::string why_no_scores() const { return "gives no score per key or page"; }
  /// Learns from a calibration text, before reset; what was learned outlives reset. `layers`: those
  /// that will be asked about, ascending; a method that compares layers reads all. Throws
  /// ConfigError if the text does not hold what is needed (tensors, layers, heads, length). The
  /// same for any thread count.
  virtual void calibrate(const TraceSource& text, std::span<const Index> layers, ThreadPool& pool) {
    (void)text, (void)layers, (void)pool;
  }
  /// What calibrate() learned, or the file that an option names holds; for
  /// methods with caps().artifact_option.
  virtual Learned learned() const;
  /// The files that the method's options name, of all its parts. Reads them; throws what
  /// read_artifact throws (core/selectors/artifact.hpp).
  virtual std::vector<ArtifactOrigin> artifacts() const { return {}; }
  virtual void reset(const AttentionShape& shape) { shape_ = shape; }
  Selection select(const SelectCall& call) {
    return std::move(select_budgets(call, std::span(&call.budget, 1)).front());
  }
  /// The selections for budgets (call.budget is ignored): one, or several of methods that are not
  /// permanent. Dense in the method's own dense layers. Throws ConfigError if a budget is of a kind
  /// that the method does not take, or values are missing that it needs.
  std::vector<Selection> select_budgets(const SelectCall& call, std::span<const Budget> budgets);
  virtual void observe(const SelectCall& call, const ObservedProbs& probs) {
    (void)call, (void)probs;
  }
  /// Clears bits of what leaves for good.
  virtual void evict(const SelectCall& call, AliveMask& alive) { (void)call, (void)alive; }
  /// Nothing, for methods that score nothing.
  virtual SelectCost cost(const SelectCall& call, const Selection& selection) const {
    (void)call, (void)selection;
    return {};
  }
  /// The method with this budget as a plan that a backend may follow on its own in this phase
  /// (core/model's BackendCall::choose); empty: it has options that no plan knows. Only for methods
  /// that keep nothing between calls.
  virtual std::optional<ListPlan> plan(const Budget& budget, Phase phase) const {
    (void)budget, (void)phase;
    return std::nullopt;
  }
  /// What of a call the method looks at itself in f32. What it does without may be elsewhere, where
  /// operations ask SelectCall::remote.
  virtual HostRows host_rows() const { return caps().is_static ? HostRows::none : HostRows::all; }
  /// True if it remembers of earlier calls what neither keys and values nor the alive mask tell.
  virtual bool remembers() const { return true; }

 protected:
  /// A method defines one of these two. The second, if its scores do not depend on the budget, to
  /// score once.
  virtual Selection do_select(const SelectCall& call);
  virtual std::vector<Selection> do_select_budgets(SelectCall call,
                                                   std::span<const Budget> budgets);

  AttentionShape shape_;  // of the sequence

 private:
  std::string name_;
};

}  // namespace kvscope
