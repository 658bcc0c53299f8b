// The running model: chunked prefill and decode over one KV cache, through one layer function.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/model/attention_policy.hpp"
#include "core/model/backend.hpp"
#include "core/model/config.hpp"
#include "core/model/kv_cache.hpp"
#include "core/model/matrix.hpp"
#include "core/model/observer.hpp"
#include "core/model/tokenizer.hpp"
#include "core/model/weights.hpp"

namespace kvscope {

/// Which positions of a forward call get logits.
enum class Logits { none, last, all };

/// Where the time of forward calls went; added to by each call.
struct ForwardTimes {
  double attention_seconds = 0.0;  // from queries, keys and values to the heads' outputs
  double selection_seconds = 0.0;  // the policy's choices
};

/// Per-call options of Transformer::forward.
struct ForwardOptions {
  Logits logits = Logits::none;
  Observer* observer = nullptr;       // may be null
  AttentionPolicy* policy = nullptr;  // may be null: dense everywhere
  ForwardTimes* times = nullptr;      // may be null
};

/// A decoder-only transformer (families: see ModelFamily) over mapped weights, on one backend.
/// Results are the same bits for any thread count and any division of the tokens into calls.
class Transformer {
 public:
  /// Loads config.json and the weights of a Hugging Face checkpoint folder. copies: see
  /// collect_weights. Throws IoError, FormatError or ConfigError.
  static Transformer load(const std::filesystem::path& model_dir,
                          const BackendFactory& backend = make_lane_backend,
                          Kept copies = Kept::as_f32);
  Transformer(ModelConfig config, WeightFiles weights,
              const BackendFactory& backend = make_lane_backend, Kept copies = Kept::as_f32);
  Transformer(Transformer&&) noexcept;
  Transformer& operator=(Transformer&&) noexcept;
  ~Transformer();

  const ModelConfig& config() const;
  const WeightFiles& weights() const;
  /// The output projection of a layer's attention, [d_model, n_q * d_head].
  const Matrix& output_matrix(Index layer) const;
  const Backend& backend() const;
  /// Room for the keys and values of `capacity` tokens. Throws ConfigError beyond
  /// the model's max_positions.
  std::unique_ptr<KvStore> make_store(Index capacity) const;
  /// Attention sinks [n_layers, n_q], row-major; empty if the model has none.
  std::vector<float> sink_logits() const;

  /// Runs `tokens` at positions cache.n_tokens() ... and appends their keys and values to `cache`,
  /// a store of the model's backend (a KvCache for the default one).
  /// Returns logits [n_tok or 1, n_vocab], empty for Logits::none. Throws ConfigError if the
  /// cache has no room or a token id is not in the vocabulary, FormatError if NaN or Inf appears
  /// (broken weights), and whatever the observer or policy throws; the cache then holds the
  /// tokens it held before.
  Tensor<float> forward(std::span<const TokenId> tokens, KvStore& cache, ThreadPool& pool,
                        const ForwardOptions& options = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The index of the largest value; the smallest index among equals.
TokenId argmax(std::span<const float> values);

}  // namespace kvscope
