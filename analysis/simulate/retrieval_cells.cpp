#include "analysis/simulate/retrieval_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/base/statistics.hpp"
#include "analysis/simulate/chains.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

/// Names the draws of bootstraps over prompts: the same for all cells, so that equal scores have
/// equal intervals.
constexpr std::uint64_t kScoreStream = 0x73636f7265;

}  // namespace

std::size_t RetrievalGrid::index_of(const RetrievalPlace& place) const {
  return (((place.protocol * n_kinds + place.kind) * n_lengths + place.length) * depths.size() +
          place.depth) *
             n_trials +
         place.trial;
}

RetrievalPlace RetrievalGrid::place_of(std::size_t index) const {
  RetrievalPlace place;
  place.trial = index % n_trials;
  index /= n_trials;
  place.depth = index % depths.size();
  index /= depths.size();
  place.length = index % n_lengths;
  index /= n_lengths;
  place.kind = index % n_kinds;
  place.protocol = index / n_kinds;
  return place;
}

RetrievalCell make_cell(const RetrievalGrid& grid, const SimulationUnits& units,
                        RetrievalPlace place, std::optional<std::size_t> depth, std::size_t turn,
                        std::size_t pair, std::size_t n_trials) {
  RetrievalCell cell;
  cell.place = place;
  cell.depth = depth;
  cell.turn = turn;
  cell.pair = pair;
  const std::size_t first = depth.value_or(0);
  const std::size_t last = depth ? *depth + 1 : grid.depths.size();
  for (place.depth = first; place.depth < last; ++place.depth) {
    for (place.trial = 0; place.trial < n_trials; ++place.trial) {
      const UnitResult& unit = units[grid.index_of(place)][pair];
      if (unit.values.empty()) continue;
      cell.scores.push_back(unit.values[turn * kTurnValues]);
      cell.texts.push_back(grid.text_of(place.trial));
      cell.units.push_back(&unit);
    }
  }
  const bool has_failed =
      std::ranges::any_of(cell.scores, [](double score) { return std::isnan(score); });
  cell.mean = has_failed ? kNan : mean(cell.scores);
  cell.interval =
      has_failed ? Interval{kNan, kNan} : score_interval(cell.scores, {kScoreStream}, cell.texts);
  return cell;
}

std::array<double, 3> chain_numbers(const RetrievalCell& cell,
                                    const std::optional<RetrievalCell>& dense,
                                    const RetrievalOptions& options) {
  if (!is_chain(options.kinds[cell.place.kind])) return {kNan, kNan, kNan};
  const double right = cell.mean * static_cast<double>(options.n_steps);
  if (!dense || std::isnan(cell.mean) || std::isnan(dense->mean)) return {right, kNan, kNan};
  double n_same = 0.0;
  double first = kNan;
  for (std::size_t i = 0; i < cell.units.size(); ++i) {
    const auto& own = cell.units[i]->series;
    const auto at = std::ranges::mismatch(own, dense->units[i]->series).in1 - own.begin();
    if (at < options.n_steps) {
      first = std::fmin(first, static_cast<double>(at));
    } else {
      n_same += 1.0;
    }
  }
  return {right, n_same / static_cast<double>(cell.units.size()), first};
}

PairedTest test_cells(const RetrievalCell& a, const RetrievalCell& b) {
  if (std::isnan(a.mean) || std::isnan(b.mean))
    return {.difference = kNan, .interval = {kNan, kNan}, .p = kNan};
  return paired_test(a.scores, b.scores, {kScoreStream}, a.texts);
}

std::vector<JudgedRow> judged_cells(const std::vector<RetrievalCell>& cells,
                                    const SimulationSetup& setup, const RetrievalOptions& options,
                                    const std::vector<double>& depths) {
  std::vector<JudgedRow> rows;
  for (const RetrievalCell& cell : cells) {
    const JudgedBudget budget = judged_budget(setup, cell.pair);
    std::string name = fmt::format(
        "{}, {} tokens, protocol {}", enum_name(options.kinds[cell.place.kind]),
        options.lengths[cell.place.length], options.protocols[cell.place.protocol].name);
    if (cell.depth) name += fmt::format(", depth {:g}", depths[*cell.depth]);
    if (options.turns > 1) name += fmt::format(", turn {}", cell.turn + 1);
    rows.push_back({std::move(name), setup.pairs[cell.pair].asked.selector.text(), budget.kind,
                    budget.value, cell.mean,
                    /*is_share=*/true,
                    /*shown=*/"", reductions_of(cell.units, cell.turn * kTurnValues + 1).per_head});
  }
  return rows;
}

nlohmann::ordered_json comparisons_json(const std::vector<RetrievalCell>& cells,
                                        const std::vector<JudgedRow>& rows,
                                        const SimulationSetup& setup) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const auto label = [&](std::size_t r) { return setup.pairs[cells[r].pair].label(); };
  for (std::size_t a = 0; a < rows.size(); ++a) {
    for (std::size_t b = 0; b < rows.size(); ++b) {
      if (a == b || rows[a].cell != rows[b].cell) continue;
      const bool to_dense = rows[b].selector == "full" && rows[a].selector != "full";
      const bool is_sparse = rows[a].selector != "full" && rows[b].selector != "full";
      const bool same_budget =
          rows[a].budget_kind == rows[b].budget_kind && rows[a].budget == rows[b].budget;
      const bool same_method = rows[a].selector == rows[b].selector;
      if (!to_dense && !(is_sparse && a < b && (same_budget || same_method))) continue;
      const PairedTest test = test_cells(cells[a], cells[b]);
      list.push_back({{"cell", rows[a].cell},
                      {"first", label(a)},
                      {"second", label(b)},
                      {"prompts", test.n},
                      {"only_first", test.only_first},
                      {"only_second", test.only_second},
                      {"difference", json_number(test.difference)},
                      {"low", json_number(test.interval.low)},
                      {"high", json_number(test.interval.high)},
                      {"p", test.p}});
    }
  }
  return list;
}

}  // namespace kvscope
