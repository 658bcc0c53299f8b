// random: a uniform choice of past keys, without replacement (control).
//
// Idea: each past key gets a random number named by (seed, layer, KV head, position of the call's
// first query) and its own position; the k largest win. So the choice is redrawn in every call,
// larger budgets contain smaller ones, and the same call asks for the same keys whatever was
// drafted and rejected before. Sinks and recents can be forced on top of the budget, to compare
// with a method that forces them. Cost: no scoring. Stores nothing. Expected mass is that of a
// random share: what every method must beat.
#include <algorithm>

#include "core/base/rng.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

class Random final : public Selector {
 public:
  Index seed_ = option(seed_, "seed", 1, "names the random numbers", at_least(0));
  Index n_sink_ = option(n_sink_, "n-sink", 0, "first tokens that are forced on top of the budget",
                         at_least(0));
  Index n_recent_ =
      option(n_recent_, "n-recent", 0,
             "latest tokens before the call that are forced on top of the budget", at_least(0));

  SelectorCaps caps() const override {
    return {.needs_all_heads = true, .is_static = true, .budgets = kTokenBudgets};
  }

  Selection do_select(const SelectCall& call) override {
    const Index recent_begin = std::max<Index>(0, call.pos_begin - n_recent_);
    const auto is_forced = [&](KeyPos pos) { return pos < n_sink_ || pos >= recent_begin; };
    Selection drawn =
        select_past(call, [&](Index kv_head, std::span<const KeyPos> past, Index n_keep) {
          const CounterRng rng(seed_, call.layer, kv_head, call.pos_begin);
          std::vector<KeyPos> drawable;
          std::vector<double> scores;
          drawable.reserve(past.size());
          scores.reserve(past.size());
          for (const KeyPos pos : past) {
            if (is_forced(pos)) continue;
            drawable.push_back(pos);
            scores.push_back(rng.uniform(static_cast<std::uint64_t>(pos)));
          }
          return top_k_list(scores, drawable, n_keep).scored;
        });
    if (n_sink_ == 0 && n_recent_ == 0) return drawn;
    Selection selection(drawn.owner, drawn.n_tok, drawn.rows_per_list);
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
      std::vector<KeyPos> forced = candidates(call, kv_head, past_range(call));
      std::erase_if(forced, [&](KeyPos pos) { return !is_forced(pos); });
      KeyList list{drawn.at(kv_head).scored(), drawn.at(kv_head).forced(), {}};
      force_keys(list, forced);
      selection.add(list);
    }
    return selection;
  }
};

}  // namespace

void register_random(SelectorRegistry& registry) {
  registry.add<Random>("random", "Random keys", "control",
                       "draws the budget's keys uniformly from the past, with a fixed seed");
}

}  // namespace kvscope
