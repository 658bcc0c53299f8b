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

struct RandomOptions {
  Index seed = 1;
  Index n_sink = 0;
  Index n_recent = 0;
  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"seed", "names the random numbers"}.at_least(0), self.seed);
    visit(Field{"n-sink", "first tokens that are forced on top of the budget"}.at_least(0),
          self.n_sink);
    visit(Field{"n-recent", "latest tokens before the call that are forced on top of the budget"}
              .at_least(0),
          self.n_recent);
  }
};

class Random final : public Selector {
 public:
  explicit Random(const RandomOptions& options) : options_(options) {}
  std::string_view name() const override { return "random"; }
  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.prefill = caps.decode = caps.verify = true;
    caps.is_static = true;
    caps.budgets = {Budget::Kind::tokens, Budget::Kind::ratio};
    return caps;
  }
  void reset(const AttentionShape&) override {}

  Selection select(const SelectCall& call) override {
    const Index recent_begin = std::max<Index>(0, call.pos_begin - options_.n_recent);
    const auto is_forced = [&](KeyPos pos) { return pos < options_.n_sink || pos >= recent_begin; };
    Selection drawn =
        select_past(call, [&](Index kv_head, std::span<const KeyPos> past, Index n_keep) {
          const CounterRng rng(
              {static_cast<std::uint64_t>(options_.seed), static_cast<std::uint64_t>(call.layer),
               static_cast<std::uint64_t>(kv_head), static_cast<std::uint64_t>(call.pos_begin)});
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
    if (options_.n_sink == 0 && options_.n_recent == 0) return drawn;
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

  SelectCost cost(const SelectCall&, const Selection&) const override { return {}; }

 private:
  RandomOptions options_;
};

}  // namespace

void register_random(SelectorRegistry& registry) {
  registry.add<Random, RandomOptions>(
      "random", "Random keys", "control",
      "draws the budget's keys uniformly from the past, with a fixed seed");
}

}  // namespace kvscope
