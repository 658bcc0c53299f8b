// What the layer diagram of core/model/transformer.cpp is computed on: the seam for other hardware.
//
// A backend is made from a model's weights and keeps them in its own form; a layer is named by its
// index. Activations are opaque blocks: no host pointer crosses this interface except where
// somebody looks (to_host_rows, host_lse, hand_out, host_k, logits). Operations may be queued; what
// returns host data waits for it.
//
// The promise of the lane backend, and of others in f32: a token's numbers have the same bits
// whatever the division of the tokens into calls and the number of threads. Between backends, and
// where another one computes in bf16, only rounding is equal.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "core/attention/list_plan.hpp"
#include "core/attention/question.hpp"
#include "core/attention/remote_rows.hpp"
#include "core/attention/selection.hpp"
#include "core/base/device_memory.hpp"
#include "core/base/parallel.hpp"
#include "core/base/stopwatch.hpp"
#include "core/model/config.hpp"
#include "core/model/kv_store.hpp"
#include "core/model/layer_weights.hpp"
#include "core/model/linear.hpp"
#include "core/model/observer.hpp"
#include "core/model/routing.hpp"
#include "core/model/tokenizer.hpp"

namespace kvscope {

/// Activations of one forward call, [n_tok, n_features] in whatever layout and memory.
class Block {
 public:
  virtual ~Block() = default;
};

/// One forward call: tokens at [pos_begin, pos_begin + n_tok) of one KvStore. Operations are called
/// in the order of the layer diagram; blocks are those of the same call. Outputs (y, out) are
/// overwritten. Errors: FormatError where NaN or infinity appears, which names layer and position.
class BackendCall {
 public:
  virtual ~BackendCall() = default;

  virtual std::unique_ptr<Block> make_block(Index n_features) = 0;

  /// x = the tokens' embeddings times the model's scale; keeps those for each layer, where there
  /// are such. x [n_tok, d_model]
  virtual void embed(std::span<const TokenId> tokens, Block& x) = 0;
  /// y = norm(x); they may be the same block. [n_tok, d_model]
  virtual void norm(Index layer, NormAt at, const Block& x, Block& y) = 0;
  /// q, k, v = the layer's projections of x. q [n_tok, n_q * d_head], k and v [n_tok,
  /// n_kv * d_head]; of a layer that attends to another one's keys q alone.
  virtual void project_qkv(Index layer, const Block& x, Block& q, Block& k, Block& v) = 0;
  /// QK-norm and RoPE of q and k, as far as the layer has them; then k and v join the store.
  virtual void position_and_append(Index layer, Block& q, Block& k, const Block& v) = 0;
  /// out = softmax attention to every key that the layer lets a query see. [n_tok, n_q * d_head]
  virtual void attend(Index layer, const Block& q, Block& out) = 0;
  /// The same over the selection's lists (is_dense false). `question` is the one that was chosen
  /// for; it holds q on the host, which equals the block q.
  virtual void attend_lists(const AttentionQuestion& question, const Selection& selection,
                            const Block& q, Block& out) = 0;
  /// True if it reads the question's values where the store is in f32; else only policies do.
  virtual bool reads_host_values() const { return true; }
  /// y = the layer's output projection of x. [n_tok, n_q * d_head] -> [n_tok, d_model]
  virtual void project_out(Index layer, const Block& x, Block& y) = 0;
  /// y = down(activation(gate(x)) * up(x)), without a gate
  /// down(activation(up(x))). [n_tok, d_model]
  virtual void gated_mlp(Index layer, const Block& x, Block& y) = 0;
  /// y = the mixture of experts of x. [n_tok, d_model]
  virtual Routing mix_experts(Index layer, const Block& x, Block& y) = 0;
  /// x += y. [n_tok, d_model]
  virtual void add(Block& x, const Block& y) = 0;
  /// What comes behind the MLP in models with embeddings for each layer or numbers that scale x;
  /// branch is room. [n_tok, d_model]
  virtual void end_layer(Index layer, Block& x, Block& branch) {
    (void)layer, (void)x, (void)branch;
  }
  /// Logits of the last n_rows tokens: final norm, head, soft cap. [n_rows, n_vocab]
  virtual Tensor<float> logits(const Block& x, Index n_rows) = 0;

  /// q [n_q, n_tok, d_head] on the host, for observers and policies; valid until asked again.
  virtual TensorView<const float> to_host_rows(const Block& q) = 0;
  /// The log-sum-exp of the last attention. [n_q, n_tok]; -infinity where a query had no key
  virtual TensorView<const float> host_lse() = 0;

  /// Hands the layer's q, k, v and log-sum-exp out in `dtype`, copied while later operations run:
  /// give() is called in this thread, in the order of the layers, during a later operation,
  /// deliver() or finish(). False, and nothing happened, where the backend has no such copies.
  virtual bool hand_out(Index layer, DType dtype, std::function<void(const RowsEvent&)> give) {
    (void)layer, (void)dtype, (void)give;
    return false;
  }
  /// Gives all that was handed out; waits for it.
  virtual void deliver() {}

  /// Chooses the keys of attend_chosen by a plan that the backend knows, from its own rows. False,
  /// and nothing happened, where it does not take this plan in this call. Lists are those of the
  /// method itself.
  virtual bool choose(Index layer, const ListPlan& plan, const Block& q) {
    (void)layer, (void)plan, (void)q;
    return false;
  }
  /// out = attention over the last choice and the causal part of the call. [n_tok, n_q * d_head]
  virtual void attend_chosen(Index layer, const Block& q, Block& out) {
    (void)layer, (void)q, (void)out;
  }

  /// The layer's queries and keys for a policy that does not need them on the host; null where the
  /// backend does not answer about this layer. Good until the next layer.
  virtual const RemoteRows* remote_rows(Index layer) {
    (void)layer;
    return nullptr;
  }

  /// The last choice as lists on the host, those of the call's own keys included; waits.
  virtual Selection chosen_lists() { return {}; }
  /// Counts the last choice, for chosen_counts(layer).
  virtual void count_chosen(Index layer) { (void)layer; }
  /// Of a layer of this call that was counted; waits, also after finish().
  virtual ListCounts chosen_counts(Index layer) {
    (void)layer;
    return {};
  }

  /// The time of the operations between the two is added to `seconds`, at the latest by finish().
  virtual void start_clock() { clock_ = Stopwatch(); }
  virtual void stop_clock(double& seconds) { seconds += clock_.seconds(); }
  /// Comes last. All that was asked for is computed when it returns; throws the FormatError of a
  /// value that nobody looked at.
  virtual void finish() {}

 private:
  Stopwatch clock_;
};

/// Memory of a device, or the host's, for sequences that run side by side, in bytes.
struct SequenceMemory {
  std::size_t needed = 0;  // by one of them, about: its store and the memory of its calls
  std::size_t free = 0;
};

/// A model on some hardware. Its weights are shared and read only; calls of different stores may
/// run in several threads at once, and change no bit of each other's results. A store has one call
/// at a time. What a device has no memory for ends in a DeviceMemoryError.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// True if calls may choose() keys by a plan.
  virtual bool follows_plans() const { return false; }
  /// Room for `capacity` tokens. Throws ConfigError beyond the model's max_positions.
  virtual std::unique_ptr<KvStore> make_store(Index capacity) const = 0;
  /// A call of n_tok tokens from store.n_tokens() on. Throws ConfigError for a store of another
  /// backend. The pool may be used until the call is destroyed.
  virtual std::unique_ptr<BackendCall> begin(Index n_tok, KvStore& store,
                                             ThreadPool& pool) const = 0;
  /// For a sequence of up to `capacity` tokens in calls of at most n_tok; empty where nobody knows.
  virtual std::optional<SequenceMemory> memory_of(Index capacity, Index n_tok) const {
    (void)capacity, (void)n_tok;
    return std::nullopt;
  }
};

/// Makes a backend from weights that outlive it.
using BackendFactory =
    std::function<std::unique_ptr<Backend>(const ModelConfig& config, const ModelWeights& weights)>;

/// How the lane backend computes and stores.
struct LaneOptions {
  /// Of linear layers; with keys in bf16 also of attention (f32: their best).
  Matmul matmul = Matmul::f32;
  DType kv_dtype = DType::f32;  // of new stores: f32 or bf16
};

/// The default: vector code on lane blocks (core/tensor/lane_kernels.hpp), stores are KvCache.
std::unique_ptr<Backend> make_lane_backend(const ModelConfig& config, const ModelWeights& weights);
BackendFactory lane_backend(const LaneOptions& options);

/// Throws the FormatError of a value that is NaN or infinite. what: "the keys".
[[noreturn]] void throw_not_finite(std::string_view what, Index layer, Index pos);

}  // namespace kvscope
