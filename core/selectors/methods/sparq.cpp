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
#include "core/attention/sparq_queries.hpp"
#include "core/base/error.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/key_columns.hpp"
#include "core/selectors/linear_scores.hpp"
#include "core/selectors/mean_values.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

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
    if (call.v.empty() && call.remote == nullptr) {
      throw ConfigError(
          "sparq: the mean value needs recorded values (V), which are missing; set "
          "mean-value=false");
    }
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
