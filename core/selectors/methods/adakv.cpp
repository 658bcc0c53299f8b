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
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/attention/topk.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/window_votes.hpp"

namespace kvscope {

namespace {

enum class AdaDivision { counts, safeguard };

class AdaKv final : public WindowVotes {
 public:
  AdaKv() : WindowVotes(32, 7, Pooling::max) {}
  double floor_ = option(floor_, "floor", 0.2, "share of an even division that every KV head gets",
                         in(0.0, 1.0));
  AdaDivision division_ =
      option(division_, "division", AdaDivision::counts,
             "counts: as the official code divides; safeguard: as kvpress does");
  bool normalize_ = option(normalize_, "normalize", false,
                           "votes of a head count by the share that an even budget would hold");

  SelectorCaps caps() const override {
    SelectorCaps caps = WindowVotes::caps();
    caps.divides_budget = true;
    return caps;
  }

 protected:
  /// Together at most n_kv budgets.
  std::vector<Index> shares(Index budget, std::span<const Contest> heads) const override {
    Index total = budget * static_cast<Index>(heads.size());
    for (const Contest& head : heads) total -= head.n_safe;
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

 private:
  /// Of the `total` best votes of the layer, how many each head has; its best safe[h] come first.
  std::vector<Index> count_best(std::span<const Contest> heads, std::span<const Index> safe,
                                Index total, Index even) const {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    Index n_pos = 0;
    for (const Contest& head : heads)
      n_pos = std::max<Index>(n_pos, head.keys.empty() ? 0 : head.keys.back() + 1);
    // [position][head].
    std::vector<double> flat(static_cast<std::size_t>(n_pos) * heads.size(), kNone);
    for (std::size_t h = 0; h < heads.size(); ++h) {
      const Contest& head = heads[h];
      const double weight = normalize_ ? held_share(head.scores, even) : 1.0;
      for (std::size_t i = 0; i < head.keys.size(); ++i)
        flat[static_cast<std::size_t>(head.keys[i]) * heads.size() + h] = weight * head.scores[i];
      for (const Index i : top_k_sorted_by_index(head.scores, safe[h])) {
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
  std::vector<Index> shrink_to_floor(std::span<const Contest> heads, std::span<const Index> counts,
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
