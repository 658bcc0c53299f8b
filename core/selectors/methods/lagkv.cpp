// lagkv: evict what looks like what follows it (Liang et al., LagKV, arXiv 2504.04704; kvpress).
//
// Idea: behind n-sink first keys the cache is cut into partitions of `lag` keys. The next partition
// is a ruler: keys and values of a partition are scaled, channel by channel, to its range there;
// a token whose scaled channels spread the most (standard deviation, softmaxed over the partition,
// mean of the key's and the value's) is unlike its surroundings and stays. The last partition and
// what is behind it have no ruler and stay. No query and no attention weight is looked at. Cost per
// call and KV head with n alive keys: about 16 n d FLOPs and one read of keys and values. Stores
// nothing. Fails where what matters looks like its neighbours.
//
// Decided here: partitions are of the keys that are alive, as of the rows of a compacted cache; the
// cache is shrunk after every call, in decode too. With fewer than n-sink + 2 lag keys the latest
// stay. Within a partition only the order counts (rank / lag, so that all partitions lose alike),
// unless cross-scoring compares the scores themselves. Equal ranks: the earlier key stays (kvpress
// leaves it open). A channel that is constant in the ruler says nothing (kvpress gets NaN). If the
// budget does not pay for sinks and tail, the sinks and the latest stay.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/attention/score_rows.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

namespace {

class LagKv final : public EvictingMethod {
 public:
  Index n_sink_ = first_keys_option(n_sink_);
  Index lag_ = option(lag_, "lag", 128, "keys of a partition", in(2, 1 << 20));
  bool cross_scoring_ = option(cross_scoring_, "cross-scoring", false,
                               "partitions compete by their scores instead of losing alike");

  SelectorCaps caps() const override { return evicting({.needs_values = true}); }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    return channels_cost(call, attended_keys_of(call, selection), /*flops=*/16.0, /*elements=*/2.0);
  }

 protected:
  Index n_sink() const override { return n_sink_; }
  KeyValues scores(const SelectCall& call, const KeyLists& keys) override {
    return of_kv_heads(call, [&](Index kv_head, ScoreWorker&) {
      return head_scores(call.k.sub(kv_head), call.v.sub(kv_head),
                         keys[static_cast<std::size_t>(kv_head)]);
    });
  }

 private:
  std::vector<double> head_scores(TensorView<const float> k, TensorView<const float> v,
                                  std::span<const KeyPos> keys) const {
    std::vector<double> scores(keys.size());
    std::iota(scores.begin(), scores.end(), 2.0);  // above all others, the latest first
    const auto first = static_cast<std::size_t>(n_sink_);
    const auto lag = static_cast<std::size_t>(lag_);
    for (std::size_t at = first; at + 2 * lag <= keys.size(); at += lag) {
      const auto part = keys.subspan(at, lag);
      const auto ruler = keys.subspan(at + lag, lag);
      const std::vector<double> of_keys = spread(k, part, ruler);
      const std::vector<double> of_values = spread(v, part, ruler);
      const auto out = std::span(scores).subspan(at, lag);
      for (std::size_t i = 0; i < lag; ++i) out[i] = (of_keys[i] + of_values[i]) / 2.0;
      if (!cross_scoring_) rank(out);
    }
    return scores;
  }

  /// Softmax over `part` of the standard deviation of each row's channels, scaled to their ranges
  /// in `ruler`.
  static std::vector<double> spread(TensorView<const float> x, std::span<const KeyPos> part,
                                    std::span<const KeyPos> ruler) {
    const auto d = static_cast<std::size_t>(x.dim(1));
    const auto begin = x.row(ruler.front());
    std::vector<double> low(begin.begin(), begin.end());
    std::vector<double> high = low;
    for (const KeyPos pos : ruler) {
      const auto row = x.row(pos);
      for (std::size_t c = 0; c < d; ++c) {
        low[c] = std::min(low[c], static_cast<double>(row[c]));
        high[c] = std::max(high[c], static_cast<double>(row[c]));
      }
    }
    std::vector<double> deviations;
    std::vector<double> scaled(d);
    for (const KeyPos pos : part) {
      const auto row = x.row(pos);
      for (std::size_t c = 0; c < d; ++c) {
        scaled[c] =
            high[c] > low[c] ? (static_cast<double>(row[c]) - low[c]) / (high[c] - low[c]) : 0.0;
      }
      const double mean =
          std::accumulate(scaled.begin(), scaled.end(), 0.0) / static_cast<double>(d);
      double squares = 0.0;
      for (const double value : scaled) squares += (value - mean) * (value - mean);
      deviations.push_back(
          std::sqrt(squares / static_cast<double>(std::max<std::size_t>(d, 2) - 1)));
    }
    softmax_in_place(deviations);
    return deviations;
  }

  /// Scores become ranks, 0 for the lowest, as shares of the partition; of equal ones the earlier
  /// is the higher.
  static void rank(std::span<double> scores) {
    std::vector<std::size_t> order(scores.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return scores[i]; });
    for (std::size_t r = 0; r < order.size(); ++r)
      scores[order[r]] = static_cast<double>(r) / static_cast<double>(order.size());
  }
};

}  // namespace

void register_lagkv(SelectorRegistry& registry) {
  registry.add<LagKv>("lagkv", "LagKV: eviction by what follows", "arXiv 2504.04704",
                      "keeps the keys and values that differ from the partition behind them");
}

}  // namespace kvscope
