#include "core/sim/draft_rows.hpp"

#include <algorithm>

#include "core/attention/score_kernels.hpp"
#include "core/attention/score_rows.hpp"
#include "core/attention/visible.hpp"
#include "core/base/error.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

Tensor<float> narrowed(const Tensor<double>& rows) {
  auto out = Tensor<float>::uninitialized(rows.shape());
  std::transform(rows.flat().begin(), rows.flat().end(), out.data(),
                 [](double x) { return static_cast<float>(x); });
  return out;
}

/// Adds share * softmax(q k^T) of n_rows queries of one head, whose positions begin at pos_begin,
/// to `sums` [n_rows, >= pos_begin + n_rows]. q [n_rows, d_head].
void add_attention_rows(std::span<const float> q, const ScoreRule& score, Index n_rows,
                        Index pos_begin, const KeyTable& keys, std::optional<Index> window,
                        double share, std::optional<double> sink_logit, ScoreRows& scratch,
                        Tensor<double>& sums) {
  scratch.compute(widened(q, score.scale), n_rows, keys, {0, pos_begin + n_rows});
  for (Index r = 0; r < n_rows; ++r) {
    const TokenRange visible = visible_keys(pos_begin + r, window);
    const auto probs = scratch.row(r, visible);
    soft_cap(probs, score.cap);
    softmax_in_place(probs, sink_logit);
    add_scaled(probs, share, {&sums(r, visible.begin), probs.size()});
  }
}

/// Of one layer, [calls][call.size(), call.end].
std::vector<Tensor<float>> layer_rows(const TraceSource& draft, Index layer,
                                      std::span<const TokenRange> calls) {
  const TraceInfo& info = draft.info();
  const std::optional<Index> window = info.window_of(layer);
  std::vector<Tensor<double>> sums;
  for (const TokenRange& call : calls) sums.emplace_back(Shape{call.size(), call.end});
  ScoreRows scratch;
  for (Index kv_head : info.kv_heads_of(layer)) {
    const KeyTable keys(draft.read_k(layer, kv_head, {0, calls.back().end}).view());
    for (Index q_head : info.q_heads) {
      if (q_head / info.group(layer) != kv_head) continue;
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const Tensor<float> q = draft.read_q(layer, q_head, calls[i]);
        add_attention_rows(q.flat(), info.shape(layer).score_rule(), calls[i].size(),
                           calls[i].begin, keys, window,
                           1.0 / static_cast<double>(info.q_heads.size()),
                           info.sink_logit(layer, q_head), scratch, sums[i]);
      }
    }
  }
  std::vector<Tensor<float>> rows;
  for (const Tensor<double>& of_call : sums) rows.push_back(narrowed(of_call));
  return rows;
}

}  // namespace

Tensor<float> mean_attention(const AttentionQuestion& question, Index first, ThreadPool& pool) {
  const Index n_kv = question.k.dim(0);
  const Index n_ctx = question.k.dim(1);
  const Index group = question.q.dim(0) / n_kv;
  const Index n_rows = question.n_tok - first;
  std::vector<Tensor<double>> sums(static_cast<std::size_t>(n_kv));  // of a KV head's group
  pool.parallel_for(n_kv, [&](Index kv_head, int) {
    Tensor<double>& own = sums[static_cast<std::size_t>(kv_head)];
    own = Tensor<double>({n_rows, n_ctx});
    std::vector<float> rows;
    for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (Index row = first; row < question.n_tok; ++row) {
        for (const float x : question.q.sub(head).row(row))
          rows.push_back(question.score_scale * x);
      }
    }
    auto products = Tensor<double>::uninitialized({group * n_rows, n_ctx});
    std::vector<float> scratch;
    key_dots_f32(rows, group * n_rows, question.k.sub(kv_head), scratch, products.data(), n_ctx);
    for (Index i = 0; i < group * n_rows; ++i) {
      const Index row = i % n_rows;
      const TokenRange visible = visible_keys(question.pos_begin + first + row, question.window);
      const auto probs = products.view().row(i).subspan(static_cast<std::size_t>(visible.begin),
                                                        static_cast<std::size_t>(visible.size()));
      soft_cap(probs, question.score_cap);
      std::optional<double> sink;
      if (!question.sink_logits.empty())
        sink = question.sink_logits[static_cast<std::size_t>(kv_head * group + i / n_rows)];
      softmax_in_place(probs, sink);
      add_scaled(probs, 1.0 / static_cast<double>(question.q.dim(0)),
                 {&own(row, visible.begin), probs.size()});
    }
  });
  for (std::size_t i = 1; i < sums.size(); ++i) {
    std::ranges::transform(sums[i].flat(), sums[0].flat(), sums[0].flat().begin(), std::plus<>());
  }
  return narrowed(sums.front());
}

std::vector<std::vector<Tensor<float>>> draft_attention_rows(const TraceSource& draft,
                                                             std::span<const TokenRange> calls,
                                                             ThreadPool& pool) {
  const TraceInfo& info = draft.info();
  for (const TokenRange& rows : calls) {
    if (rows.begin >= info.rows.begin && rows.end <= info.rows.end && rows.end <= info.n_tokens)
      continue;
    throw ConfigError(
        "{}: the verified positions [{}, {}) are not all in the draft's recorded rows [{}, {})",
        draft.where(), rows.begin, rows.end, info.rows.begin, info.rows.end);
  }
  std::vector<std::vector<Tensor<float>>> of_calls(calls.size());
  for (auto& layers : of_calls) layers.resize(info.layers.size());
  pool.parallel_for(static_cast<Index>(info.layers.size()), [&](Index i, int) {
    const auto layer = static_cast<std::size_t>(i);
    std::vector<Tensor<float>> rows = layer_rows(draft, info.layers[layer], calls);
    for (std::size_t c = 0; c < calls.size(); ++c) of_calls[c][layer] = std::move(rows[c]);
  });
  return of_calls;
}

void require_same_tokens(const TraceSource& trace, const TraceSource& draft) {
  const auto verified = trace.tokens();
  const auto drafted = draft.tokens();
  if (drafted.size() < verified.size()) {
    throw ConfigError("draft trace {} holds {} tokens, expected the {} of {}", draft.where(),
                      drafted.size(), verified.size(), trace.where());
  }
  for (std::size_t i = 0; i < verified.size(); ++i) {
    if (verified[i] == drafted[i]) continue;
    throw ConfigError(
        "draft trace {} has token {} at position {}, {} has {}: expected the same text",
        draft.where(), drafted[i], i, trace.where(), verified[i]);
  }
}

}  // namespace kvscope
