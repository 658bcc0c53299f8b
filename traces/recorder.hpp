// Runs a model over a prompt, lets it decode greedily, and records what its attention layers saw.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/base/progress.hpp"
#include "core/model/tokenizer.hpp"
#include "core/model/transformer.hpp"
#include "core/trace/info.hpp"
#include "core/trace/receiver.hpp"
#include "traces/kept_recording.hpp"

namespace kvscope {

/// What to record, and what the trace shall say about where it comes from.
struct RecordOptions {
  CaptureSet capture;
  DType dtype = DType::f32;      // storage of q, k, v and dense attention
  Index chunk = 512;             // prompt tokens per forward call
  Index n_decode = 0;            // tokens to decode after the prompt
  std::vector<TokenId> end_ids;  // a decoded one of these is the last; empty: none ends it
  std::vector<Index> layers;     // empty = all
  std::vector<Index> q_heads;    // query heads; empty = all. Their KV heads follow.
  /// Positions whose q, lse, attention rows and logits are kept; default all.
  std::optional<TokenRange> rows;
  /// What the trace says about where it comes from: names, hash and config of the model, text,
  /// command line, writer (empty: writer_name()), seed, number formats. The rest is planned.
  TraceInfo origin;
  /// For recordings that go on after a kill: the calls that it has are not run again, and a stop
  /// leaves the receiver's calls for the next run. The receiver's WriterOptions::kept_calls says
  /// how many these are.
  const KeptRecording* kept = nullptr;
};

struct RecordReport {
  TraceStatus status = TraceStatus::complete;
  Index n_kept = 0;    // tokens that an earlier run had recorded
  Index n_prompt = 0;  // tokens of the prompt that were recorded
  Index n_decoded = 0;
  bool has_ended = false;  // with one of RecordOptions::end_ids
  double prefill_seconds = 0;
  double decode_seconds = 0;
  std::int64_t bytes_written = 0;
  std::string content_hash;
  std::vector<float> moved_scores;  // TraceInfo's
};

/// The trace that these options make of a prompt of n_prompt tokens. Throws ConfigError: empty
/// prompt, prompt and decoded tokens beyond the model's context, layers, heads or rows that do not
/// exist, nothing to capture.
TraceInfo plan_recording(const ModelConfig& config, Index n_prompt, const RecordOptions& options);

/// Records into `receiver` and finishes it: complete (also where one of end_ids came before
/// n_decode tokens; RecordReport::n_decoded says how many there are), or interrupted if `stop` was
/// requested (checked between forward calls; the calls so far are kept, and where options.kept is
/// given a stop is thrown as Interrupted). If `tokenizer` is null, the trace holds no token text.
/// Decoding
/// is greedy: each next token is the arg max of the last logits, the smallest id among equals; the
/// token that the last step yields is not run. Throws ConfigError (plan_recording; token ids
/// outside the vocabulary; KeptRecording::check), Interrupted if not even one call was whole, and
/// what model and receiver throw, with a hint how to recover the calls before.
RecordReport record_trace(const Transformer& model, const Tokenizer* tokenizer,
                          std::span<const TokenId> prompt, const RecordOptions& options,
                          TraceReceiver& receiver, ThreadPool& pool, const ProgressFn& progress,
                          std::stop_token stop = {});

}  // namespace kvscope
