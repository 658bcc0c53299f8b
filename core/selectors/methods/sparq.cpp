// sparq: scores from the largest query channels, the rest of the output from the mean value (arXiv
// 2312.04985; official code).
//
// Idea: take the r channels of largest sum of |q| over a KV group; approximate the scores with
// these channels only, divided by tau = sqrt(d * |q[I]|_1 / |q|_1); keep the latest keys and the
// best others; mix the exact output over the kept keys with the mean of all values, weighted by
// alpha, the approximate attention that the kept keys hold.
//
// Cost per call and layer with T keys before it: 2 n_q n_tok T r FLOPs; reads n_kv T r elements of
// K (which therefore has to lie in memory in both layouts: that copy, d elements of each key in the
// cache, is what it stores, and the running mean of V). Here live decode (f32) makes that copy and
// reads r channels of it; chunks, and all in f64, do without.
//
// Fails when the informative channels of the keys are not the large channels of the query.
//
// Decided where the sources differ or are silent: of a budget k in decode, l = k / 4 are the latest
// keys and the current token is free (k + 1 in all); heads of a group are ranked by the sum of
// their approximate logits; the mean value is used in decode only, mean-value=false turns it off
// (the paper leaves it out for GQA models). Chunked prefill and verification: channels by the sum
// of |q| over the chunk and group, mean logits over both, past keys scored, chunk forced, no local
// keys and no mean value. More channels than d_head means all of them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/attention/head_share.hpp"
#include "core/attention/remote_rows.hpp"
#include "core/attention/topk.hpp"
#include "core/base/error.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/key_columns.hpp"
#include "core/selectors/key_lists.hpp"
#include "core/selectors/linear_scores.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

/// A KV group's queries in the few channels where they are largest.
struct SparqQueries {
  std::vector<Index> channels;  // ascending
  /// [q_heads, channels]: each head's query divided by its tau, the mean over the rows. Logits are
  /// linear in q, so rows are averaged first; heads stay apart, each has its own alpha.
  std::vector<double> q;
};

/// sqrt(d * |q[I]|_1 / |q|_1); sqrt(d) for a query that is zero in these channels, whose logits are
/// all zero.
double tau(std::span<const float> q, std::span<const Index> channels) {
  double all = 0.0;
  double kept = 0.0;
  for (const float x : q) all += std::abs(static_cast<double>(x));
  for (const Index c : channels)
    kept += std::abs(static_cast<double>(q[static_cast<std::size_t>(c)]));
  const auto d = static_cast<double>(q.size());
  return kept > 0.0 ? std::sqrt(d * kept / all) : std::sqrt(d);
}

/// The n_channels channels of largest sum of |q| over the rows and heads given. q [n_q, n_tok,
/// d_head].
SparqQueries sparq_queries(TensorView<const float> q, TokenRange q_heads, Index n_channels) {
  const Index n_tok = q.dim(1);
  std::vector<double> size(static_cast<std::size_t>(q.dim(2)), 0.0);
  for (Index q_head = q_heads.begin; q_head < q_heads.end; ++q_head) {
    for (Index row = 0; row < n_tok; ++row) {
      const auto values = q.sub(q_head).row(row);
      for (std::size_t c = 0; c < size.size(); ++c)
        size[c] += std::abs(static_cast<double>(values[c]));
    }
  }
  SparqQueries out{top_k_sorted_by_index(size, n_channels), {}};
  const std::size_t width = out.channels.size();
  for (Index q_head = q_heads.begin; q_head < q_heads.end; ++q_head) {
    const std::size_t at = out.q.size();
    out.q.resize(at + width, 0.0);
    for (Index row = 0; row < n_tok; ++row) {
      const auto values = q.sub(q_head).row(row);
      const double factor = 1.0 / (tau(values, out.channels) * static_cast<double>(n_tok));
      for (std::size_t c = 0; c < width; ++c)
        out.q[at + c] +=
            factor * static_cast<double>(values[static_cast<std::size_t>(out.channels[c])]);
    }
  }
  return out;
}

/// Sums of the values of one KV head that grow with the cache. Every kStride tokens a copy is kept,
/// so that a rollback leads to the very same sums as if the dropped tokens had never been there.
class ValueSums {
 public:
  static constexpr Index kStride = 256;

  /// Adds values, [d_head] each or their sum, up to position `end`: the next multiple of kStride at
  /// most.
  template <class T>
  void add(std::span<const T> value, Index end) {
    if (copies_.empty()) copies_.emplace_back(value.size(), 0.0);
    if (n_values_ % kStride == 0) sum_ = copies_.back();
    for (std::size_t c = 0; c < sum_.size(); ++c) sum_[c] += static_cast<double>(value[c]);
    n_values_ = end;
    if (end % kStride == 0) copies_.push_back(sum_);
  }
  void truncate(Index n_values) {
    if (n_values >= n_values_) return;
    n_values_ = n_values / kStride * kStride;
    copies_.resize(static_cast<std::size_t>(n_values_ / kStride + 1));
  }
  std::span<const double> sum() const { return sum_; }
  Index n_values() const { return n_values_; }

 private:
  Index n_values_ = 0;
  std::vector<double> sum_;
  std::vector<std::vector<double>> copies_;
};

/// The running sum of a KV head, of all values of the context.
std::span<const double> running_sum(const SelectCall& call, ValueSums& sums, Index kv_head) {
  const auto v = call.v.sub(kv_head);
  while (sums.n_values() < v.dim(0)) sums.add(v.row(sums.n_values()), sums.n_values() + 1);
  return sums.sum();
}

/// The same of all KV heads where the values lie elsewhere.
void add_remote(const SelectCall& call, std::span<ValueSums* const> sums) {
  const Index n_ctx = call.k.dim(1);
  while (sums.front()->n_values() < n_ctx) {
    const Index begin = sums.front()->n_values();
    const Index end = std::min(n_ctx, (begin / ValueSums::kStride + 1) * ValueSums::kStride);
    const KeyValues more = call.remote->value_sums({begin, end});
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i]->add(std::span<const double>(more[i]), end);
  }
}

/// [n_kv][d_head] over the alive keys of call_range. The call's engine keeps running sums, so that
/// a decode step reads the new values alone; sums are those of the values one after the other.
KeyValues mean_values(const SelectCall& call) {
  const TokenRange visible = call_range(call);
  std::vector<ValueSums*> sums;
  for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head)
    sums.push_back(&engine_of(call).kept<ValueSums>(call.layer, kv_head));
  if (call.remote != nullptr) add_remote(call, sums);
  KeyValues means;
  for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
    std::vector<double> mean(static_cast<std::size_t>(call.k.dim(2)), 0.0);
    Index n = 0;
    if (visible.begin == 0 && all_alive(call, kv_head)) {
      ValueSums& own = *sums[static_cast<std::size_t>(kv_head)];
      const auto sum = call.remote != nullptr ? own.sum() : running_sum(call, own, kv_head);
      std::ranges::copy(sum, mean.begin());
      n = own.n_values();
    } else {
      for (const KeyPos pos : candidates(call, kv_head, visible)) {
        const auto value = call.v.sub(kv_head).row(pos);
        for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += static_cast<double>(value[c]);
        ++n;
      }
    }
    for (double& value : mean) value /= static_cast<double>(std::max<Index>(n, 1));
    means.push_back(std::move(mean));
  }
  return means;
}

class Sparq final : public SharedScoreSelector {
 public:
  Index n_channels_ =
      option(n_channels_, "n-channels", 0,
             "query channels that score (r); 0: channel-share of the head's", at_least(0));
  double channel_share_ =
      option(channel_share_, "channel-share", 0.5,
             "share of the head's channels that score, at least one", in(0.0, 1.0));
  double local_share_ =
      option(local_share_, "local-share", 0.25,
             "decode: share of the budget that goes to the latest keys", in(0.0, 1.0));
  bool mean_value_ = option(mean_value_, "mean-value", true,
                            "decode: the mean value stands in for what was left out");
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override {
    return {.needs_values = mean_value_, .budgets = kTokenBudgets, .dense_layers = dense_layers_};
  }

  HostRows host_rows() const override { return HostRows::queries; }
  std::string why_no_scores() const override {
    return mean_value_
               ? "states which share of the output its own list has (expected mean-value=false)"
               : "";
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const auto d = static_cast<double>(call.k.dim(2));
    const auto n_means = static_cast<double>(mean_value_ ? call.k.dim(0) : 0);
    return products_cost(queries_per_kv_head(call), alive_keys(call, past_range(call)),
                         static_cast<double>(n_channels(call))) +
           held_cost((alive_keys(call, {0, call.k.dim(1)}) + n_means) * d);
  }

 protected:
  /// The mean value of each KV head, a summary that has the share 1 - alpha of the output.
  void begin_call(const SelectCall& call, Summaries& summaries) override {
    if (!mixes(call)) return;
    const Index n_kv = call.k.dim(0);
    summaries.v = Tensor<float>({n_kv, call.v.dim(2)});
    summaries.list_share = Tensor<float>({call.q.dim(0), call.n_tok});
    summaries.begin = {0};
    const KeyValues means = mean_values(call);
    for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
      const std::vector<double>& mean = means[static_cast<std::size_t>(kv_head)];
      const auto row = summaries.v.view().row(kv_head);
      for (std::size_t c = 0; c < mean.size(); ++c) row[c] = static_cast<float>(mean[c]);
      summaries.begin.push_back(kv_head + 1);
    }
  }

  /// Each key is read once for all heads of its group.
  bool score_owners(const SelectCall& call, ListOwner, TokenRange keys,
                    std::span<const std::span<double>> scores) override {
    ScoreEngine& engine = engine_of(call);
    approximate_.clear();
    const TokenRange visible = call_range(call);
    const Index n_q = call.q.dim(0);
    const Index d = call.q.dim(2);
    const Index group = shape_.group();
    const auto n_visible = static_cast<std::size_t>(visible.size());
    const auto memory = engine.scratch<double>(ScoreEngine::Use::softmax,
                                               static_cast<std::size_t>(n_q) * n_visible);
    for (Index h = 0; h < n_q; ++h)
      approximate_.push_back(memory.subspan(static_cast<std::size_t>(h) * n_visible, n_visible));
    const bool reads_columns =
        is_decode(call) && call.remote == nullptr && engine.precision() == ScorePrecision::f32;
    std::vector<KeyColumns::Question> questions;
    // Zero in the channels that are left out.
    std::vector<double> queries(static_cast<std::size_t>(n_q * d), 0.0);
    for (Index first = 0; first < n_q; first += group) {
      const auto [channels, q] = sparq_queries(call.q, {first, first + group}, n_channels(call));
      if (reads_columns) {
        questions.push_back({{q.begin(), q.end()}, channels});
        continue;
      }
      for (std::size_t i = 0; i < q.size(); ++i) {
        const Index head = first + static_cast<Index>(i / channels.size());
        queries[static_cast<std::size_t>(head * d + channels[i % channels.size()])] = q[i];
      }
    }
    if (reads_columns) {
      columns_.append_up_to(call, d);
      columns_.scores(call, questions, visible, approximate_);
    } else {
      linear_scores(call, queries, visible, approximate_);
    }
    const auto offset = static_cast<std::size_t>(keys.begin - visible.begin);
    engine.run(static_cast<Index>(scores.size()), [&](Index kv_head, ScoreWorker&) {
      const std::span<double> out = scores[static_cast<std::size_t>(kv_head)];
      std::fill(out.begin(), out.end(), 0.0);
      for (Index h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        const auto row = approximate_[static_cast<std::size_t>(h)].subspan(offset, out.size());
        for (std::size_t t = 0; t < out.size(); ++t) out[t] += row[t] / static_cast<double>(group);
      }
    });
    if (mixes(call)) {
      // Weights for alpha: a share of what the keys get, of which an attention sink has none.
      engine.run(n_q, [&](Index h, ScoreWorker&) {
        soft_cap(approximate_[static_cast<std::size_t>(h)], call.score_rule().cap);
        softmax_over_visible(call, h / group, /*row=*/0, visible,
                             approximate_[static_cast<std::size_t>(h)],
                             /*sink_logit=*/std::nullopt);
      });
    }
    return true;
  }

  KeyList make_list(const SelectCall& call, const Owner& owner, std::span<const double> scores,
                    TokenRange keys, ScoreWorker& worker, Summaries& summaries) override {
    if (!is_decode(call))
      return SharedScoreSelector::make_list(call, owner, scores, keys, worker, summaries);
    const std::vector<KeyPos> past = candidates(call, owner.kv_head, keys);
    const Index k = call.budget.tokens(static_cast<Index>(past.size()), /*page_size=*/1);
    const Index n_latest = std::min(n_local(k), static_cast<Index>(past.size()));
    const auto local = std::span(past).last(static_cast<std::size_t>(n_latest));
    std::vector<double> others(scores.begin(), scores.end());
    for (const KeyPos pos : local) {
      others[static_cast<std::size_t>(pos - keys.begin)] = -std::numeric_limits<double>::infinity();
    }
    KeyList list = top_k_list(others, keys, k - n_latest);
    list.forced.assign(local.begin(), local.end());
    force_keys(list, candidates(call, owner.kv_head, chunk_range(call)));
    if (mixes(call)) state_share(call, owner, list, summaries);
    return list;
  }

 private:
  Index n_channels(const SelectCall& call) const {
    return channels_of(n_channels_, channel_share_, call.k.dim(2));
  }
  Index n_local(Index budget) const {
    return static_cast<Index>(std::floor(local_share_ * static_cast<double>(budget)));
  }
  bool mixes(const SelectCall& call) const { return mean_value_ && is_decode(call); }

  /// alpha: the approximate weight that the list has, for each head of the group.
  void state_share(const SelectCall& call, const Owner& owner, const KeyList& list,
                   Summaries& summaries) const {
    const TokenRange visible = call_range(call);
    Selection one;
    one.add(list);
    for (Index h = 0; h < owner.q_heads.size(); ++h) {
      const std::span<const double> weights =
          approximate_[static_cast<std::size_t>(owner.q_heads.begin + h)];
      double alpha = 0.0;
      for (const KeyPos pos : one.keys())
        alpha += weights[static_cast<std::size_t>(pos - visible.begin)];
      summaries.list_share(owner.q_heads.begin + h, Index{0}) =
          static_cast<float>(std::min(alpha, 1.0));
    }
  }

  KeyColumns columns_;  // live decode
  // [n_q][visible keys] of the running call, scores or weights.
  std::vector<std::span<double>> approximate_;
};

}  // namespace

void register_sparq(SelectorRegistry& registry) {
  registry.add<Sparq>("sparq", "SparQ: the query's largest channels", "arXiv 2312.04985",
                      "scores keys with the few channels where the query is largest");
}

}  // namespace kvscope
