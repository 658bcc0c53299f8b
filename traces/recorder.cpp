#include "traces/recorder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "core/base/error.hpp"
#include "core/base/stopwatch.hpp"
#include "core/base/version.hpp"
#include "core/model/kv_store.hpp"
#include "traces/hash.hpp"
#include "traces/recording_observer.hpp"

namespace kvscope {

namespace {

/// The indices asked for, sorted and each once; all of them if none was.
std::vector<Index> choose(std::vector<Index> asked, Index n, std::string_view what) {
  if (asked.empty()) {
    for (Index i = 0; i < n; ++i) asked.push_back(i);
    return asked;
  }
  std::sort(asked.begin(), asked.end());
  asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
  if (asked.front() < 0 || asked.back() >= n) {
    throw ConfigError("{} {} does not exist: the model has 0 to {}", what,
                      asked.front() < 0 ? asked.front() : asked.back(), n - 1);
  }
  return asked;
}

std::vector<ForwardCall> plan_calls(Index n_prompt, Index chunk, Index n_decode) {
  std::vector<ForwardCall> calls;
  for (Index begin = 0; begin < n_prompt; begin += chunk) {
    calls.push_back({{begin, std::min(begin + chunk, n_prompt)}, /*is_decode=*/false});
  }
  for (Index i = 0; i < n_decode; ++i)
    calls.push_back({{n_prompt + i, n_prompt + i + 1}, /*is_decode=*/true});
  return calls;
}

void check_captures(const CaptureSet& capture, Index n_tokens) {
  const bool any = capture.qkv || capture.lse || capture.logits || capture.attn_dense ||
                   capture.attn_topk > 0 || capture.stats || capture.routing || capture.k_pre_rope;
  if (!any)
    throw ConfigError(
        "nothing to capture: choose at least one of qkv, lse, attn, attn-topk=N, logits, stats, "
        "routing, k-pre-rope");
  if (capture.attn_topk < 0 || capture.attn_topk > n_tokens) {
    throw ConfigError("attn-topk={}: expected 1 to the number of tokens, {}", capture.attn_topk,
                      n_tokens);
  }
  if (capture.page_size < 1)
    throw ConfigError("page size {}: expected 1 or more", capture.page_size);
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

/// What a trace keeps of the tokenizer: the text of each token, and a fingerprint of all of them.
class TokenTexts {
 public:
  explicit TokenTexts(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {
    if (tokenizer_ == nullptr) return;
    std::string all;
    for (TokenId id = 0; id < tokenizer_->n_ids(); ++id) {
      const std::string text = of(id);
      longest_ = std::max(longest_, static_cast<Index>(text.size()));
      all += fmt::format("{}:", text.size()) + text;
    }
    hash_ = "xxh128:" + hash_text(all);
  }
  /// Ids that the model has and the tokenizer has not (padding of the vocabulary) have no text.
  std::string of(TokenId id) const {
    try {
      return std::string(tokenizer_->bytes_of(id));
    } catch (const ConfigError&) {
      return {};
    }
  }
  std::vector<std::string> of(std::span<const TokenId> ids) const {
    std::vector<std::string> texts;
    if (tokenizer_ == nullptr) return texts;
    for (const TokenId id : ids) texts.push_back(of(id));
    return texts;
  }
  /// Bytes that the prompt and n_decode tokens need at most.
  Index capacity(std::span<const TokenId> prompt, Index n_decode) const {
    Index n_bytes = 0;
    for (const auto& text : of(prompt)) n_bytes += static_cast<Index>(text.size());
    return tokenizer_ == nullptr ? 0 : std::max<Index>(n_bytes + n_decode * longest_, 1);
  }
  const std::string& hash() const { return hash_; }

 private:
  const Tokenizer* tokenizer_;
  Index longest_ = 0;
  std::string hash_;
};

/// Which positions of this call need logits: recorded rows, or the last one to choose the next
/// token from.
Logits logits_for(const TraceInfo& info, std::size_t call) {
  const TokenRange tokens = info.calls[call].tokens;
  const bool records =
      info.capture.logits && tokens.begin < info.rows.end && info.rows.begin < tokens.end;
  if (records) return Logits::all;
  const bool decode_follows = call + 1 < info.calls.size() && info.calls[call + 1].is_decode;
  return decode_follows ? Logits::last : Logits::none;
}

/// Says how far a recording is: a call counts once a kill would not lose it.
class CallProgress {
 public:
  CallProgress(const TraceInfo& info, const TraceReceiver& receiver, const ProgressFn& tell)
      : info_(info), receiver_(receiver), tell_(tell) {}
  /// After n_calls were given to commit_call().
  void report(std::size_t n_calls) {
    const std::size_t n_safe = n_calls - static_cast<std::size_t>(receiver_.n_waiting_calls());
    if (!tell_ || n_safe <= n_told_) return;
    n_told_ = n_safe;
    const ForwardCall& call = info_.calls[n_safe - 1];
    tell_({call.is_decode ? "decode" : "prefill", call.tokens.end, info_.n_tokens, "tokens"});
  }

 private:
  const TraceInfo& info_;
  const TraceReceiver& receiver_;
  const ProgressFn& tell_;
  std::size_t n_told_ = 0;
};

/// One recording run. Returns the number of whole calls.
std::size_t run_calls(const Transformer& model, const TokenTexts& texts,
                      std::span<const TokenId> prompt, const TraceInfo& info,
                      TraceReceiver& receiver, ThreadPool& pool, CallProgress& progress,
                      const std::stop_token& stop, const RecordOptions& recording,
                      RecordReport& report) {
  const KeptRecording* const kept = recording.kept;
  const std::vector<TokenId>& end_ids = recording.end_ids;
  const std::unique_ptr<KvStore> cache = model.make_store(info.n_tokens);
  const PreRotary pre_rotary(model.config());
  RecordingObserver observer(info, receiver, pool, &pre_rotary);
  TokenId next = 0;  // chosen by the last logits
  std::size_t first = 0;
  if (kept != nullptr && kept->n_calls() > 0) {
    first = static_cast<std::size_t>(kept->n_calls());
    report.n_kept = kept->n_tokens();
    if (first < info.calls.size()) {
      cache->copy_from(*kept->rows());
      next = kept->token(report.n_kept);
    }
  }
  for (std::size_t u = first; u < info.calls.size(); ++u) {
    if (stop.stop_requested()) return u;
    const ForwardCall& call = info.calls[u];
    const Stopwatch watch;
    const auto ids = call.is_decode ? std::span<const TokenId>(&next, 1)
                                    : prompt.subspan(static_cast<std::size_t>(call.tokens.begin),
                                                     static_cast<std::size_t>(call.tokens.size()));
    ForwardOptions options;
    options.logits = logits_for(info, u);
    options.observer = &observer;
    const Tensor<float> logits = model.forward(ids, *cache, pool, options);
    receiver.write_tokens(ids, texts.of(ids));
    receiver.write_moved_scores(observer.moved_scores());
    receiver.commit_call();
    report.moved_scores = observer.moved_scores();
    (call.is_decode ? report.decode_seconds : report.prefill_seconds) += watch.seconds();
    (call.is_decode ? report.n_decoded : report.n_prompt) += call.tokens.size();
    const bool is_end = call.is_decode && std::ranges::find(end_ids, next) != end_ids.end();
    if (is_end) report.has_ended = true;
    if (is_end) return u + 1;
    if (logits.count() > 0) next = argmax(logits.view().row(logits.dim(0) - 1));
    progress.report(u + 1);
  }
  return info.calls.size();
}

std::string with_hint(const Error& error, const TraceReceiver& receiver) {
  const std::string hint = receiver.recovery_hint();
  const std::string what = error.what();
  if (hint.empty() || what.find(hint) != std::string::npos) return what;
  return fmt::format("{}; {}", what, hint);
}

/// The rows of every layer, padded to as many pairs.
void add_rope(const ModelConfig& config, TraceInfo& info) {
  std::size_t n_pairs = config.rope.frequencies.size();
  if (config.local_rope) n_pairs = std::max(n_pairs, config.local_rope->frequencies.size());
  for (Index layer = 0; layer < config.n_layers && n_pairs > 0; ++layer) {
    const bool turns = config.has_rope[static_cast<std::size_t>(layer)];
    const RopeConfig& rope = config.rope_of(layer);
    info.rope_amplitudes.push_back(turns ? static_cast<float>(rope.amplitude) : 1.0f);
    for (std::size_t i = 0; i < n_pairs; ++i) {
      const bool has_pair = turns && i < rope.frequencies.size();
      info.rope_frequencies.push_back(has_pair ? rope.frequencies[i] : 0.0f);
    }
  }
  info.rope_kind = config.rope.kind;
  info.rope_theta = config.rope.theta;
  info.rope_factor = config.rope.factor;
}

}  // namespace

TraceInfo plan_recording(const ModelConfig& config, Index n_prompt, const RecordOptions& options) {
  if (n_prompt < 1) throw ConfigError("the prompt is empty: expected at least one token");
  if (options.chunk < 1) throw ConfigError("chunk {}: expected 1 or more", options.chunk);
  if (options.n_decode < 0) throw ConfigError("decode {}: expected 0 or more", options.n_decode);
  if (n_prompt > config.max_positions || options.n_decode > config.max_positions - n_prompt) {
    throw ConfigError(
        "{} prompt tokens and {} to decode exceed the context of the model, {} tokens", n_prompt,
        options.n_decode, config.max_positions);
  }
  TraceInfo info = options.origin;
  info.n_tokens = n_prompt + options.n_decode;
  check_captures(options.capture, info.n_tokens);

  info.model_family = enum_name(config.family);
  info.n_layers = config.n_layers;
  info.n_q = config.n_q;
  info.n_kv = config.n_kv;
  info.d_head = config.d_head;
  info.d_model = config.d_model;
  info.n_vocab = config.n_vocab;
  info.score_scale = config.score_scale();
  info.score_cap = static_cast<float>(config.plan.score_softcap);
  info.layer_shapes = config.layer_shapes;
  info.window = config.window;
  for (std::size_t i = 0; i < config.has_rope.size(); ++i) {
    info.layer_kinds.push_back(
        {config.has_rope[i], config.has_experts[i] ? config.moe.n_experts : 0});
  }
  info.n_experts_per_token = config.moe.n_picked;
  if (options.capture.routing && config.moe.n_experts == 0) {
    throw ConfigError("routing cannot be captured: {} models have no experts",
                      enum_name(config.family));
  }
  add_rope(config, info);
  info.qk_norm = config.qk_norm;

  info.capture = options.capture;
  info.dtype = options.dtype;
  info.layers = choose(options.layers, config.n_layers, "layer");
  info.q_heads = choose(options.q_heads, config.n_q, "query head");
  for (const Index q_head : info.q_heads) {
    const Index kv_head = q_head / config.group();
    if (info.kv_heads.empty() || info.kv_heads.back() != kv_head) info.kv_heads.push_back(kv_head);
  }
  if (!info.layer_shapes.empty()) info = with_layers(info, info.layers);
  info.rows = options.rows.value_or(TokenRange{0, info.n_tokens});
  if (info.rows.begin < 0 || info.rows.end > info.n_tokens || info.rows.begin >= info.rows.end) {
    throw ConfigError("rows {} to {}: expected a range inside the {} tokens", info.rows.begin,
                      info.rows.end, info.n_tokens);
  }
  info.n_prompt = n_prompt;
  info.chunk = options.chunk;
  info.calls = plan_calls(n_prompt, options.chunk, options.n_decode);

  info.created = timestamp();
  if (info.writer.empty()) info.writer = writer_name();
  info.host = host_name();
  check_trace_info(info);
  return info;
}

RecordReport record_trace(const Transformer& model, const Tokenizer* tokenizer,
                          std::span<const TokenId> prompt, const RecordOptions& options,
                          TraceReceiver& receiver, ThreadPool& pool, const ProgressFn& progress,
                          std::stop_token stop) {
  TraceInfo info = plan_recording(model.config(), static_cast<Index>(prompt.size()), options);
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < info.n_vocab) continue;
    throw ConfigError("prompt token {} has the id {}: the model's vocabulary ends at {}", i,
                      prompt[i], info.n_vocab - 1);
  }
  info.sink_logits = model.sink_logits();
  const TokenTexts texts(tokenizer);
  info.token_text_capacity = texts.capacity(prompt, options.n_decode);
  info.tokenizer_hash = texts.hash();
  if (options.kept != nullptr && options.kept->n_calls() > 0)
    info.moved_scores = options.kept->moved_scores();
  else if (info.dtype != DType::f32 && info.capture.qkv)
    info.moved_scores.assign(info.layers.size(), std::numeric_limits<float>::quiet_NaN());

  if (options.kept != nullptr) options.kept->check(info, prompt, !options.end_ids.empty());
  RecordReport report;
  if (options.kept != nullptr && options.kept->is_complete()) {
    report.n_kept = options.kept->n_tokens();
    return report;
  }
  receiver.begin(info);
  try {
    if (options.kept == nullptr || options.kept->n_calls() == 0) receiver.announce_prompt(prompt);
    CallProgress calls(info, receiver, progress);
    const std::size_t n_calls =
        run_calls(model, texts, prompt, info, receiver, pool, calls, stop, options, report);
    const bool is_whole = report.has_ended || n_calls == info.calls.size();
    if (options.kept != nullptr && n_calls > 0 && !is_whole)
      throw Interrupted("stopped: {}", receiver.recovery_hint());
    report.status = is_whole ? TraceStatus::complete : TraceStatus::interrupted;
    receiver.finish(report.status);
    calls.report(n_calls);
    if (n_calls == 0)
      throw Interrupted("stopped before the first call was whole: nothing was kept");
  } catch (const Interrupted&) {
    throw;
  } catch (const WriteRefused& error) {
    throw WriteRefused(with_hint(error, receiver));
  } catch (const IoError& error) {
    throw IoError(with_hint(error, receiver));
  } catch (const FormatError& error) {
    throw FormatError(with_hint(error, receiver));
  } catch (const ConfigError& error) {
    throw ConfigError(with_hint(error, receiver));
  }
  report.bytes_written = receiver.bytes_written();
  report.content_hash = receiver.content_hash();
  return report;
}

}  // namespace kvscope
