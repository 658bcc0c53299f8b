// Closed-loop simulation: a selector inside the running model, so that layer l + 1 is computed from
// the sparse output of layer l.
//
// Use:
//   LiveSequence live(model, {"quest", Budget::parse("tokens=256")}, 4096, pool);
//   live.prefill(prompt, 128, PrefillMode::sparse);
//   logits = live.run(Phase::decode, {&token, 1}, Logits::last);
//   live.rollback(n);                    // rejected drafts
//
// Layers with a sliding window keep the model's own attention. Keys keep their true positions: what
// a method drops is left out of the lists, nothing is rotated again. What an evicting method
// dropped never comes back. With selector "full" every call has the bits of the plain model.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/model/transformer.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/sim/live_stats.hpp"
#include "core/sim/protocol.hpp"

namespace kvscope {

/// One method as it runs inside a model.
struct LiveOptions {
  MethodSpec selector = "full";
  std::optional<Budget> budget;       // empty for methods that take none
  std::optional<Index> dense_layers;  // leading layers left dense; empty = the method's own default
  WatchSelection watch = {};
};

/// How a prompt is filled in.
enum class PrefillMode {
  dense,   // methods without a history attend to everything; those with one (evicting, voting) live
           // through it as they do in every call
  sparse,  // the selector answers in every chunk
};

/// A dense pass over a calibration text (core/sim/memory_recording.hpp), for methods that learn
/// before they see a sequence.
struct LiveCalibration {
  const TraceSource* text = nullptr;
};

/// The attention structure of a model, for a sequence of up to max_tokens.
AttentionShape attention_shape(const ModelConfig& config, Index max_tokens);

/// One sequence of one model under one selector.
class LiveSequence {
 public:
  /// Throws ConfigError for a budget that the method does not take, a capacity beyond the model's
  /// positions, or a method that needs calibration when there is none.
  LiveSequence(const Transformer& model, const LiveOptions& options, Index capacity,
               ThreadPool& pool, const LiveCalibration& calibration = {});
  LiveSequence(LiveSequence&&) noexcept;
  ~LiveSequence();

  /// Runs one forward call. draft_rows as in SelectCall: for methods that need a draft. Throws
  /// ConfigError if they are missing, and what Transformer::forward throws.
  Tensor<float> run(Phase phase, std::span<const TokenId> tokens, Logits logits,
                    std::span<const Tensor<float>> draft_rows = {});

  /// Fills in the tokens in calls of `chunk`; logits of the last one.
  Tensor<float> prefill(std::span<const TokenId> tokens, Index chunk, PrefillMode mode,
                        Logits logits = Logits::none);

  /// True if a dense prefill does not depend on the method, so that adopt() may stand for it.
  bool shares_dense_prefill() const;
  /// Takes over the tokens of a dense run of the same model. The sequence must be empty and
  /// shares_dense_prefill() true, else ConfigError.
  void adopt(const KvStore& dense);

  /// Goes on where another sequence of the same model and method stands, which has no more tokens
  /// than there is room. Throws ConfigError for a method that remembers more than its masks.
  void go_on_from(const LiveSequence& other);

  /// Forgets the tokens at positions >= n_tokens, in the cache and in the selector.
  void rollback(Index n_tokens);

  /// While false the method sees the tokens but everything visible is attended to. Methods with a
  /// history answer all the same.
  void set_sparse(bool is_sparse);

  Index n_tokens() const { return cache_->n_tokens(); }
  KvStore& cache() { return *cache_; }
  /// The cache, for others to adopt(); the sequence is at its end.
  std::unique_ptr<KvStore> take_cache() && { return std::move(cache_); }
  const LiveStats& stats() const { return stats_; }
  void clear_stats() { stats_ = {}; }
  const SelectorRun& selector_run() const { return *run_; }
  const Transformer& model() const { return model_; }

 private:
  class Policy;
  const Transformer& model_;
  ThreadPool& pool_;
  std::unique_ptr<KvStore> cache_;
  AttentionShape shape_;
  std::unique_ptr<SelectorRun> run_;
  LiveStats stats_;
  bool has_history_ = false;
  bool is_sparse_ = true;
};

}  // namespace kvscope
