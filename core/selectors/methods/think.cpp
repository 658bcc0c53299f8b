// think: channels of the prompt's keys that its last queries make little of are dropped (ThinK,
// arXiv 2407.21018, ICLR 2025; kvpress).
//
// Idea: a channel of a KV head is worth the mean square of the group's queries there, over the last
// `window` queries of the prompt, times the mean square of the prompt's keys. When the prompt is
// over, the share `drop` of the channels that are worth least becomes zero in all its keys. No key
// leaves; what comes later keeps all channels. Values stay, and prefill is full attention.
//
// A list names every key; those of the prompt carry the difference between the score without the
// dropped channels and their own (a log-weight), so that the softmax is that of the keys with
// zeros.
//
// Cost per prompt call: 2 d (n_q w + n_kv n_tok) FLOPs for the squares, one read of the call's
// keys; holds the squares of w queries, later a bit per channel. NOT modelled: what the channels
// save, drop / 2 of the cache's bytes; keys count as read whole.
//
// Fails where a later question looks along channels that the prompt's last queries did not use:
// they are gone for all keys at once.
//
// Decided where the sources are silent: a later prompt (another turn) makes the choice again, over
// all keys until its end. Of keys that another method evicted nothing counts. A text that is
// decoded from nothing has no prompt: the keys before the first question are it, and its queries
// vote. Equal channels: the earlier one stays.
#include <algorithm>
#include <deque>

#include "core/attention/score_rows.hpp"
#include "core/attention/topk.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

namespace {

class Think final : public Selector {
 public:
  double drop_ = option(drop_, "drop", 0.4,
                        "share of a KV head's channels that leave the prompt's keys", in(0.0, 1.0));
  Index window_ = option(window_, "window", 32,
                         "last queries of the prompt that say which channels", in(1, 1 << 20));
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override {
    return {.owner = ListOwner::q_head,
            .needs_probs = true,  // not for the weights: it must see all of a prompt's queries
            .dense_layers = dense_layers_};
  }

  Selection do_select(const SelectCall& call) override {
    if (call.layer < dense_layers_ || call.phase == Phase::prefill) return alive_selection(call);
    ScoreEngine& engine = engine_of(call);
    return select_by_kv_head(
        call, /*rows_per_list=*/1,
        [&](const ListHeads& group, ScoreWorker& worker, Selection& selection) {
          auto& prompt = engine.kept<Prompt>(this, call.layer, group.kv_head);
          if (prompt.squares.empty()) {
            note_queries(call, group.kv_head, prompt);
            prompt.n_keys = call.pos_begin;
          }
          if (prompt.stays.empty()) prompt.stays = channels_that_stay(call, group.kv_head, prompt);
          add_lists(call, group, prompt, worker.dots, selection);
        });
  }

  void observe(const SelectCall& call, const ObservedProbs&) override {
    if (call.layer < dense_layers_ || call.phase != Phase::prefill) return;
    ScoreEngine& engine = engine_of(call);
    engine.run(call.k.dim(0), [&](Index kv_head, ScoreWorker&) {
      note_queries(call, kv_head, engine.kept<Prompt>(this, call.layer, kv_head));
    });
  }

  SelectCost cost(const SelectCall& call, const Selection&) const override {
    const auto n_channels = static_cast<double>(call.k.dim(0) * call.k.dim(2));
    if (call.phase != Phase::prefill) return {.metadata_bytes = n_channels / 8.0};
    const Index n_rows = std::min(window_, call.n_tok);
    return channels_cost(call, alive_keys(call, chunk_range(call)), /*flops=*/2.0,
                         /*elements=*/1.0) +
           flops_cost(2.0 * static_cast<double>(call.q.dim(0) * n_rows * call.q.dim(2))) +
           held_cost(2.0 * n_channels * static_cast<double>(std::min(window_, call.k.dim(1))));
  }

 private:
  /// What is kept of the prompt for one KV head.
  struct Prompt {
    Index n_keys = 0;
    /// Of its last queries: the position, and the squares by channel, summed over the group.
    std::deque<std::pair<Index, std::vector<double>>> squares;
    std::vector<double> stays;  // [d_head] 1: the channel stays, 0: it is dropped; empty: not known
    void truncate(Index n) {
      if (squares.empty() || squares.back().first < n) return;
      while (!squares.empty() && squares.back().first >= n) squares.pop_back();
      stays.clear();
      n_keys = std::min(n_keys, n);
    }
  };

  void note_queries(const SelectCall& call, Index kv_head, Prompt& prompt) const {
    const Index group = call.q.dim(0) / call.k.dim(0);
    for (Index row = std::max<Index>(0, call.n_tok - window_); row < call.n_tok; ++row) {
      std::vector<double> sum(static_cast<std::size_t>(call.q.dim(2)), 0.0);
      for (Index q_head = kv_head * group; q_head < (kv_head + 1) * group; ++q_head)
        add_squares(call.q.sub(q_head).row(row), sum);
      prompt.squares.emplace_back(call.pos_begin + row, std::move(sum));
    }
    while (static_cast<Index>(prompt.squares.size()) > window_) prompt.squares.pop_front();
    prompt.n_keys = call.pos_begin + call.n_tok;
    prompt.stays.clear();
  }

  std::vector<double> channels_that_stay(const SelectCall& call, Index kv_head,
                                         const Prompt& prompt) const {
    const auto d = static_cast<std::size_t>(call.k.dim(2));
    std::vector<double> of_queries(d, 0.0);
    for (const auto& [pos, squares] : prompt.squares) {
      for (std::size_t c = 0; c < d; ++c) of_queries[c] += squares[c];
    }
    std::vector<double> worth(d, 0.0);
    for (const KeyPos pos : candidates(call, kv_head, TokenRange{0, prompt.n_keys}))
      add_squares(call.k.sub(kv_head).row(pos), worth);
    for (std::size_t c = 0; c < d; ++c) worth[c] *= of_queries[c];
    const auto n_dropped = static_cast<Index>(drop_ * static_cast<double>(d));
    std::vector<double> stays(d, 0.0);
    for (const Index c : top_k(worth, call.k.dim(2) - n_dropped))
      stays[static_cast<std::size_t>(c)] = 1.0;
    return stays;
  }

  static void add_squares(std::span<const float> x, std::span<double> sum) {
    for (std::size_t c = 0; c < sum.size(); ++c)
      sum[c] += static_cast<double>(x[c]) * static_cast<double>(x[c]);
  }

  static void add_lists(const SelectCall& call, const ListHeads& group, const Prompt& prompt,
                        KeyDots& dots, Selection& selection) {
    const auto d = static_cast<std::size_t>(call.q.dim(2));
    const TokenRange changed{std::min(call_range(call).begin, prompt.n_keys), prompt.n_keys};
    for (Index q_head = group.q_heads.begin; q_head < group.q_heads.end; ++q_head) {
      for (Index row = 0; row < call.n_tok; ++row) {
        std::vector<double> q = widened(call.q.sub(q_head).row(row));  // and what it reads of keys
        for (std::size_t c = 0; c < d; ++c) q.push_back(q[c] * prompt.stays[c]);
        dots.compute(q, 2, call.k.sub(group.kv_head), changed);
        const TokenRange seen = row_range(call, row);
        KeyList list;
        list.scored = candidates(call, group.kv_head,
                                 TokenRange{std::min(seen.begin, changed.end), changed.end});
        list.forced = candidates(call, group.kv_head,
                                 TokenRange{std::max(seen.begin, changed.end), seen.end});
        for (const KeyPos pos : list.scored) {
          const auto at = static_cast<std::size_t>(pos - changed.begin);
          list.log_weight.push_back(static_cast<float>(call.score_rule().of(dots.row(1)[at]) -
                                                       call.score_rule().of(dots.row(0)[at])));
        }
        selection.add(list);
      }
    }
  }
};

}  // namespace

void register_think(SelectorRegistry& registry) {
  registry.add<Think>("think", "ThinK: channels dropped from the prompt's keys", "arXiv 2407.21018",
                      "keeps every key, without the channels that the prompt's last queries make "
                      "least of");
  registry.say_lacking("think", "what dropped channels save: keys count as read whole");
}

}  // namespace kvscope
