// snapkv: the last queries of the prompt vote, and only what they attend to is kept (Li et al.,
// arXiv 2404.14469).
//
// Idea: softmax rows of the last w queries, summed over rows, averaged over the KV group; smoothed
// over neighbouring keys by pooling, so that clusters survive together; the best keys and the last
// w stay, k in all. Prefill itself is full attention; keys of decoded tokens are appended and never
// evicted. Cost per prefill call with T keys alive: 2 n_q w T d FLOPs and one read of them, n_kv
// T d b bytes (with official-mha the keys that any head of a group keeps).
// Stores nothing. Fails when the question is not in the window (it voted for something else), and
// after that nothing comes back. Decided here: in chunked prefill the last w queries of each chunk
// vote over all alive keys, and the cache is shrunk to the budget after every chunk. A chunk
// shorter than w votes with all its queries. Pooling runs over the keys that are alive, as over the
// rows of a compacted cache, and stops at the window's border. Votes include the window in the
// softmax and are not renormalised. official-mha gives each query head its own set, as the
// published code does (the cache grows by the group size: a key stays in the cache as long as one
// head of the group keeps it).
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/pooled_votes.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/selectors/softmax_votes.hpp"

namespace kvscope {

namespace {

class SnapKv final : public Selector {
 public:
  Index window_ =
      option(window_, "window", 64,
             "last queries that vote, and last keys that stay, inside the budget", at_least(1));
  Index kernel_ =
      option(kernel_, "kernel", 5, "keys that are pooled, an odd number", in(1, 1 << 20));
  Pooling pooling_ =
      option(pooling_, "pooling", Pooling::average, "how votes of neighbours are combined");
  bool official_mha_ = option(official_mha_, "official-mha", false,
                              "each query head keeps its own set, as in the published code");

  void configure() override {
    if (kernel_ % 2 == 0) {
      throw ConfigError(fmt::format("snapkv: kernel: expected an odd number, found {}", kernel_));
    }
  }
  SelectorCaps caps() const override {
    return {.prefill = true,
            .decode = true,
            .verify = true,
            .owner = official_mha_ ? ListOwner::q_head : ListOwner::kv_head,
            .permanent = true,
            .budgets = kTokenBudgets};
  }
  void reset(const AttentionShape& shape) override {
    shape_ = shape;
    kept_.clear();
    if (official_mha_) kept_.assign(static_cast<std::size_t>(shape.n_layers), AliveMask(shape.n_q));
  }

  void on_append(Index layer, Index, TensorView<const float> k, TensorView<const float>) override {
    if (official_mha_) kept_[static_cast<std::size_t>(layer)].append(k.dim(1));
  }

  Selection select(const SelectCall& call) override {
    return official_mha_ ? per_query_head(call) : alive_selection(call);
  }

  void evict(const SelectCall& call, AliveMask& alive) override {
    if (call.phase != Phase::prefill) return;
    const Index group = shape_.group();
    if (official_mha_) {
      AliveMask& kept = kept_[static_cast<std::size_t>(call.layer)];
      engine_of(call).run(shape_.n_q, [&](Index q_head, ScoreWorker& worker) {
        shrink(call, q_head, worker.dots, kept);
      });
      for (Index kv_head = 0; kv_head < shape_.n_kv; ++kv_head) drop_unkept(kept, kv_head, alive);
      return;
    }
    const Index budget = eviction_budget(call);
    Index most_alive = 0;
    for (Index kv_head = 0; kv_head < shape_.n_kv; ++kv_head)
      most_alive = std::max(most_alive, alive.n_alive(kv_head));
    if (most_alive <= budget) return;
    const std::vector<Index> voters = voting_rows(call);
    const std::vector<std::vector<double>> sums =
        softmax_votes(call, {.owner = ListOwner::kv_head,
                             .rows = voters,
                             .keys = call_range(call),
                             .factor = 1.0 / static_cast<double>(group)});
    engine_of(call).run(shape_.n_kv, [&](Index kv_head, ScoreWorker&) {
      keep_voted(call, kept_keys(call, kv_head, alive), sums[static_cast<std::size_t>(kv_head)],
                 kv_head, alive);
    });
  }

  void rollback(Index n_keys) override {
    for (AliveMask& kept : kept_) {
      if (kept.n_keys() > n_keys) kept.truncate(n_keys);
    }
  }

  bool takes_remote_rows() const override { return !official_mha_; }

  SelectCost cost(const SelectCall& call, const Selection&) const override {
    if (call.phase != Phase::prefill) return {};
    return exact_scoring_cost(call, call_range(call), std::min(window_, call.n_tok));
  }

 private:
  Selection per_query_head(const SelectCall& call) const {
    const AliveMask& kept = kept_[static_cast<std::size_t>(call.layer)];
    bool is_complete = true;
    for (Index q_head = 0; q_head < shape_.n_q; ++q_head) {
      is_complete =
          is_complete && kept.all_alive(q_head) && all_alive(call, q_head / shape_.group());
    }
    if (is_complete) return dense_selection(call, ListOwner::q_head);
    Selection selection(ListOwner::q_head, call.n_tok, call.n_tok);
    for (Index q_head = 0; q_head < shape_.n_q; ++q_head) {
      KeyList list;
      const TokenRange past = past_range(call);
      for (Index pos = past.begin; pos < past.end; ++pos) {
        if (kept.is_alive(q_head, static_cast<KeyPos>(pos)))
          list.scored.push_back(static_cast<KeyPos>(pos));
      }
      append_range(list.forced, call.pos_begin, call.pos_begin + call.n_tok);
      remove_dead(call, q_head / shape_.group(), list);
      selection.add(list);
    }
    return selection;
  }

  /// The last queries of the call.
  std::vector<Index> voting_rows(const SelectCall& call) const {
    std::vector<Index> voters(static_cast<std::size_t>(std::min(window_, call.n_tok)));
    std::iota(voters.begin(), voters.end(), call.n_tok - static_cast<Index>(voters.size()));
    return voters;
  }

  static std::vector<KeyPos> kept_keys(const SelectCall& call, Index owner, const AliveMask& mask) {
    std::vector<KeyPos> keys;
    for (Index pos = 0; pos < call.pos_begin + call.n_tok; ++pos) {
      if (mask.is_alive(owner, static_cast<KeyPos>(pos))) keys.push_back(static_cast<KeyPos>(pos));
    }
    return keys;
  }

  /// Shrinks one query head's own set to the budget by its votes. Other heads of `mask` are
  /// not looked at.
  void shrink(const SelectCall& call, Index q_head, KeyDots& dots, AliveMask& mask) const {
    const std::vector<KeyPos> keys = kept_keys(call, q_head, mask);
    if (static_cast<Index>(keys.size()) <= eviction_budget(call)) return;
    const Index n_ctx = call.pos_begin + call.n_tok;
    const Index kv_head = q_head / shape_.group();
    SelectCall question = call;  // the head softmaxes over the keys that it keeps itself
    AliveMask own(shape_.n_kv);
    own.append(n_ctx);
    for (Index pos = 0; pos < n_ctx; ++pos) {
      if (!mask.is_alive(q_head, static_cast<KeyPos>(pos)))
        own.kill(kv_head, static_cast<KeyPos>(pos));
    }
    question.alive = &own;
    const TokenRange seen = call_range(call);
    std::vector<double> sums(static_cast<std::size_t>(seen.size()), 0.0);
    add_softmax_weights(question, {q_head, q_head + 1}, kv_head, voting_rows(call), seen, 1.0, dots,
                        sums);
    keep_voted(call, keys, sums, q_head, mask);
  }

  /// Keeps the best of head `owner`'s `keys` by `sums` [call_range], and the window.
  void keep_voted(const SelectCall& call, std::span<const KeyPos> keys,
                  std::span<const double> sums, Index owner, AliveMask& mask) const {
    const Index budget = eviction_budget(call);
    if (static_cast<Index>(keys.size()) <= budget) return;
    const TokenRange seen = call_range(call);
    const Index n_window = std::min({window_, budget, static_cast<Index>(keys.size())});
    const std::size_t n_voted = keys.size() - static_cast<std::size_t>(n_window);
    std::vector<double> votes(n_voted, 0.0);
    for (std::size_t i = 0; i < n_voted; ++i) {
      if (keys[i] >= seen.begin) votes[i] = sums[static_cast<std::size_t>(keys[i] - seen.begin)];
    }
    const std::vector<double> scores = pooled_votes(votes, kernel_, pooling_);
    keep_best(scores, keys.first(n_voted), budget - n_window, owner, mask);
  }

  void drop_unkept(const AliveMask& kept, Index kv_head, AliveMask& alive) const {
    for (Index pos = 0; pos < kept.n_keys(); ++pos) {
      bool is_kept = false;
      for (Index q_head = kv_head * shape_.group(); q_head < (kv_head + 1) * shape_.group();
           ++q_head) {
        is_kept = is_kept || kept.is_alive(q_head, static_cast<KeyPos>(pos));
      }
      if (!is_kept) alive.kill(kv_head, static_cast<KeyPos>(pos));
    }
  }

  AttentionShape shape_;
  std::vector<AliveMask> kept_;  // [n_layers], one head per query head: only with official-mha
};

}  // namespace

void register_snapkv(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<SnapKv>(
      "snapkv", "SnapKV: observation window", "arXiv 2404.14469",
      "keeps the keys that the last queries of the prompt attend to, smoothed over neighbours");
  entry.presets["snapkv-installer"] = {{"window", "32"}, {"kernel", "5"}, {"pooling", "average"}};
  entry.presets["snapkv-longbench"] = {{"window", "32"}, {"kernel", "7"}, {"pooling", "max"}};
  entry.presets["snapkv-official-mha"] = {{"official-mha", "true"}};
}

}  // namespace kvscope
