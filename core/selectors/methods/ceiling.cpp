// ceiling: per row and query head, every key whose exact weight reaches one level, the same for all
// rows, heads and layers.
//
// Idea: of all ways to give out a number of keys over all rows, heads and layers together, the one
// that keeps the most attention takes the largest weights wherever they stand: a water level.
// oracle-topk gives every row as many keys, so that it loses where some rows need few and others
// many. At equal measured cost (--match keys=N) nothing keeps more of the attention, in the mean
// over rows, heads and layers, than this.
//
// of=output is made for the error of a head's output o instead: |y - o| / |o|, y the output of what
// is kept. Keys are taken in an order, by weight a_i or by what dropping them moves, a_i |v_i - o|,
// and as many as make (error + level x keys) least: one price of a key for all rows, heads and
// layers. So no way to give out as many keys in these orders (oracle-topk is one) has a smaller
// mean error. Sets that are no beginning of either may have: to find the best is a search over
// subsets.
//
// Cost: full scoring, 2 n_q n_tok T d FLOPs and one read of all keys; of=output 11 n_q n_tok T d
// more and one read of all values. Stores nothing.
//
// No ceiling of what is made of the attention: output error, perplexity and facts found can be
// better with other keys. A row without such a weight keeps nothing.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/attention/key_kernels.hpp"
#include "core/attention/nucleus.hpp"
#include "core/attention/score_rows.hpp"
#include "core/attention/topk.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/exact_weights.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

namespace {

enum class CeilingOf { mass, output };

class Ceiling final : public Selector {
 public:
  double level_ =
      option(level_, "level", 1e-3,
             "the least that a key must be worth: of the weight, or of the error", in(0.0, 1.0));
  CeilingOf of_ = option(of_, "of", CeilingOf::mass,
                         "mass: of all the attention the most; output: the least error of outputs");
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override {
    return {.owner = ListOwner::q_head,
            .needs_values = of_ == CeilingOf::output,
            .dense_layers = dense_layers_};
  }

  std::vector<Selection> do_select_budgets(SelectCall call,
                                           std::span<const Budget> budgets) override {
    return select_by_exact_weights(call, budgets.size(), [&](const ExactRow& row, std::size_t) {
      if (of_ == CeilingOf::mass) return indices_at_least(row.weights, level_);
      return least_error(call, row);
    });
  }

  std::optional<ListPlan> plan(const Budget&, Phase) const override {
    if (of_ != CeilingOf::mass || level_ == 0.0) return std::nullopt;
    return ListPlan{.by = ListPlan::By::attention, .least_weight = level_};
  }
  HostRows host_rows() const override {
    return of_ == CeilingOf::mass ? HostRows::none : HostRows::all;
  }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const SelectCost scores = exact_scoring_cost(call, call_range(call), call.n_tok);
    if (of_ == CeilingOf::mass) return scores;
    // per key and channel: the output 2, a distance to it 3, and 3 for each of two orders
    return scores + scores + flops_cost(4.5 * scores.score_flops);
  }

 private:
  std::vector<Index> least_error(const SelectCall& call, const ExactRow& row) const {
    const auto values = call.v.sub(row.kv_head).range(0, row.visible.begin, row.visible.end);
    const std::vector<double> weights(row.weights.begin(), row.weights.end());
    const double rest = 1.0 - std::reduce(weights.begin(), weights.end());  // an attention sink's
    std::vector<double> output(static_cast<std::size_t>(values.dim(1)), 0.0);
    add_weighted_rows(weights, values, output);
    const double norm = norm_of(output);
    std::vector<double> moves(weights.size());
    for (std::size_t key = 0; key < moves.size(); ++key)
      moves[key] = weights[key] * distance(values.row(static_cast<Index>(key)), 1.0, output);

    std::vector<Index> kept;
    double least = norm;  // without a key
    std::vector<double> sum(output.size());
    for (const std::vector<double>& by : {weights, moves}) {
      const std::vector<Index> order = top_k(by, static_cast<Index>(by.size()));
      std::ranges::fill(sum, 0.0);
      double mass = std::max(rest, 0.0);
      Index n_kept = 0;
      for (std::size_t n = 0; n < order.size(); ++n) {
        const double weight = weights[static_cast<std::size_t>(order[n])];
        const auto value = values.row(order[n]);
        mass += weight;
        for (std::size_t c = 0; c < sum.size(); ++c)
          sum[c] += weight * static_cast<double>(value[c]);
        const double worth = distance(std::span<const double>(sum), mass, output) +
                             level_ * norm * static_cast<double>(n + 1);
        if (!(worth < least)) continue;
        least = worth;
        n_kept = static_cast<Index>(n) + 1;
      }
      if (n_kept > 0) kept.assign(order.begin(), order.begin() + n_kept);
    }
    std::ranges::sort(kept);
    return kept;
  }

  /// |x / mass - y|.
  template <class T>
  static double distance(std::span<const T> x, double mass, std::span<const double> y) {
    double sum = 0.0;
    for (std::size_t c = 0; c < y.size(); ++c) {
      const double off = static_cast<double>(x[c]) / mass - y[c];
      sum += off * off;
    }
    return std::sqrt(sum);
  }
};

}  // namespace

void register_ceiling(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<Ceiling>(
      "ceiling", "Ceiling: the largest weights of all rows, heads and layers", "control",
      "keeps every key whose real weight reaches one level, which is the most attention that so "
      "many keys can hold");
  entry.settings = {{.option = "level", .low = 1e-9, .high = 1.0, .falls = true, .is_log = true}};
}

}  // namespace kvscope
