// Setting a simulation up: pairs that make sense, the layer map, the calibration text.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "analysis/base/mapped.hpp"
#include "analysis/simulate/simulation.hpp"
#include "core/attention/monotone_map.hpp"
#include "core/base/error.hpp"
#include "core/sim/live_layer_map.hpp"
#include "core/sim/memory_recording.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kLayerMap = "layer-map";  // SpecAttn's option
constexpr Index kMapStride = 7;  // sampled rows of the layer map; prime to page and chunk sizes

std::span<const TokenId> calibration_text(const SimulationModels& models,
                                          const SimulationOptions& options) {
  const auto n = std::min(static_cast<std::size_t>(options.n_calibration), models.text.size());
  return models.text.last(n);
}

void check_options(const SimulationOptions& options) {
  const auto at_least = [](const char* name, Index value, Index low) {
    if (value < low) throw ConfigError("{}: expected at least {}, found {}", name, low, value);
  };
  at_least("chunk", options.chunk, 1);
  at_least("gamma", options.gamma, 1);
  at_least("calibration tokens", options.n_calibration, 32);
  at_least("seed", options.seed, 0);
  if (options.dense_layers) at_least("dense layers", *options.dense_layers, 0);
}

/// The pairs of all methods that are defined for one of the phases, in the order of the selectors;
/// what one phase alone leaves out is named as well.
PairPlan plan_pairs_of_phases(const SimulationOptions& options, std::span<const Phase> phases) {
  std::vector<MethodSpec> defined;
  std::vector<std::string> skipped;
  for (const MethodSpec& spec : options.selectors) {
    const auto is_defined = [&](Phase phase) { return spec.caps().is_defined(phase); };
    if (std::any_of(phases.begin(), phases.end(), is_defined)) defined.push_back(spec);
    for (const Phase phase : phases) {
      if (!is_defined(phase))
        skipped.push_back(fmt::format("{} is not defined for {}", spec, name_of(phase)));
    }
  }
  if (defined.empty())  // says why
    return plan_pairs(options.selectors, options.budgets, phases.front(), std::nullopt, "simulate");
  PairPlan plan;
  for (const Phase phase : phases) {
    std::vector<MethodSpec> own;
    for (const MethodSpec& spec : defined) {
      const auto is_known = [&](const ReplayPair& pair) {
        return pair.selector.text() == spec.text();
      };
      const bool is_new = std::none_of(plan.pairs.begin(), plan.pairs.end(), is_known);
      if (is_new && spec.caps().is_defined(phase)) own.push_back(spec);
    }
    if (own.empty()) continue;
    PairPlan of_phase = plan_pairs(own, options.budgets, phase, std::nullopt, "simulate");
    plan.pairs.insert(plan.pairs.end(), of_phase.pairs.begin(), of_phase.pairs.end());
    plan.skipped.insert(plan.skipped.end(), of_phase.skipped.begin(), of_phase.skipped.end());
  }
  const auto place = [&](const ReplayPair& pair) {
    return std::find_if(
        options.selectors.begin(), options.selectors.end(),
        [&](const MethodSpec& spec) { return spec.text() == pair.selector.text(); });
  };
  std::stable_sort(plan.pairs.begin(), plan.pairs.end(),
                   [&](const ReplayPair& a, const ReplayPair& b) { return place(a) < place(b); });
  plan.skipped.insert(plan.skipped.begin(), skipped.begin(), skipped.end());
  return plan;
}

/// Every method that is defined for one of the phases, with every target; one without a setting
/// once, with the first.
PairPlan plan_matched_pairs(const SimulationOptions& options, std::span<const Phase> phases,
                            std::vector<std::optional<MatchTarget>>& targets) {
  PairPlan plan;
  for (const MatchTarget& target : options.match) {
    if (target.quantity == MatchQuantity::us)
      throw ConfigError(
          "simulate: match {}: microseconds are predicted from the lists of a recording: use "
          "kvscope sweep --hardware NAME; here expected density, keys or bytes",
          target.to_string());
  }
  require_unique(mapped<std::string>(options.selectors, &MethodSpec::text), "selector", "simulate");
  for (const MethodSpec& spec : options.selectors) {
    bool is_defined = false;
    for (const Phase phase : phases) {
      is_defined = is_defined || spec.caps().is_defined(phase);
      if (!spec.caps().is_defined(phase))
        plan.skipped.push_back(fmt::format("{} is not defined for {}", spec, name_of(phase)));
    }
    if (!is_defined) continue;
    const bool has_setting = BudgetSetting::of(spec, /*by_share=*/true, /*n_keys=*/1).has_value();
    for (const MatchTarget& target : options.match) {
      plan.pairs.push_back({spec, std::nullopt});
      targets.emplace_back(target);
      if (!has_setting) break;
    }
  }
  if (!plan.pairs.empty()) return plan;
  throw ConfigError("simulate: nothing is left to do: {}", fmt::join(plan.skipped, "; "));
}

}  // namespace

std::string LivePair::label() const {
  if (!match) return pair_label(asked);
  return fmt::format("{} {}", asked.selector, match->to_string());
}

std::vector<FurtherText> SimulationModels::texts() const {
  std::vector<FurtherText> all = {{text, text_name}};
  all.insert(all.end(), more_texts.begin(), more_texts.end());
  return all;
}

std::vector<TokenId> text_window(const SimulationModels& models, std::span<const TokenId> text,
                                 Index begin, Index n) {
  std::vector<TokenId> window(
      models.leading.begin(),
      models.leading.begin() + std::min(n, static_cast<Index>(models.leading.size())));
  const auto own =
      text.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n) - window.size());
  window.insert(window.end(), own.begin(), own.end());
  return window;
}

SimulationSetup set_up_simulation(const SimulationModels& models, const SimulationOptions& options,
                                  std::span<const Phase> phases, ThreadPool& pool) {
  check_options(options);
  SimulationSetup setup;
  setup.models = models;
  setup.options = options;
  for (const MethodSpec& spec : options.selectors) {
    const SelectorCaps& caps = spec.caps();
    if (models.draft == nullptr && caps.needs_draft)
      throw ConfigError("selector {}: needs a draft model, and none was given", spec);
    if (options.budgets.empty() && options.match.empty() && !caps.budgets.empty()) {
      throw ConfigError("selector {}: needs a budget, and none was given", spec);
    }
  }
  if (!options.match.empty() && !options.budgets.empty())
    throw ConfigError(
        "simulate: expected budgets or costs to match, found both: a match finds the budgets");
  std::vector<std::optional<MatchTarget>> targets;
  PairPlan plan = options.match.empty() ? plan_pairs_of_phases(options, phases)
                                        : plan_matched_pairs(options, phases, targets);
  targets.resize(plan.pairs.size());
  setup.skipped = std::move(plan.skipped);
  const bool needs_map = std::any_of(plan.pairs.begin(), plan.pairs.end(), [](const auto& pair) {
    return pair.selector.leaves_open(kLayerMap);
  });
  if (needs_map) {
    setup.layer_map = layer_map_text(measure_layer_map(
        *models.verifier, *models.draft, calibration_text(models, options), kMapStride, pool));
  }
  bool learns = false;
  for (std::size_t p = 0; p < plan.pairs.size(); ++p) {
    ReplayPair& asked = plan.pairs[p];
    LivePair pair;
    pair.options = {asked.selector, asked.budget, options.dense_layers};
    if (needs_map) pair.options.selector.fill(kLayerMap, setup.layer_map);
    const SelectorCaps& caps = pair.options.selector.caps();
    pair.needs_draft = caps.needs_draft;
    pair.match = targets[p];
    learns = learns || caps.needs_calibration;
    pair.asked = std::move(asked);
    setup.pairs.push_back(std::move(pair));
  }
  if (learns) {
    setup.calibration = std::make_unique<MemoryTrace>(
        record_in_memory(*models.verifier, calibration_text(models, options), options.chunk, pool));
  }
  return setup;
}

SimulationSetup set_up_simulation(const SimulationModels& models, const SimulationOptions& options,
                                  Phase phase, ThreadPool& pool) {
  return set_up_simulation(models, options, std::span(&phase, 1), pool);
}

std::vector<std::string> pair_texts(const SimulationSetup& setup, const std::string& task,
                                    std::size_t pair) {
  const ReplayPair& asked = setup.pairs[pair].asked;
  return {setup.models.verifier_name, task, asked.selector.text(), kind_of(asked.budget)};
}

double budget_value(const LivePair& pair) {
  return pair.asked.budget ? pair.asked.budget->value : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace kvscope
