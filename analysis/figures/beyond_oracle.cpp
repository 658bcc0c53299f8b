#include "analysis/figures/beyond_oracle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/selection.hpp"
#include "core/base/nan.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope::figures {

namespace {

/// A difference that can be seen.
constexpr double kVisible = 0.002;

bool is_error(const SweepMetric& metric) {
  return metric.column.starts_with("output_error");
}

/// Whether no selection of as many keys can lie beyond the oracle, or one should not:
/// mass, recall, errors.
bool is_bounded_by_oracle(const SweepMetric& metric) {
  return metric.column.starts_with("mass") || metric.column.starts_with("recall") ||
         is_error(metric);
}

std::string short_label(const std::string& selector) {
  return method_label(selector.size() <= 14 ? selector : method_name(selector));
}

std::string is_beyond_text(const std::string& who, std::size_t n_methods, bool is_error) {
  return fmt::format(
      "{}{} {} the oracle", short_label(who),
      n_methods > 1 ? fmt::format(" and {} more are", n_methods - 1) : std::string(" is"),
      is_error ? "below" : "above");
}

/// A curve's value at x, straight between its points; NaN beyond them.
struct OnCurve {
  double value = kNan;
  bool is_between = false;  // of two points that lie apart
};

OnCurve on_curve(const std::map<double, double>& curve, double x) {
  constexpr double kSame = 0.015;  // of log2: one in a hundred keys
  auto right = curve.lower_bound(x);
  if (right == curve.end() && !curve.empty() && x - curve.rbegin()->first < kSame)
    right = std::prev(curve.end());
  if (right == curve.end()) return {};
  const bool meets = std::abs(right->first - x) < kSame;
  if (right == curve.begin() && !meets) return {};
  const auto left = meets ? right : std::prev(right);
  const double part = meets ? 0.0 : (x - left->first) / (right->first - left->first);
  return {left->second + part * (right->second - left->second),
          right->first - left->first > 0.4 && part > 0.02 && part < 0.98};
}

/// The same of a closed loop's results at the oracle's budget.
std::string why_beyond_live_oracle(const LiveResult& oracle, const std::vector<LiveResult>& all,
                                   bool is_better_low) {
  const LiveResult* worst = nullptr;
  std::set<std::string> methods;
  for (const LiveResult& one : all) {
    if (one.budget != oracle.budget || one.selector == "full" || is_oracle(one.selector)) continue;
    const double beyond = (one.value - oracle.value) * (is_better_low ? -1.0 : 1.0);
    // of a value that may be large: a thousandth of it cannot be seen
    if (!(beyond > 1e-3 * std::max(1.0, std::abs(oracle.value)))) continue;
    methods.insert(one.selector);
    if (worst == nullptr || (one.value - worst->value) * (is_better_low ? -1.0 : 1.0) > 0.0)
      worst = &one;
  }
  if (worst == nullptr) return "";
  const bool keeps_more = worst->kept > oracle.kept + 0.5;
  return fmt::format("{}: {}.", is_beyond_text(worst->selector, methods.size(), is_better_low),
                     keeps_more ? fmt::format("{:.0f} keys to its {:.0f}", worst->kept, oracle.kept)
                                : "it ranks weights, not answers");
}

}  // namespace

// As many keys in every row cannot hold more than the oracle's: what lies beyond keeps more at one
// nominal budget, divides its keys over rows and heads, or the oracle's curve is straight where the
// oracle is not. As many bytes can: the oracle reads every key to choose.
std::string why_beyond_oracle(const SweepCells& cells, const SweepMetric& metric, Along along) {
  const auto oracle = cells.of.find("oracle-topk");
  if (oracle == cells.of.end() || !is_bounded_by_oracle(metric)) return "";
  const auto place_of = [&](const BudgetKey& key, const SweepCell& cell) {
    const double x = along == Along::budget ? key.second : cell.x.value();
    return x > 0.0 ? std::log2(x) : kNan;
  };
  std::map<double, double> curve;  // the oracle's, as it is drawn
  for (const auto& [key, cell] : oracle->second) {
    if (const double place = place_of(key, cell); !std::isnan(place))
      curve[place] = mean(cell.values);
  }
  double most = kVisible;
  std::string who;
  std::set<std::string> methods;
  BudgetKey at;
  const SweepCell* furthest = nullptr;
  for (const auto& [selector, by_budget] : cells.of) {
    if (selector == "full" || is_oracle(selector)) continue;
    for (const auto& [key, cell] : by_budget) {
      if (along == Along::budget && !oracle->second.contains(key)) continue;
      const double by = (mean(cell.values) - on_curve(curve, place_of(key, cell)).value) *
                        (is_error(metric) ? -1.0 : 1.0);
      if (by > kVisible) methods.insert(selector);
      if (!(by > most)) continue;
      most = by;
      who = selector;
      at = key;
      furthest = &cell;
    }
  }
  if (furthest == nullptr) return "";
  const std::string beyond = is_beyond_text(who, methods.size(), is_error(metric));
  const double x = furthest->x.value();
  if (along == Along::bytes)
    return fmt::format("At {:.3g} KiB {}, which reads every key to choose.", x / 1024.0, beyond);
  if (along == Along::flops)
    return fmt::format("At {:.3g} MFLOPs {}, which scores every key to choose.", x / 1e6, beyond);
  if (along == Along::keys)
    return fmt::format("At {:.0f} keys {}{}.", x, beyond,
                       is_error(metric) ? ", which does not minimise errors"
                       : on_curve(curve, place_of(at, *furthest)).is_between
                           ? "'s line between two of its budgets"
                           : ": it gives some rows more keys");
  const double bound_kept = oracle->second.at(at).kept.value();
  const double kept = furthest->kept.value();
  const bool keeps_more = is_error(metric) ? kept > 1.05 * bound_kept : kept > bound_kept + 0.5;
  return fmt::format("At budget {:g} {}{}.", at.second, beyond,
                     keeps_more ? fmt::format(": {:.0f} keys to its {:.0f}", kept, bound_kept)
                     : is_error(metric) ? ", which does not minimise errors"
                                        : ", with other keys");
}

void say_beyond_oracles(const std::vector<LiveResult>& all, bool is_better_low,
                        std::vector<std::string>& caption) {
  const std::size_t n_before = caption.size();
  for (const LiveResult& oracle : all) {
    if (!is_oracle(oracle.selector)) continue;
    const std::string why = why_beyond_live_oracle(oracle, all, is_better_low);
    if (!why.empty()) caption.push_back(why);
  }
  if (caption.size() == n_before) return;
  caption.push_back(fmt::format(
      "An oracle keeps the keys with the largest attention weights, which is no bound on {}.",
      is_better_low ? "the loss: methods that keep more keys, or others, can predict better"
                    : "answers: methods that keep more keys, or others, can find more facts, and "
                      "few prompts rank by chance"));
}

}  // namespace kvscope::figures
