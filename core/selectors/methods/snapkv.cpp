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
#include "core/selectors/candidates.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/selectors/window_votes.hpp"

namespace kvscope {

namespace {

class SnapKv final : public WindowVotes {
 public:
  SnapKv() : WindowVotes(64, 5, Pooling::average) {}
  bool official_mha_ = option(official_mha_, "official-mha", false,
                              "each query head keeps its own set, as in the published code");

  SelectorCaps caps() const override {
    return evicting({.owner = official_mha_ ? ListOwner::q_head : ListOwner::kv_head});
  }
  bool remembers() const override { return official_mha_; }
  HostRows host_rows() const override {
    return official_mha_ ? HostRows::all : WindowVotes::host_rows();
  }

  Selection do_select(const SelectCall& call) override {
    return official_mha_ ? per_query_head(call) : alive_selection(call);
  }
  void evict(const SelectCall& call, AliveMask& alive) override {
    if (!official_mha_) return WindowVotes::evict(call, alive);
    if (!evicts_after(call)) return;
    AliveMask& kept = kept_by_heads(call);
    engine_of(call).run(shape_.n_q, [&](Index q_head, ScoreWorker& worker) {
      shrink(call, q_head, worker.dots, kept);
    });
    for (Index kv_head = 0; kv_head < shape_.n_kv; ++kv_head) drop_unkept(kept, kv_head, alive);
  }

 private:
  /// official-mha: what each query head keeps.
  AliveMask& kept_by_heads(const SelectCall& call) const {
    auto& kept = engine_of(call).kept<AliveMask>(this, call.layer, /*kv_head=*/0,
                                                 [&] { return AliveMask(shape_.n_q); });
    kept.append(call.pos_begin + call.n_tok - kept.n_keys());  // 0 from the second time in a call
    return kept;
  }

  Selection per_query_head(const SelectCall& call) const {
    const AliveMask& kept = kept_by_heads(call);
    bool is_complete = true;
    for (Index q_head = 0; q_head < shape_.n_q; ++q_head) {
      is_complete =
          is_complete && kept.all_alive(q_head) && all_alive(call, q_head / shape_.group());
    }
    if (is_complete) return dense_selection(call, ListOwner::q_head);
    Selection selection(ListOwner::q_head, call.n_tok, call.n_tok);
    for (Index q_head = 0; q_head < shape_.n_q; ++q_head) {
      KeyList list;
      list.scored = kept.keys(q_head, past_range(call));
      append_range(list.forced, call.pos_begin, call.pos_begin + call.n_tok);
      remove_dead(call, q_head / shape_.group(), list);
      selection.add(list);
    }
    return selection;
  }

  /// Shrinks one query head's own set to the budget by its votes, for which it softmaxes over the
  /// keys that it keeps itself. Other heads of `mask` are not looked at.
  void shrink(const SelectCall& call, Index q_head, KeyDots& dots, AliveMask& mask) const {
    const Index n_ctx = call.pos_begin + call.n_tok;
    const Index budget = budget_of(call);
    const std::vector<KeyPos> keys = mask.keys(q_head, {0, n_ctx});
    if (static_cast<Index>(keys.size()) <= budget) return;
    const Index kv_head = q_head / shape_.group();
    SelectCall question = call;
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
    const std::vector<double> scores = pooled(call, keys, sums);
    const Index n_window = std::min(window_, budget);
    const std::size_t n_voted = keys.size() - static_cast<std::size_t>(n_window);
    keep_best(std::span(scores).first(n_voted), std::span(keys).first(n_voted), budget - n_window,
              q_head, mask);
  }

  /// A key stays in the cache as long as one head of its group keeps it.
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
