// h2o: heavy hitters, the keys with the most attention so far, and the latest ones (Zhang et al.,
// arXiv 2306.14048).
//
// Idea: per KV head, each key collects the softmax weights of all queries that saw it (mean over
// the group). After a call the latest `recent` keys stay, and of the others the `heavy` with the
// largest sums; the rest leaves for good. The budget is heavy + recent, split by recent-share. Cost
// per call with n alive keys: n_q n additions per query, no FLOPs beyond attention, but its weights
// must be written out (n_q C n floats in prefill). Stores one sum per key and KV head. Fails by
// age: early keys were seen by more queries, and with uniform causal attention the heaviest keys
// are exactly the first ones. The choice itself costs about half of dense attention in prefill and
// in decode, because the method is defined by every weight of every query: here all scores are made
// once more beside the attention, which keeps none. normalise=by_queries divides by the number of
// queries that saw a key; normalise=window counts the last vote-window queries only. Decided here:
// one list per KV head (the published code knows no groups). Chunked prefill adds the chunk's
// column sums and shrinks to the budget. A ratio is of the prompt: of what is there during prefill,
// and fixed afterwards. official-quirk repeats the simulation's index error: the first of the
// recent keys is hidden in the next call, though it is not lost.
#include <algorithm>
#include <deque>

#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

enum class VoteSum { none, by_queries, window };

class H2o final : public EvictingMethod {
 public:
  double recent_share_ = option(recent_share_, "recent-share", 0.5,
                                "share of the budget kept for the latest keys", in(0.0, 1.0));
  VoteSum normalise_ =
      option(normalise_, "normalise", VoteSum::none,
             "sums of votes as they are, per query that saw the key, or of the last queries only");
  Index vote_window_ = option(vote_window_, "vote-window", 64,
                              "last queries that count with normalise=window", in(1, 1 << 20));
  bool official_quirk_ =
      option(official_quirk_, "official-quirk", false,
             "hide one recent key for one call, as the published simulation does");

  SelectorCaps caps() const override { return evicting({.needs_probs = true}); }
  HostRows host_rows() const override { return HostRows::none; }
  bool remembers() const override { return true; }

  Selection do_select(const SelectCall& call) override {
    Layer& state = state_of(call);
    if (call.phase == Phase::prefill) state.n_prompt = call.pos_begin + call.n_tok;
    state.may_be_rejected = call.phase != Phase::prefill;
    state.hidden_before = state.hidden;
    Selection selection = alive_selection(call);
    if (state.hidden.empty() || selection.is_dense) return selection;
    Selection shown(selection.owner, selection.n_tok, selection.rows_per_list);
    for (Index kv_head = 0; kv_head < shape_.n_kv; ++kv_head) {
      const auto& hidden = state.hidden[static_cast<std::size_t>(kv_head)];
      KeyList list{selection.at(kv_head).scored(), selection.at(kv_head).forced(), {}};
      if (hidden) std::erase(list.scored, *hidden);
      shown.add(list);
    }
    return shown;
  }

  void observe(const SelectCall& call, const ObservedProbs& probs) override {
    Layer& state = state_of(call);
    const auto n_ctx = static_cast<std::size_t>(probs.pos_begin + probs.n_tok);
    settle(state, probs.pos_begin);
    if (state.sums.empty()) state.sums.resize(static_cast<std::size_t>(shape_.n_kv));
    for (auto& sums : state.sums) sums.resize(n_ctx, 0.0);
    // Votes that may be taken back, or that leave a window one by one, are kept per row.
    const bool keeps_rows = state.may_be_rejected || normalise_ == VoteSum::window;
    const Index first_row =
        state.may_be_rejected || !keeps_rows ? 0 : std::max<Index>(0, probs.n_tok - vote_window_);
    const std::size_t n_before = state.rows.size();
    if (keeps_rows) {
      for (Index row = first_row; row < probs.n_tok; ++row) {
        state.rows.push_back({probs.pos_begin + row, {}});
        state.rows.back().votes.assign(static_cast<std::size_t>(shape_.n_kv),
                                       std::vector<double>(n_ctx, 0.0));
      }
    }
    const double share = 1.0 / static_cast<double>(shape_.group());
    if (!keeps_rows) {
      probs.add_votes(ListOwner::kv_head, {first_row, probs.n_tok}, share, state.sums);
      return;
    }
    for (Index row = first_row; row < probs.n_tok; ++row) {
      HeadVotes& votes = state.rows[n_before + static_cast<std::size_t>(row - first_row)].votes;
      probs.add_votes(ListOwner::kv_head, {row, row + 1}, share, votes);
    }
  }

  void evict(const SelectCall& call, AliveMask& alive) override {
    auto& hidden = state_of(call).hidden;
    hidden.assign(static_cast<std::size_t>(shape_.n_kv), std::nullopt);
    std::vector<Index> n_before;
    for (Index kv_head = 0; kv_head < shape_.n_kv; ++kv_head)
      n_before.push_back(alive.n_alive(kv_head));
    EvictingMethod::evict(call, alive);
    const Index n_kept = n_recent(budget_of(call));
    for (Index kv_head = 0; official_quirk_ && n_kept > 0 && kv_head < shape_.n_kv; ++kv_head) {
      const auto at = static_cast<std::size_t>(kv_head);
      if (alive.n_alive(kv_head) == n_before[at]) continue;
      const std::vector<KeyPos> left =
          candidates(call, kv_head, TokenRange{0, call.pos_begin + call.n_tok});
      hidden[at] = left[left.size() - static_cast<std::size_t>(n_kept)];
    }
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    const double n_keys = attended_keys_of(call, selection);
    return weights_cost(queries_per_kv_head(call) * n_keys, n_keys);
  }

 protected:
  Index budget_of(const SelectCall& call) const override {
    const Index n_prompt = state_of(call).n_prompt;
    const bool is_prompt_only = call.phase == Phase::prefill || n_prompt == 0;
    return call.budget.tokens(is_prompt_only ? call.pos_begin + call.n_tok : n_prompt,
                              /*page_size=*/1);
  }
  Index n_recent(Index budget) const override {
    return static_cast<Index>(recent_share_ * static_cast<double>(budget));
  }
  KeyValues scores(const SelectCall& call, const KeyLists& keys) override {
    const Layer& state = state_of(call);
    return of_kv_heads(call, [&](Index kv_head, ScoreWorker&) {
      return values_at(votes(state, kv_head, call.pos_begin + call.n_tok),
                       keys[static_cast<std::size_t>(kv_head)]);
    });
  }

 private:
  using HeadVotes = std::vector<std::vector<double>>;  // [n_kv][n_keys], mean over the group
  struct Row {
    Index pos = 0;
    HeadVotes votes;
  };
  struct Layer {
    HeadVotes sums;  // of all rows that are not in `rows`
    // By position: rows that may be rejected (decode and verification), or the window. A prefill
    // chunk is never rejected: rolling back into one cuts its keys, not its votes.
    std::deque<Row> rows;
    std::vector<std::optional<KeyPos>> hidden, hidden_before;  // [n_kv] or empty: official-quirk
    Index n_prompt = 0;
    bool may_be_rejected = false;
    void truncate(Index n_keys) {
      if (!rows.empty() && rows.back().pos >= n_keys) hidden = hidden_before;
      while (!rows.empty() && rows.back().pos >= n_keys) rows.pop_back();
      for (Row& row : rows) cut(row.votes, n_keys);
      cut(sums, n_keys);
      n_prompt = std::min(n_prompt, n_keys);
    }
  };

  Layer& state_of(const SelectCall& call) const {
    return engine_of(call).kept<Layer>(this, call.layer, /*kv_head=*/0);
  }

  static void cut(HeadVotes& votes, Index n_keys) {
    for (auto& head : votes) head.resize(std::min(head.size(), static_cast<std::size_t>(n_keys)));
  }

  static void add(std::span<const double> votes, std::span<double> sums) {
    for (std::size_t j = 0; j < votes.size(); ++j) sums[j] += votes[j];
  }

  /// The rows of earlier calls can no longer be rejected: into the sums, or out of the window.
  void settle(Layer& state, Index pos_begin) const {
    if (normalise_ == VoteSum::window) {
      while (!state.rows.empty() && state.rows.front().pos < pos_begin - vote_window_)
        state.rows.pop_front();
      return;
    }
    for (const Row& row : state.rows) {
      for (std::size_t kv_head = 0; kv_head < row.votes.size(); ++kv_head) {
        auto& sums = state.sums[kv_head];
        sums.resize(std::max(sums.size(), row.votes[kv_head].size()), 0.0);
        add(row.votes[kv_head], sums);
      }
    }
    state.rows.clear();
  }

  /// [n_ctx] what each position has collected.
  std::vector<double> votes(const Layer& state, Index kv_head, Index n_ctx) const {
    const auto head = static_cast<std::size_t>(kv_head);
    std::vector<double> sums = state.sums[head];
    for (const Row& row : state.rows) {
      if (normalise_ == VoteSum::window && row.pos < n_ctx - vote_window_) continue;
      add(row.votes[head], sums);
    }
    if (normalise_ == VoteSum::by_queries) {
      for (Index pos = 0; pos < n_ctx; ++pos)
        sums[static_cast<std::size_t>(pos)] /= static_cast<double>(n_ctx - pos);
    }
    return sums;
  }
};

}  // namespace

void register_h2o(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<H2o>(
      "h2o", "H2O: heavy hitters and recent keys", "arXiv 2306.14048",
      "keeps the keys that collected the most attention so far, and the latest ones");
  entry.presets["h2o-official-quirk"] = {{"official-quirk", "true"}};
  entry.presets["h2o-sparq"] = {{"recent-share", "0.25"}};
  entry.presets["h2o-by-queries"] = {{"normalise", "by_queries"}};
}

}  // namespace kvscope
