// adakv: SnapKV with one budget per layer, divided over the heads by what they attend to (Feng et
// al., arXiv 2407.11550; official code, kvpress).
//
// Idea: the last queries of the prompt vote as in SnapKV; the pooled votes of all KV heads of a
// layer compete for the layer's budget (N tokens x n_kv), so that a head whose attention is spread
// gets more keys than one that looks at few. A floor keeps every head at a share of the even
// division. Prefill itself is full attention; decoded tokens are appended and never evicted.
//
// Cost per prefill call with T keys alive: 2 n_q w T d FLOPs and one read of them, n_kv T d b
// bytes. Stores nothing.
//
// Fails as SnapKV does when the question is not in the window; a head with flat votes takes keys
// that others would need.
//
// Decided where the sources differ or are silent: division=counts (the official code, default)
// counts how many of the layer's best N n_kv votes each head has, gives each head floor + (1 -
// floor) of its count and rounds to the layer's sum by the largest remainders (the code rounds each
// by itself); division=safeguard (kvpress) marks the best floor * N votes of each head as safe and
// lets the rest compete. Floor 0.2 in both. The code's `normalize` (votes times the share that an
// even budget would hold) is an option, off as in its class. Votes are summed over rows and
// averaged over the group; the window stays in every head, inside the budget; in chunked prefill
// the layer's cache is shrunk after every chunk, as SnapKV's is here. Equal votes: lowest position,
// then lowest head.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/attention/topk.hpp"
#include "core/base/error.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/pooled_votes.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/softmax_votes.hpp"

namespace kvscope {

namespace {

enum class AdaDivision { counts, safeguard };

class AdaKv final : public Selector {
 public:
  Index window_ =
      option(window_, "window", 32,
             "last queries that vote, and last keys that stay in every head, inside the budget",
             in(1, 1 << 20));
  Index kernel_ =
      option(kernel_, "kernel", 7, "keys that are pooled, an odd number", in(1, 1 << 20));
  Pooling pooling_ =
      option(pooling_, "pooling", Pooling::max, "how votes of neighbours are combined");
  double floor_ = option(floor_, "floor", 0.2, "share of an even division that every KV head gets",
                         in(0.0, 1.0));
  AdaDivision division_ =
      option(division_, "division", AdaDivision::counts,
             "counts: as the official code divides; safeguard: as kvpress does");
  bool normalize_ = option(normalize_, "normalize", false,
                           "votes of a head count by the share that an even budget would hold");

  void configure() override {
    if (kernel_ % 2 == 0)
      throw ConfigError(fmt::format("adakv: kernel: expected an odd number, found {}", kernel_));
  }
  SelectorCaps caps() const override {
    return {.prefill = true,
            .decode = true,
            .verify = true,
            .owner = ListOwner::kv_head,
            .permanent = true,
            .budgets = kTokenBudgets,
            .divides_budget = true};
  }
  Selection select(const SelectCall& call) override { return alive_selection(call); }

  void evict(const SelectCall& call, AliveMask& alive) override {
    if (call.phase != Phase::prefill) return;
    const Index n_kv = call.k.dim(0);
    const Index budget = eviction_budget(call);
    Index n_alive = 0;
    for (Index kv_head = 0; kv_head < n_kv; ++kv_head) n_alive += alive.n_alive(kv_head);
    if (n_alive <= budget * n_kv) return;
    std::vector<Index> voters(static_cast<std::size_t>(std::min(window_, call.n_tok)));
    std::iota(voters.begin(), voters.end(), call.n_tok - static_cast<Index>(voters.size()));
    const std::vector<std::vector<double>> sums =
        softmax_votes(call, {.owner = ListOwner::kv_head,
                             .rows = voters,
                             .keys = call_range(call),
                             .factor = 1.0 / static_cast<double>(call.q.dim(0) / n_kv)});
    std::vector<Head> heads(static_cast<std::size_t>(n_kv));
    engine_of(call).run(n_kv, [&](Index kv_head, ScoreWorker&) {
      const auto at = static_cast<std::size_t>(kv_head);
      heads[at] = voted_head(call, kv_head, budget, sums[at], alive);
    });
    const std::vector<Index> kept = divide(heads, budget);
    for (std::size_t h = 0; h < heads.size(); ++h)
      keep_best(heads[h].votes, heads[h].keys, kept[h], static_cast<Index>(h), alive);
  }

  SelectCost cost(const SelectCall& call, const Selection&) const override {
    if (call.phase != Phase::prefill) return {};
    return exact_scoring_cost(call, call_range(call), std::min(window_, call.n_tok));
  }

 private:
  /// Keys of a KV head before its window, with their pooled votes.
  struct Head {
    std::vector<KeyPos> keys;  // ascending
    std::vector<double> votes;
    Index n_window = 0;  // keys of the window, which stay
  };

  Head voted_head(const SelectCall& call, Index kv_head, Index budget, std::span<const double> sums,
                  const AliveMask& alive) const {
    Head head;
    const TokenRange seen = call_range(call);
    for (Index pos = 0; pos < seen.end; ++pos) {
      if (alive.is_alive(kv_head, static_cast<KeyPos>(pos)))
        head.keys.push_back(static_cast<KeyPos>(pos));
    }
    head.n_window = std::min({window_, budget, static_cast<Index>(head.keys.size())});
    head.keys.resize(head.keys.size() - static_cast<std::size_t>(head.n_window));
    std::vector<double> votes(head.keys.size(), 0.0);
    for (std::size_t i = 0; i < votes.size(); ++i) {
      if (head.keys[i] >= seen.begin)
        votes[i] = sums[static_cast<std::size_t>(head.keys[i] - seen.begin)];
    }
    head.votes = pooled_votes(votes, kernel_, pooling_);
    return head;
  }

  /// How many keys each head keeps beside its window: together at most n_kv budgets.
  std::vector<Index> divide(std::span<const Head> heads, Index budget) const {
    Index total = budget * static_cast<Index>(heads.size());
    for (const Head& head : heads) total -= head.n_window;
    const Index even = total / static_cast<Index>(heads.size());
    const auto floor = static_cast<Index>(floor_ * static_cast<double>(even));
    std::vector<Index> safe(heads.size(), 0);
    if (division_ == AdaDivision::safeguard) {
      for (std::size_t h = 0; h < heads.size(); ++h)
        safe[h] = std::min(floor, static_cast<Index>(heads[h].keys.size()));
      return count_best(heads, safe, total, even);
    }
    const std::vector<Index> counts = count_best(heads, safe, total, even);
    return shrink_to_floor(heads, counts, floor, total);
  }

  /// Of the `total` best votes of the layer, how many each head has; its best safe[h] come first.
  std::vector<Index> count_best(std::span<const Head> heads, std::span<const Index> safe,
                                Index total, Index even) const {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    Index n_pos = 0;
    for (const Head& head : heads)
      n_pos = std::max<Index>(n_pos, head.keys.empty() ? 0 : head.keys.back() + 1);
    // [position][head].
    std::vector<double> flat(static_cast<std::size_t>(n_pos) * heads.size(), kNone);
    for (std::size_t h = 0; h < heads.size(); ++h) {
      const Head& head = heads[h];
      const double weight = normalize_ ? held_share(head.votes, even) : 1.0;
      for (std::size_t i = 0; i < head.keys.size(); ++i)
        flat[static_cast<std::size_t>(head.keys[i]) * heads.size() + h] = weight * head.votes[i];
      for (const Index i : top_k_sorted_by_index(head.votes, safe[h])) {
        flat[static_cast<std::size_t>(head.keys[static_cast<std::size_t>(i)]) * heads.size() + h] =
            std::numeric_limits<double>::max();
      }
    }
    std::vector<Index> counts(heads.size(), 0);
    for (const Index i : top_k_sorted_by_index(flat, total))
      ++counts[static_cast<std::size_t>(i) % heads.size()];
    return counts;
  }

  /// Share of a head's votes that its best `even` keys hold.
  static double held_share(std::span<const double> votes, Index even) {
    double held = 0.0;
    for (const Index i : top_k_sorted_by_index(votes, even))
      held += votes[static_cast<std::size_t>(i)];
    const double all = std::accumulate(votes.begin(), votes.end(), 0.0);
    return all > 0.0 ? held / all : 1.0;
  }

  /// floor + (1 - floor share) * count, whole numbers with the sum `total` by the largest
  /// remainders (lowest head first), never more than a head has.
  std::vector<Index> shrink_to_floor(std::span<const Head> heads, std::span<const Index> counts,
                                     Index floor, Index total) const {
    std::vector<Index> kept(heads.size());
    std::vector<double> remainders(heads.size());
    Index left = total;
    for (std::size_t h = 0; h < heads.size(); ++h) {
      const double wanted =
          static_cast<double>(floor) + (1.0 - floor_) * static_cast<double>(counts[h]);
      kept[h] = std::min(static_cast<Index>(std::floor(wanted)),
                         static_cast<Index>(heads[h].keys.size()));
      remainders[h] = wanted - std::floor(wanted);
      left -= kept[h];
    }
    std::vector<std::size_t> order(heads.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
    for (bool has_given = true; left > 0 && has_given;) {
      has_given = false;
      for (const std::size_t h : order) {
        if (left == 0 || kept[h] == static_cast<Index>(heads[h].keys.size())) continue;
        ++kept[h];
        --left;
        has_given = true;
      }
    }
    return kept;
  }
};

}  // namespace

void register_adakv(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<AdaKv>(
      "adakv", "Ada-KV: one budget for a layer's heads", "arXiv 2407.11550",
      "SnapKV whose heads compete for the layer's budget, above a floor for each");
  entry.family = MethodFamily::budgets;
  entry.presets["adakv-kvpress"] = {
      {"division", "safeguard"}, {"window", "64"}, {"kernel", "5"}, {"pooling", "average"}};
}

}  // namespace kvscope
