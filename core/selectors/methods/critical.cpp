// critical: what a lost key would change in the output, not only how much attention it gets (Feng
// et al., Identify Critical KV Cache, arXiv 2502.03805: CriticalKV and CriticalAdaKV; kvpress).
//
// Idea: the last queries of the prompt vote as in SnapKV. A first part of the budget goes to the
// keys with the most votes; the rest to the largest product of a vote and the L1 norm of what the
// layer makes of the key's value, W_o v, the mean over the heads of its group. Prefill itself is
// full attention; decoded tokens are appended and never evicted.
//
// Cost per prefill call with T keys alive: SnapKV's, and 2 n_q d d_model FLOPs for each new value
// (its norm is kept, one number per key). Fails as SnapKV does when the question is not in the
// window. Needs the projection, so that it runs inside a model; a recording has none.
//
// Decided where the sources differ: the window stays (in kvpress a window key of tiny norm may
// leave) and is part of the first part. Votes are means over the window's rows, to which epsilon is
// added. heads=adaptive divides the layer's budget as Ada-KV's safeguard does, by votes, before
// the two parts are chosen. Equal scores: the earlier key stays.
#include <algorithm>
#include <limits>

#include "core/attention/output_projection.hpp"
#include "core/attention/topk.hpp"
#include "core/base/error.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/head_budgets.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/window_votes.hpp"

namespace kvscope {

namespace {

enum class HeadBudgets { even, adaptive };

/// Of the values of one KV head, in order of position.
struct Lengths {
  std::vector<double> values;
  void truncate(Index n_keys) {
    values.resize(std::min(values.size(), static_cast<std::size_t>(n_keys)));
  }
};

class Critical final : public WindowVotes {
 public:
  Critical() : WindowVotes(64, 5, Pooling::average) {}
  double first_stage_ = option(first_stage_, "first-stage", 0.5,
                               "share of the budget that goes by votes alone", in(0.0, 1.0));
  double epsilon_ = option(epsilon_, "epsilon", 1e-4,
                           "added to a vote before the value's length multiplies it", in(0.0, 1.0));
  HeadBudgets heads_ =
      option(heads_, "heads", HeadBudgets::even,
             "adaptive: the layer's budget is divided over its heads as Ada-KV does");
  double floor_ =
      option(floor_, "floor", 0.2,
             "heads=adaptive: share of an even division that every KV head gets", in(0.0, 1.0));

  HostRows host_rows() const override { return HostRows::all; }  // values, too
  SelectorCaps caps() const override {
    return evicting({.needs_values = true,
                     .needs_projection = true,
                     .divides_budget = heads_ == HeadBudgets::adaptive});
  }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    SelectCost cost = WindowVotes::cost(call, selection);
    cost.metadata_bytes += attended_keys_of(call, selection) * kBytesPerProb;
    return cost;
  }

 protected:
  KeyValues scores(const SelectCall& call, const KeyLists& keys) override {
    KeyValues votes = WindowVotes::scores(call, keys);
    const auto n_rows = static_cast<double>(voting_rows(call).size());
    for (auto& head : votes) {
      for (double& vote : head) vote /= n_rows;
    }
    const Index budget = budget_of(call);
    const std::vector<Contest> contests = contests_of(budget, keys, votes);
    shares_ = heads_ == HeadBudgets::adaptive
                  ? divide_budget(budget, contests, {BudgetDivision::Way::safeguard, floor_, false})
                  : WindowVotes::shares(budget, contests);
    KeyValues scores = votes;
    engine_of(call).run(call.k.dim(0), [&](Index kv_head, ScoreWorker&) {
      const auto at = static_cast<std::size_t>(kv_head);
      const std::vector<double>& length = lengths(call, kv_head);
      for (std::size_t i = 0; i < keys[at].size(); ++i)
        scores[at][i] = (votes[at][i] + epsilon_) * length[static_cast<std::size_t>(keys[at][i])];
      const Index n_left = budget - contests[at].n_safe;
      const auto n_floor = static_cast<Index>(
          heads_ == HeadBudgets::adaptive ? floor_ * static_cast<double>(n_left) : 0.0);
      const auto n_held = static_cast<double>(shares_[at] + contests[at].n_safe);
      const Index n_first =
          std::max(static_cast<Index>(first_stage_ * n_held) - contests[at].n_safe, n_floor);
      const auto offset = contests[at].scores.data() - votes[at].data();
      for (const Index i : top_k(contests[at].scores, n_first))
        scores[at][static_cast<std::size_t>(offset + i)] = std::numeric_limits<double>::max();
    });
    return scores;
  }
  std::vector<Index> shares(Index, std::span<const Contest>) const override { return shares_; }

 private:
  const std::vector<double>& lengths(const SelectCall& call, Index kv_head) const {
    if (shape_.projection == nullptr) {
      throw ConfigError(
          "critical: needs the model's output projection; run it inside a model (simulate)");
    }
    std::vector<double>& known =
        engine_of(call).kept<Lengths>(this, call.layer, kv_head, [] { return Lengths(); }).values;
    const auto v = call.v.sub(kv_head);
    const auto n_known = static_cast<Index>(known.size());
    const auto fresh =
        shape_.projection->lengths(call.layer, kv_head, v.range(0, n_known, v.dim(0)));
    known.insert(known.end(), fresh.begin(), fresh.end());
    return known;
  }

  std::vector<Index> shares_;  // of the running call
};

}  // namespace

void register_critical(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<Critical>(
      "critical", "CriticalKV: votes and what values become", "arXiv 2502.03805",
      "keeps the keys with the most votes, then those whose loss would change the output most");
  entry.presets["critical-adakv"] = {{"heads", "adaptive"}};
}

}  // namespace kvscope
