#include "analysis/base/replay_pairs.hpp"

#include <algorithm>
#include <numeric>

#include "analysis/base/mapped.hpp"
#include "core/selectors/budget_setting.hpp"

namespace kvscope {

ReplayOptions ReplayedCalls::replay(const std::vector<Index>& q_heads) const {
  ReplayOptions options;
  options.calls.phase = phase;
  options.calls.chunk = chunk;
  options.calls.steps = steps;
  options.rows_per_chunk = rows_per_chunk;
  options.q_heads = q_heads;
  return options;
}

PairPlan plan_pairs(const std::vector<MethodSpec>& selectors, const std::vector<Budget>& budgets,
                    const std::vector<Phase>& phases,
                    const std::optional<std::string>& without_draft, std::string_view analysis,
                    std::size_t n_targets) {
  if (n_targets > 0 && !budgets.empty())
    throw ConfigError(
        "{}: expected budgets or costs to match, found both: a match finds the budgets", analysis);
  PairPlan plan;
  require_unique(mapped<std::string>(selectors, &MethodSpec::text), "selector", analysis);
  require_unique(mapped<std::string>(budgets, &Budget::to_string), "budget", analysis);
  for (const MethodSpec& spec : selectors) {
    const SelectorCaps& caps = spec.caps();
    bool is_defined = false;
    for (const Phase phase : phases) {
      is_defined = is_defined || caps.is_defined(phase);
      if (!caps.is_defined(phase))
        plan.skipped.push_back(spec.text() + caps.not_defined_for(phase));
    }
    if (!is_defined) continue;
    if (caps.needs_draft && without_draft) {
      throw ConfigError("selector {}: needs the draft model's attention, and {} has no draft trace",
                        spec, *without_draft);
    }
    if (n_targets > 0) {
      const bool has_setting = BudgetSetting::of(spec, /*by_share=*/true, /*n_keys=*/1).has_value();
      for (std::size_t target = 0; target < (has_setting ? n_targets : 1); ++target) {
        plan.pairs.push_back({spec, std::nullopt});
        plan.targets.push_back(target);
      }
      continue;
    }
    if (caps.budgets.empty()) {
      plan.pairs.push_back({spec, std::nullopt});
      continue;
    }
    for (const Budget& budget : budgets) {
      const bool fits = std::ranges::find(caps.budgets, budget.kind) != caps.budgets.end();
      if (fits) {
        plan.pairs.push_back({spec, budget});
      } else {
        const auto kind_text = [](Budget::Kind kind) {
          return fmt::format("{}=...", enum_name(kind));
        };
        const std::string sentence =
            fmt::format("{} takes no budget {}, expected {}", spec, kind_text(budget.kind),
                        fmt::join(mapped<std::string>(caps.budgets, kind_text), " or "));
        if (std::ranges::find(plan.skipped, sentence) == plan.skipped.end()) {
          plan.skipped.push_back(sentence);  // once for all values of a kind
        }
      }
    }
  }
  if (!plan.pairs.empty()) return plan;
  throw ConfigError(
      plan.skipped.empty()
          ? fmt::format("{}: expected at least one selector, and a budget for those that take one",
                        analysis)
          : fmt::format("{}: nothing is left to do: {}", analysis, fmt::join(plan.skipped, "; ")));
}

Index dense_layers_of(MethodSpec method, Index otherwise) {
  method.fill("dense-layers", otherwise);
  return std::max(otherwise, method.caps().dense_layers);
}

CallPlan whole_periods(CallPlan calls, const std::vector<ReplayPair>& pairs) {
  for (const ReplayPair& pair : pairs)
    calls.period = std::lcm(calls.period, pair.selector.caps().steps_per_choice);
  return calls;
}

std::vector<ReplayItem> replay_items(const std::vector<Index>& layers,
                                     const std::vector<ReplayPair>& pairs) {
  std::vector<ReplayItem> items;
  const auto add = [&](const std::vector<Index>& of, bool are_linked) {
    const std::size_t first = items.size();
    for (std::size_t p = 0; p < pairs.size(); ++p)
      if (pairs[p].selector.caps().cross_layer == are_linked) items.push_back({of, p, first});
  };
  for (const Index layer : layers) add({layer}, false);
  add(layers, true);
  return items;
}

std::string pair_label(const ReplayPair& pair) {
  return pair.budget ? fmt::format("{} {}", pair.selector, pair.budget->to_string())
                     : pair.selector.text();
}

std::string_view selector_of_label(std::string_view label) {
  return label.substr(0, label.find(' '));
}

}  // namespace kvscope
