// Setting a simulation up: pairs that make sense, the layer map, the calibration text.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

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
    if (value < low) {
      throw ConfigError(fmt::format("{}: expected at least {}, found {}", name, low, value));
    }
  };
  at_least("chunk", options.chunk, 1);
  at_least("gamma", options.gamma, 1);
  at_least("calibration tokens", options.n_calibration, 32);
  at_least("seed", options.seed, 0);
  if (options.dense_layers) at_least("dense layers", *options.dense_layers, 0);
}

}  // namespace

SimulationSetup set_up_simulation(const SimulationModels& models, const SimulationOptions& options,
                                  Phase phase, ThreadPool& pool) {
  check_options(options);
  SimulationSetup setup;
  setup.models = models;
  setup.options = options;
  for (const MethodSpec& spec : options.selectors) {
    const SelectorCaps& caps = spec.caps();
    if (models.draft == nullptr && caps.needs_draft) {
      throw ConfigError(fmt::format("selector {}: needs a draft model, and none was given", spec));
    }
    if (options.budgets.empty() && !caps.budgets.empty()) {
      throw ConfigError(fmt::format("selector {}: needs a budget, and none was given", spec));
    }
  }
  PairPlan plan = plan_pairs(options.selectors, options.budgets, phase,
                             /*without_draft=*/std::nullopt, "simulate");
  setup.skipped = std::move(plan.skipped);
  const bool needs_map = std::any_of(plan.pairs.begin(), plan.pairs.end(), [](const auto& pair) {
    return pair.selector.leaves_open(kLayerMap);
  });
  if (needs_map) {
    setup.layer_map = layer_map_text(measure_layer_map(
        *models.verifier, *models.draft, calibration_text(models, options), kMapStride, pool));
  }
  bool learns = false;
  for (ReplayPair& asked : plan.pairs) {
    LivePair pair;
    pair.options = {asked.selector, asked.budget, options.dense_layers};
    if (needs_map) pair.options.selector.fill(kLayerMap, setup.layer_map);
    const SelectorCaps& caps = pair.options.selector.caps();
    pair.needs_draft = caps.needs_draft;
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

void for_each_pair(std::span<const std::size_t> pairs, ThreadPool& pool,
                   const std::function<void(std::size_t, ThreadPool&)>& body) {
  if (pairs.size() == 1) {
    body(pairs.front(), pool);
    return;
  }
  pool.parallel_for(static_cast<Index>(pairs.size()), [&](Index i, int) {
    ThreadPool own(/*n_threads=*/1);
    body(pairs[static_cast<std::size_t>(i)], own);
  });
}

std::vector<std::string> pair_texts(const SimulationSetup& setup, const std::string& task,
                                    std::size_t pair) {
  const ReplayPair& asked = setup.pairs[pair].asked;
  const std::string budget = asked.budget ? asked.budget->to_string() : "none";
  return {setup.models.verifier_name, task, asked.selector.text(),
          budget.substr(0, budget.find('='))};
}

double budget_value(const LivePair& pair) {
  return pair.asked.budget ? pair.asked.budget->value : std::numeric_limits<double>::quiet_NaN();
}

std::vector<double> kept_values(const KeptTotals& kept) {
  const auto total = [](const std::vector<double>& values) {
    double sum = 0.0;
    for (double x : values) sum += x;
    return sum;
  };
  return {total(kept.attended), total(kept.visible), total(kept.loaded), total(kept.available)};
}

Reductions reductions_of(const std::vector<const UnitResult*>& units, std::size_t at) {
  double sums[4] = {};
  for (const UnitResult* unit : units) {
    for (std::size_t i = 0; i < 4; ++i) sums[i] += unit->values[at + i];
  }
  const auto reduction = [](double part, double whole) {
    return whole > 0.0 ? 1.0 - part / whole : 0.0;
  };
  return {reduction(sums[0], sums[1]), reduction(sums[2], sums[3])};
}

}  // namespace kvscope
