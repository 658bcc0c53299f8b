#include "analysis/kinds/ladder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/selectors/candidates.hpp"
#include "core/sim/replay.hpp"

namespace kvscope {

namespace {

/// A restriction between a method as its paper defines it and what a serving engine executes, and
/// the wrapper that makes a method take it (core/selectors/coarsen.hpp, core/selectors/every.hpp).
struct LadderLevel {
  std::string restriction;  // "list owner", "granularity", "steps", "scores", "query", "rows"
  std::string name;         // "one list for all heads"
  MethodSpec alone;         // the method with this restriction; empty: it cannot take it
  std::string refused;      // why not; empty: it can
  /// With those of the levels before it, of each kind the last one; empty: it cannot.
  MethodSpec together;
  std::string together_refused;
  /// On the levels of scores: `alone` with equal scores in the other order; empty: it cannot.
  MethodSpec other_order;
  bool is_chunk = false;           // one list for a chunk's queries instead of one for a query
  bool is_together_chunk = false;  // the same for `together`
};

/// What a restriction adds to a method's text.
struct Step {
  std::string restriction;
  std::string name;
  std::string option;  // of coarsen: "owner=layer"
  Index page = 0;      // of the level; 0: it is about something else
  Index every = 1;
  bool is_chunk = false;
};

std::vector<Step> steps(Index every, Index chunk) {
  return {{"", "as the method is", "", 0, 1, false},
          {"list owner", "a list per query head", "owner=q_head", 0, 1, false},
          {"list owner", "a list per KV head", "owner=kv_head", 0, 1, false},
          {"list owner", "one list for all heads", "owner=layer", 0, 1, false},
          {"granularity", "single tokens", "", 1, 1, false},
          {"granularity", "pages of 16", "page=16", 16, 1, false},
          {"granularity", "pages of 64", "page=64", 64, 1, false},
          {"granularity", "pages of 128", "page=128", 128, 1, false},
          {"steps", "chosen at every step", "", 0, 1, false},
          {"steps", fmt::format("chosen at every {}th step", every), "", 0, every, false},
          {"scores", "scores in f32", "scores=f32", 0, 1, false},
          {"scores", "scores in bf16", "scores=bf16", 0, 1, false},
          {"scores", "scores in fp8 (e4m3)", "scores=fp8", 0, 1, false},
          {"query", "each head's own query", "query=own", 0, 1, false},
          {"query", "mean query of a KV head", "query=mean", 0, 1, false},
          {"rows", "a list per query", "", 0, 1, false},
          {"rows", fmt::format("a list per chunk of {}", chunk), "", 0, 1, true}};
}

/// Options of coarsen by restriction, and the rest, put behind the method.
std::string text_with(const MethodSpec& method, const std::vector<const Step*>& taken) {
  std::string options;
  Index every = 1;
  for (const Step* step : taken) {
    if (!step->option.empty()) options += (options.empty() ? ":" : ",") + step->option;
    every = std::max(every, step->every);
  }
  std::string text = method.text();
  if (!options.empty()) text += "+coarsen" + options;
  return every > 1 ? fmt::format("{}+every={}", text, every) : text;
}

/// The method in words, or why there is none.
std::string try_method(const std::string& text, const std::optional<Budget>& budget, bool is_chunk,
                       MethodSpec& spec) {
  try {
    MethodSpec found = text;
    if (budget) check_budget_kind(found.text(), found.caps(), *budget);
    const Phase phase = is_chunk ? Phase::prefill : Phase::decode;
    if (!found.caps().is_defined(phase)) {
      return is_chunk ? "is not defined for chunks of queries"
                      : "is not defined for single queries";
    }
    spec = std::move(found);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

/// "quest chooses in pages of 16" out of "coarsen: quest chooses in pages of 16".
std::string without_prefix(std::string why) {
  const std::string prefix = "coarsen: ";
  return why.starts_with(prefix) ? why.substr(prefix.size()) : why;
}

/// Level by level, the method as it is first: 17 levels. budget: empty for methods that take none.
/// every: steps that one choice serves on the level of steps. chunk: queries of the last level, for
/// its name.
std::vector<LadderLevel> ladder_levels(const MethodSpec& method,
                                       const std::optional<Budget>& budget, Index every,
                                       Index chunk) {
  const Index own_page = method.caps().page_size;
  const std::vector<Step> all = steps(every, chunk);
  std::vector<LadderLevel> levels;
  std::vector<const Step*> taken;  // of each restriction the last one that the method could take
  bool is_chunk = false;
  for (const Step& step : all) {
    LadderLevel level;
    level.restriction = step.restriction;
    level.name = step.name;
    level.is_chunk = step.is_chunk;
    const bool is_too_fine = step.page > 0 && step.page < own_page;
    if (is_too_fine) {
      level.refused = level.together_refused =
          fmt::format("{} chooses in pages of {}", method, own_page);
      levels.push_back(std::move(level));
      continue;
    }
    const bool is_own_page = step.page == own_page;
    level.refused = is_own_page ? try_method(method.text(), budget, step.is_chunk, level.alone)
                                : without_prefix(try_method(text_with(method, {&step}), budget,
                                                            step.is_chunk, level.alone));
    if (step.restriction == "scores" && level.refused.empty())
      try_method(text_with(method, {&step}) + ",ties=last", budget, step.is_chunk,
                 level.other_order);
    std::vector<const Step*> with = taken;
    std::erase_if(with, [&](const Step* one) { return one->restriction == step.restriction; });
    with.push_back(&step);
    level.is_together_chunk = is_chunk || step.is_chunk;
    level.together_refused =
        !level.refused.empty()
            ? level.refused
            : without_prefix(try_method(text_with(method, with), budget, level.is_together_chunk,
                                        level.together));
    if (level.together_refused.empty()) {
      taken = std::move(with);
      is_chunk = level.is_together_chunk;
    }
    levels.push_back(std::move(level));
  }
  return levels;
}

constexpr std::array<std::string_view, 4> kValues = {"mass", "output_error", "kept", "bytes"};
constexpr std::array<std::string_view, 4> kUnits = {"1", "1", "token", "byte"};
constexpr std::array<std::string_view, 4> kWords = {"kept attention", "relative output error",
                                                    "keys per query head",
                                                    "bytes read for one query by all heads"};

/// What one replayed method kept in one layer. [kValues]
using LayerValues = std::array<double, kValues.size()>;

/// A replayed method: values per layer, or why it could not be replayed.
struct Measured {
  std::vector<LayerValues> layers;
  std::string refused;
  /// Keys chosen by score, ascending, in each list of a decode call; none of a dense selection. By
  /// layer and call.
  std::map<std::pair<Index, std::size_t>, std::vector<std::vector<KeyPos>>> lists;
};

/// What the order of equal scores decides in one layer.
struct TieCensus {
  Mean share, changed;
  void add(const std::vector<std::vector<KeyPos>>& first,
           const std::vector<std::vector<KeyPos>>& last) {
    for (std::size_t list = 0; list < std::min(first.size(), last.size()); ++list) {
      std::vector<KeyPos> differ;
      std::ranges::set_difference(first[list], last[list], std::back_inserter(differ));
      share.add(differ.empty() ? 0.0 : 1.0);
      changed.add(static_cast<double>(differ.size()));
    }
  }
};

std::vector<std::vector<KeyPos>> scored_lists(const Selection& selection) {
  std::vector<std::vector<KeyPos>> lists;
  for (Index list = 0; !selection.is_dense && list < selection.n_lists(); ++list) {
    const auto keys = selection.at(list).scored();
    lists.emplace_back(keys.begin(), keys.end());
    std::ranges::sort(lists.back());
  }
  return lists;
}

/// Positions at least a chunk apart, the trace's last one among them.
std::vector<Index> query_positions(const TraceInfo& info, const LadderOptions& options,
                                   const std::string& where) {
  const Index last = info.n_tokens - 1;
  const Index first = std::max(options.chunk, info.n_tokens / 4);
  if (last < first) {
    throw ConfigError("ladder: {} holds {} tokens, expected more than a chunk of {}", where,
                      info.n_tokens, options.chunk);
  }
  const Index n = std::min(options.rows, (last - first) / options.chunk + 1);
  std::vector<Index> positions;
  for (Index i = 0; i < n; ++i)
    positions.push_back(n == 1 ? last : first + i * (last - first) / (n - 1));
  return positions;
}

class LadderReplay {
 public:
  LadderReplay(const TraceSource& trace, const LadderOptions& options, std::vector<Index> layers,
               ThreadPool& pool, const ProgressFn& progress, std::stop_token stop)
      : trace_(trace),
        options_(options),
        layers_(std::move(layers)),
        pool_(pool),
        progress_(progress),
        stop_(stop) {}

  /// Replays the methods on the calls; those that fail while they run say why.
  std::map<std::string, Measured> run(const std::vector<MethodSpec>& methods,
                                      const std::vector<TokenRange>& calls, Phase phase) const {
    std::map<std::string, Measured> all;
    if (methods.empty()) return all;
    try {
      measure(methods, calls, phase, all);
    } catch (const ConfigError&) {  // one of them: which, and why
      all.clear();
      for (const MethodSpec& method : methods) {
        try {
          measure({method}, calls, phase, all);
        } catch (const ConfigError& error) {
          all[method.text()].refused = error.what();
        }
      }
    }
    return all;
  }

 private:
  void measure(const std::vector<MethodSpec>& methods, const std::vector<TokenRange>& calls,
               Phase phase, std::map<std::string, Measured>& all) const {
    std::vector<ReplayPair> pairs;
    for (const MethodSpec& method : methods) pairs.push_back({method, options_.budget});
    ReplayOptions replay;
    replay.calls.phase = phase;
    replay.calls.at = calls;
    replay.rows_per_chunk = 1;  // the last query of each call
    replay.dense_layers = options_.dense_layers;
    std::mutex mutex;
    if (phase == Phase::decode) {
      for (const ReplayPair& pair : pairs) all[pair.selector.text()].lists.clear();
      replay.on_selection = [&](const SelectedCall& selected) {
        auto lists = scored_lists(selected.selection);
        const std::lock_guard lock(mutex);
        all[pairs[selected.pair].selector.text()].lists[{selected.layer, selected.call}] =
            std::move(lists);
      };
    }
    const std::vector<LayerReplay> found =
        replay_layers(trace_, nullptr, layers_, pairs, replay, pool_, progress_, stop_);
    const auto n_q = static_cast<double>(trace_.info().n_q);
    const auto n_tok = static_cast<double>(calls.front().size());
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      Measured& one = all[pairs[p].selector.text()];
      for (const LayerReplay& layer : found) {
        const PairReplay& pair = layer.pairs[p];
        one.layers.push_back(
            {mean(pair.of(ReplayMetric::mass)), mean(pair.of(ReplayMetric::output_error_rel)),
             mean(pair.of(ReplayMetric::kept)), mean(pair.of(ReplayMetric::bytes)) * n_q / n_tok});
      }
    }
  }

  const TraceSource& trace_;
  const LadderOptions& options_;
  std::vector<Index> layers_;
  ThreadPool& pool_;
  const ProgressFn& progress_;
  std::stop_token stop_;
};

void add_method(std::vector<MethodSpec>& methods, const MethodSpec& method) {
  if (!method.empty() && std::ranges::find(methods, method) == methods.end())
    methods.push_back(method);
}

/// The layers that are measured: asked for, recorded, neither dense by option nor by a window.
std::vector<Index> sparse_layers(const TraceInfo& info, const LadderOptions& options) {
  std::vector<Index> layers = options.layers.empty() ? info.layers : options.layers;
  std::ranges::sort(layers);
  require_unique(layers, "layer", "ladder");
  for (const Index layer : layers) info.layer_slot(layer);
  std::erase_if(layers, [&](Index layer) {
    return layer < options.dense_layers || info.window_of(layer).has_value();
  });
  if (layers.empty()) {
    throw ConfigError(
        "ladder: no layer is left that a method chooses in ({} leading layers are dense)",
        options.dense_layers);
  }
  return layers;
}

void check_budget(const LadderOptions& options) {
  if (options.selector.empty())
    throw ConfigError("ladder: no selector is named: expected one, as quest");
  const SelectorCaps& caps = options.selector.caps();
  if (caps.budgets.empty() && options.budget) {
    throw ConfigError("ladder: {} takes no budget, found {}", options.selector,
                      options.budget->to_string());
  }
  if (caps.budgets.empty()) return;
  if (!options.budget)
    throw ConfigError("ladder: {} needs a budget, as tokens=256", options.selector);
  check_budget_kind(options.selector.text(), caps, *options.budget);
}

double mean_over_layers(const std::vector<LayerValues>& layers, std::size_t value) {
  Mean mean;
  for (const LayerValues& layer : layers) mean.add(layer[value]);
  return mean.value();
}

void add_values(Json& row, const std::string& prefix, const Measured* found) {
  for (std::size_t v = 0; v < kValues.size(); ++v) {
    row[prefix + std::string(kValues[v])] =
        found == nullptr ? Json(nullptr) : json_number(mean_over_layers(found->layers, v));
  }
}

/// What every level measured, alone and together.
class LevelResults {
 public:
  LevelResults(const std::vector<LadderLevel>& levels, const LadderOptions& options,
               const std::vector<Index>& positions, const LadderReplay& replay) {
    std::vector<MethodSpec> by_query;
    std::vector<MethodSpec> by_chunk;
    for (const LadderLevel& level : levels) {
      add_method(level.is_chunk ? by_chunk : by_query, level.alone);
      add_method(level.is_together_chunk ? by_chunk : by_query, level.together);
      add_method(by_query, level.other_order);
    }
    std::vector<TokenRange> queries;
    std::vector<TokenRange> chunks;
    for (const Index pos : positions) {
      queries.push_back({pos, pos + 1});
      chunks.push_back({pos + 1 - options.chunk, pos + 1});
    }
    of_queries_ = replay.run(by_query, queries, Phase::decode);
    of_chunks_ = replay.run(by_chunk, chunks, Phase::prefill);
  }

  /// Null where the method is none, or was refused.
  const Measured* of(const MethodSpec& method, bool is_chunk, std::string& refused) const {
    if (method.empty()) return nullptr;
    const Measured& found = (is_chunk ? of_chunks_ : of_queries_).at(method.text());
    if (found.refused.empty()) return &found;
    refused = found.refused;
    return nullptr;
  }

 private:
  std::map<std::string, Measured> of_queries_;
  std::map<std::string, Measured> of_chunks_;
};

using LevelPair = std::array<const Measured*, 2>;  // alone, together
constexpr std::array<std::string_view, 2> kModes = {"alone", "together"};

/// [layer][level]
std::vector<std::vector<TieCensus>> count_ties(const std::vector<LadderLevel>& levels,
                                               const std::vector<Index>& layers,
                                               const LevelResults& results) {
  std::vector<std::vector<TieCensus>> ties(layers.size(), std::vector<TieCensus>(levels.size()));
  for (std::size_t r = 0; r < levels.size(); ++r) {
    std::string refused;
    const Measured* first = results.of(levels[r].alone, false, refused);
    const Measured* last = results.of(levels[r].other_order, false, refused);
    if (first == nullptr || last == nullptr) continue;
    for (const auto& [place, lists] : last->lists) {
      const auto layer = std::ranges::find(layers, place.first) - layers.begin();
      ties[static_cast<std::size_t>(layer)][r].add(first->lists.at(place), lists);
    }
  }
  return ties;
}

Json level_row(const LadderLevel& level, const LevelPair& found, std::size_t r,
               const std::vector<std::vector<TieCensus>>& ties) {
  const auto& [alone, together] = found;
  Json row = {{"concession", level.restriction},
              {"rung", level.name},
              {"selector", alone == nullptr ? "" : level.alone.text()},
              {"refused", level.refused}};
  add_values(row, "", alone);
  row["together_selector"] = together == nullptr ? "" : level.together.text();
  add_values(row, "together_", together);
  Mean share, changed;
  for (const auto& of_layer : ties) {
    share.add(of_layer[r].share.value());
    changed.add(of_layer[r].changed.value());
  }
  row["tie_share"] = json_number(share.value());
  row["tie_changed"] = json_number(changed.value());
  return row;
}

/// Writes the arrays of all layers; returns their rows. `top`: the last level that restrictions
/// together reach.
Json write_layers(const std::vector<Index>& layers, const std::vector<LevelPair>& found,
                  const std::vector<std::vector<TieCensus>>& ties, std::size_t top,
                  ResultWriter& output) {
  const auto n_levels = n_of(found);
  LayerArrays arrays(output, n_of(layers));
  std::array<std::array<Tensor<double>*, kValues.size()>, 2> tensors{};
  for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
    for (std::size_t v = 0; v < kValues.size(); ++v) {
      tensors[mode][v] =
          &arrays.add<double>(fmt::format("{}/{}", kModes[mode], kValues[v]), {n_levels}, {"rung"},
                              std::string(kUnits[v]), std::string(kWords[v]), kNan);
    }
  }
  Tensor<double>& tie_share = arrays.add<double>("ties/share", {n_levels}, {"rung"}, "1",
                                                 "lists whose cut lies among equal scores", kNan);
  Tensor<double>& tie_changed =
      arrays.add<double>("ties/changed", {n_levels}, {"rung"}, "token",
                         "keys of a list that the order of equal scores decides", kNan);
  Json rows = Json::array();
  for (std::size_t l = 0; l < layers.size(); ++l) {
    arrays.clear();
    for (std::size_t r = 0; r < found.size(); ++r) {
      const auto level = static_cast<Index>(r);
      tie_share(level) = ties[l][r].share.value();
      tie_changed(level) = ties[l][r].changed.value();
      for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
        for (std::size_t v = 0; found[r][mode] != nullptr && v < kValues.size(); ++v)
          (*tensors[mode][v])(level) = found[r][mode]->layers[l][v];
      }
    }
    Json row = {{"layer", layers[l]}};
    for (std::size_t v = 0; v < kValues.size(); ++v) {
      row[std::string(kValues[v])] = json_number((*tensors[0][v])(Index{0}));
      row["together_" + std::string(kValues[v])] =
          json_number((*tensors[1][v])(static_cast<Index>(top)));
    }
    rows.push_back(std::move(row));
    arrays.write(static_cast<Index>(l));
  }
  return rows;
}

}  // namespace

Json analyze_ladder(const TraceSource& trace, const LadderOptions& options,
                    const AnalysisRun& run) {
  check_fields(options);
  check_budget(options);
  require_full_qkv(trace, "ladder");
  const TraceInfo& info = trace.info();
  const std::vector<Index> layers = sparse_layers(info, options);
  const std::vector<Index> positions = query_positions(info, options, trace.where());
  std::vector<LadderLevel> levels =
      ladder_levels(options.selector, options.budget, options.every, options.chunk);

  Json config = {{"selector", options.selector.text()},
                 {"budget", options.budget ? Json(options.budget->to_string()) : Json(nullptr)},
                 {"layers", layers}};
  config.update(fields_to_json(options));
  add_artifacts({options.selector}, config);
  run.begin("ladder", trace, config);
  const LadderReplay replay(trace, options, layers, run.pool, run.progress, run.stop);
  const LevelResults results(levels, options, positions, replay);
  write_axis(run.output, "layer", layers, "layer", "layer");
  write_axis(run.output, "query_pos", positions, "token", "position of the measured query");

  const auto ties = count_ties(levels, layers, results);
  Json summary = {{"rows", Json::array()}, {"layers", Json::array()}, {"totals", Json::object()}};
  std::vector<LevelPair> found;
  std::size_t top = 0;  // of those together, the chunk apart, which keeps its own keys beside
  for (LadderLevel& level : levels) {
    found.push_back({results.of(level.alone, level.is_chunk, level.refused),
                     results.of(level.together, level.is_together_chunk, level.together_refused)});
    const std::size_t r = found.size() - 1;
    summary["rows"].push_back(level_row(level, found[r], r, ties));
    if (found[r][1] != nullptr && !level.is_together_chunk) top = r;
  }
  if (!options.selector.caps().decode)
    summary["note"] = fmt::format("{} is not defined for single queries", options.selector);
  summary["layers"] = write_layers(layers, found, ties, top, run.output);
  summary["totals"] = mean_of_layers(summary["layers"]);
  for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
    for (std::size_t v = 0; v < kValues.size(); ++v) {
      add_plot(run.output, fmt::format("plot_{}_{}", kModes[mode], kValues[v]),
               fmt::format("{}/{}", kModes[mode], kValues[v]), {"layer", "."},
               fmt::format("{}, restrictions {}", kWords[v], kModes[mode]));
    }
  }
  return run.finish(std::move(summary));
}

}  // namespace kvscope
