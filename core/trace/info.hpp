// What a trace says about itself: the model it came from, what was captured, and how the run ended.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/enum_names.hpp"
#include "core/base/index.hpp"
#include "core/model/config.hpp"
#include "core/tensor/dtype.hpp"
#include "core/tensor/score_rule.hpp"
#include "core/trace/side.hpp"

namespace kvscope {

/// Which arrays a recording holds.
struct CaptureSet {
  bool qkv = true;
  bool lse = true;
  bool logits = false;
  bool attn_dense = false;  // [n_q, n_rows, T]: grows with the square of the context
  Index attn_topk = 0;      // 0 = off; else the N largest probabilities of each row
  bool stats = false;       // norms and page minima/maxima
  bool routing = false;     // experts that each row's token went to, in mixture-of-experts layers
  Index page_size = 16;     // tokens per page of the stats
  bool k_pre_rope = false;  // keys before their rotation, beside those after it
  bool operator==(const CaptureSet&) const = default;
  /// As `record --capture` has them: "qkv", "attn-topk=64".
  std::vector<std::string> words() const;
};

/// Those of them that are there or not.
struct CaptureWord {
  std::string_view word;
  bool CaptureSet::*member;
};
inline constexpr std::array<CaptureWord, 7> kCaptureWords = {
    {{"qkv", &CaptureSet::qkv},
     {"lse", &CaptureSet::lse},
     {"logits", &CaptureSet::logits},
     {"attn", &CaptureSet::attn_dense},
     {"stats", &CaptureSet::stats},
     {"routing", &CaptureSet::routing},
     {"k-pre-rope", &CaptureSet::k_pre_rope}}};

/// How the recording ended.
enum class TraceStatus { recording, complete, interrupted, recovered };

/// One forward call of the recording run: a prefill chunk or one decode step.
struct ForwardCall {
  TokenRange tokens;
  bool is_decode = false;
  bool operator==(const ForwardCall&) const = default;
};

/// What is particular about one layer of the model.
struct LayerKind {
  bool has_rope = true;  // q and k were rotated by their positions
  Index n_experts = 0;   // 0 = a dense MLP
  bool operator==(const LayerKind&) const = default;
};

/// Shapes and provenance of a trace. Layers and heads carry their true indices of the model.
struct TraceInfo {
  // the model
  std::string model_name;    // folder name of the checkpoint
  std::string model_hash;    // core/model/model_hash.hpp; empty = not known
  std::string model_family;  // "llama", ...
  std::string model_config;  // config.json, verbatim
  Index n_layers = 0;
  Index n_q = 0;  // in every layer
  // Of every layer, unless layer_shapes says otherwise; then of the first recorded layer without a
  // window (of the first recorded one, if all have windows).
  Index n_kv = 0;
  Index d_head = 0;
  Index d_model = 0;
  Index n_vocab = 0;
  float score_scale = 1.0f;
  float score_cap = 0.0f;                    // 0 = none; see ScoreRule
  std::vector<LayerShape> layer_shapes;      // per layer of the model; empty = all as said above
  std::vector<std::optional<Index>> window;  // per layer of the model; empty = full attention
  /// Attention sinks [n_layers, n_q]: a logit per query head that joins every softmax of its layer
  /// and has no key; -inf throughout a layer that has none; empty = the model has none.
  std::vector<float> sink_logits;
  std::vector<LayerKind> layer_kinds;  // per layer of the model; empty = not known
  Index n_experts_per_token = 0;       // 0 = no layer has experts
  // What the model's settings call its rotation; the numbers are in rope_frequencies.
  std::string rope_kind;  // "default", "linear", "llama3", "yarn", ...
  double rope_theta = 0.0;
  double rope_factor = 1.0;
  /// Radians per position of the pairs of channels [n_layers, n_pairs]; 0: the pair stays, as do
  /// channels beyond the pairs. What q and k were rotated by, whatever the settings above say;
  /// empty = not known.
  std::vector<float> rope_frequencies;
  std::vector<float> rope_amplitudes;  // [n_layers] factor of the cosines and sines; likewise
  bool qk_norm = false;

  // what was captured
  CaptureSet capture;
  IndexShape index;          // the indexers whose tensors are there
  DType dtype = DType::f32;  // storage type of q, k, v
  // By how much storing q and k in `dtype` moved scores at most [recorded layers], nat
  // (traces/score_rounding.hpp). NaN where it was not measured; empty in f32, and in older files.
  std::vector<float> moved_scores;
  std::vector<Index> layers;    // recorded layers, ascending
  std::vector<Index> q_heads;   // recorded query heads, ascending
  std::vector<Index> kv_heads;  // the KV heads that those need, ascending; see n_kv
  TokenRange rows;              // positions whose q, lse, attn and logits are kept (k, v: all)
  Index n_tokens = 0;           // tokens recorded: prompt + decoded
  Index planned_tokens = 0;  // that it was to have; 0 = n_tokens (not interrupted, not ended early)
  Index token_text_capacity =
      0;               // bytes reserved for the text of all tokens; 0 = text is not recorded
  Index n_prompt = 0;  // prompt tokens; positions from here on were decoded
  Index chunk = 0;     // prefill chunk length (the last one may be shorter)
  std::vector<ForwardCall> calls;  // in order; together [0, n_tokens)

  // provenance
  std::string uuid;
  std::string content_hash;  // of the recorded data; empty while recording
  TraceStatus status = TraceStatus::recording;
  std::string created;         // ISO 8601 UTC; honours SOURCE_DATE_EPOCH
  std::string writer;          // "kvscope 0.1.0 (commit)"
  std::string tokenizer_hash;  // of the vocabulary; empty without a tokenizer
  std::string command_line;
  std::string host;
  std::string text_source;  // file name of the prompt, or what else it came from
  std::uint64_t seed = 0;
  std::string matmul;    // products of linear layers, as "bf16-amx"; empty: f32, or not known
  std::string kv_dtype;  // keys and values while the model ran; empty: f32, or not known

  Index n_planned() const { return planned_tokens > 0 ? planned_tokens : n_tokens; }
  Index group() const { return n_q / n_kv; }
  /// Of the layers that n_kv and what follows it speak of.
  LayerShape main_shape() const { return {n_kv, d_head, score_scale, score_cap}; }
  LayerShape shape(Index layer) const;
  /// The layer's sliding window; empty for full attention.
  std::optional<Index> window_of(Index layer) const;
  /// Query heads per KV head of a layer.
  Index group(Index layer) const { return n_q / shape(layer).n_kv; }
  /// The KV heads of a layer that the recorded query heads need, ascending.
  std::vector<Index> kv_heads_of(Index layer) const;
  /// The row of rope_frequencies of a layer of the model; empty if they are not known.
  std::span<const float> frequencies_of(Index layer) const;
  /// How scores follow from q.k.
  ScoreRule score_rule() const { return {score_scale, score_cap}; }
  /// The sink of a query head in a layer of the model; empty if the layer has none.
  std::optional<double> sink_logit(Index layer, Index q_head) const;
  /// All sinks of a layer [n_q]; empty if it has none.
  std::span<const float> layer_sink_logits(Index layer) const;
  /// True if the layer's tokens are routed to experts.
  bool has_experts(Index layer) const;
  bool has_layer(Index layer) const;
  bool has_q_head(Index q_head) const;
  /// The position in `layers` (or q_heads, kv_heads); throws ConfigError naming what is recorded.
  Index layer_slot(Index layer) const;
  Index q_slot(Index q_head) const;
  Index kv_slot(Index layer, Index kv_head) const;
  /// Pages of capture.page_size tokens that are full.
  Index n_full_pages() const { return n_tokens / capture.page_size; }
};

/// The same trace with these of its layers only, ascending. Where they are of one shape, it is as a
/// trace whose layers do not differ. Throws ConfigError for a layer that is not recorded.
TraceInfo with_layers(const TraceInfo& info, std::vector<Index> layers);

/// The recorded layers by shape, each ascending, the first of them by its first layer.
std::vector<std::vector<Index>> layers_by_shape(const TraceInfo& info);
/// The same by KV heads and channels alone.
std::vector<std::vector<Index>> layers_by_heads(const TraceInfo& info);

/// The same trace cut after its first `n_calls` calls: n_tokens, n_prompt, rows and calls are
/// shortened; planned_tokens keeps what it was to have.
TraceInfo cut_to_calls(const TraceInfo& info, Index n_calls);

/// Throws ConfigError naming the first field that is out of range or contradicts another one:
/// counts not positive, heads or layers outside the model or not ascending, calls that do not tile
/// [0, n_tokens), ...
void check_trace_info(const TraceInfo& info);

}  // namespace kvscope
