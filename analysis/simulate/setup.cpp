// Setting a simulation up: pairs that make sense, the layer map, the calibration text.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "analysis/base/mean_rows.hpp"
#include "analysis/simulate/simulation.hpp"
#include "core/attention/layer_divergence.hpp"
#include "core/attention/monotone_map.hpp"
#include "core/base/error.hpp"
#include "core/sim/memory_recording.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kLayerMap = "layer-map";  // SpecAttn's option
constexpr Index kFirstMapRow = 16;                   // shorter rows say little
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
  for (const MatchTarget& target : options.match) {
    if (target.quantity == MatchQuantity::us)
      throw ConfigError(
          "simulate: match {}: microseconds are predicted from the lists of a recording: use "
          "kvscope sweep --hardware NAME; here expected density, keys or bytes",
          target.to_string());
  }
}

/// Head-mean rows of the positions in every layer, each [positions, text].
std::vector<Tensor<double>> mean_rows_of(const Transformer& model, std::span<const TokenId> text,
                                         std::span<const Index> positions, ThreadPool& pool) {
  const MemoryTrace trace = record_in_memory(model, text, /*chunk=*/512, pool);
  ScoreRowLoop loop(pool, {}, "layer map");
  std::vector<Tensor<double>> rows;
  for (const Index layer : trace.info().layers) {
    rows.emplace_back(Shape{std::ssize(positions), std::ssize(text)});
    head_mean_rows(trace, layer, positions, loop, rows.back().view());
  }
  return rows;
}

RowLogs logs_at(const std::vector<Tensor<double>>& layers, Index row, Index n_keys) {
  std::vector<std::span<const double>> rows;
  for (const Tensor<double>& layer : layers)
    rows.push_back(layer.view().row(row).first(static_cast<std::size_t>(n_keys)));
  return RowLogs(rows, Smoothing::when_zero, kSmoothingEps);
}

}  // namespace

std::vector<Index> measure_layer_map(const Transformer& verifier, const Transformer& draft,
                                     std::span<const TokenId> text, Index stride,
                                     ThreadPool& pool) {
  const Index n = std::ssize(text);
  if (n < 2 * kFirstMapRow || stride < 1) {
    throw ConfigError(
        "layer map: expected a calibration text of at least {} tokens and a stride of at least 1, "
        "found {} and {}",
        2 * kFirstMapRow, n, stride);
  }
  std::vector<Index> positions;
  for (Index pos = kFirstMapRow; pos < n; pos += stride) positions.push_back(pos);
  const std::vector<Tensor<double>> of_verifier = mean_rows_of(verifier, text, positions, pool);
  const std::vector<Tensor<double>> of_draft = mean_rows_of(draft, text, positions, pool);
  std::vector<Tensor<double>> of_row(positions.size());
  pool.parallel_for(std::ssize(positions), [&](Index r, int) {
    const auto at = static_cast<std::size_t>(r);
    of_row[at] = Tensor<double>({std::ssize(of_draft), std::ssize(of_verifier)});
    layer_divergences(logs_at(of_verifier, r, positions[at] + 1),
                      logs_at(of_draft, r, positions[at] + 1), of_row[at].view());
  });
  const std::span<double> sum = of_row[0].flat();  // its map is that of the means
  for (std::size_t r = 1; r < of_row.size(); ++r)
    std::ranges::transform(of_row[r].flat(), sum, sum.begin(), std::plus<>());
  return monotone_layer_map(of_row[0].view()).draft_of;
}

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
                                  const std::vector<Phase>& phases, ThreadPool& pool) {
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
  PairPlan plan = plan_pairs(options.selectors, options.budgets, phases, std::nullopt, "simulate",
                             options.match.size());
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
    if (setup.is_matched()) pair.match = options.match[plan.targets[p]];
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

}  // namespace kvscope
