// What a draft model attended to: the rows that a verification hands to methods such as SpecAttn.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/attention/question.hpp"
#include "core/attention/score_rows.hpp"
#include "core/base/parallel.hpp"
#include "core/model/config.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

/// Adds share * softmax(q k^T) of n_rows queries of one head, whose positions begin at pos_begin,
/// to `sums` [n_rows, >= pos_begin + n_rows]. q [n_rows, d_head]; `score`: how scores follow from
/// q.k; sink: the head's attention sink, if it has one.
void add_attention_rows(std::span<const float> q, const ScoreRule& score, Index n_rows,
                        Index pos_begin, const KeyTable& keys, std::optional<Index> window,
                        double share, std::optional<double> sink_logit, ScoreRows& scratch,
                        Tensor<double>& sums);

/// Attention rows of a running call's queries from `first` on, averaged over the query heads; 0
/// where a query does not see a key. Products in f32, softmax and mean in f64. [n_tok - first,
/// keys of the context]. The same for any thread count.
Tensor<float> mean_attention(const AttentionQuestion& question, Index first, ThreadPool& pool);

/// The sink of a query head among a model's sinks [n_layers, n_q] (Transformer::sinks); empty if
/// there are none.
std::optional<double> sink_logit_of(std::span<const float> sink_logits, const ModelConfig& config,
                                    Index layer, Index q_head);

/// The same values, stored as f32.
Tensor<float> narrowed(const Tensor<double>& rows);

/// Attention rows of the queries in each of `calls` (ascending), averaged over the query heads, of
/// every layer recorded in `draft`: [calls][n_layers][call.size(), call.end]; zero where a query
/// does not see a key. Exact softmax in f64, stored as f32. Keys are read once for all calls.
/// Throws ConfigError if the draft trace does not hold these positions.
std::vector<std::vector<Tensor<float>>> draft_attention_rows(const TraceSource& draft,
                                                             std::span<const TokenRange> calls,
                                                             ThreadPool& pool);

/// Throws ConfigError unless both traces were recorded over the same tokens (the draft may be
/// longer).
void require_same_tokens(const TraceSource& trace, const TraceSource& draft);

}  // namespace kvscope
