#include "analysis/kinds/ladder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"
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
  struct Method {
    MethodSpec spec;        // empty: the method cannot take the restriction
    std::string refused;    // why not; empty: it can
    bool is_chunk = false;  // one list for a chunk's queries instead of one for a query
  };
  std::string restriction;  // "list owner", "granularity", "steps", "scores", "query", "rows"
  std::string name;         // "one list for all heads"
  /// The method with this restriction alone; with those of the levels before it too, of each kind
  /// the last one.
  std::array<Method, 2> methods;
  /// On the levels of scores: the first of them with equal scores in the other order; empty: none.
  MethodSpec other_order;
};
constexpr std::array<std::string_view, 2> kModes = {"alone", "together"};

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

/// Fills in the method of a text, or why there is none: "quest chooses in pages of 16" out of
/// "coarsen: quest chooses in pages of 16".
void try_method(const std::string& text, const std::optional<Budget>& budget,
                LadderLevel::Method& method) {
  try {
    const MethodSpec found = text;
    if (budget) check_budget_kind(found.text(), found.caps(), *budget);
    const bool is_defined =
        found.caps().is_defined(method.is_chunk ? Phase::prefill : Phase::decode);
    if (is_defined) {
      method.spec = found;
    } else {
      method.refused = method.is_chunk ? "is not defined for chunks of queries"
                                       : "is not defined for single queries";
    }
  } catch (const ConfigError& error) {
    const std::string_view why = error.what();
    const std::string_view prefix = "coarsen: ";
    method.refused = why.substr(why.starts_with(prefix) ? prefix.size() : 0);
  }
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
    LadderLevel level{.restriction = step.restriction, .name = step.name};
    auto& [alone, together] = level.methods;
    alone.is_chunk = step.is_chunk;
    const bool is_too_fine = step.page > 0 && step.page < own_page;
    if (is_too_fine) {
      alone.refused = together.refused = fmt::format("{} chooses in pages of {}", method, own_page);
      levels.push_back(std::move(level));
      continue;
    }
    const bool is_own_page = step.page == own_page;
    try_method(is_own_page ? method.text() : text_with(method, {&step}), budget, alone);
    if (step.restriction == "scores" && alone.refused.empty()) {
      LadderLevel::Method last;
      try_method(text_with(method, {&step}) + ",ties=last", budget, last);
      level.other_order = last.spec;
    }
    std::vector<const Step*> with = taken;
    std::erase_if(with, [&](const Step* one) { return one->restriction == step.restriction; });
    with.push_back(&step);
    together.is_chunk = is_chunk || step.is_chunk;
    together.refused = alone.refused;
    if (alone.refused.empty()) try_method(text_with(method, with), budget, together);
    if (together.refused.empty()) {
      taken = std::move(with);
      is_chunk = together.is_chunk;
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

/// What one replayed method kept in one layer.
struct Measured {
  std::array<double, kValues.size()> values{};
  /// Keys chosen by score, ascending, in each list of a decode call; none of a dense selection. By
  /// call.
  std::vector<std::vector<std::vector<KeyPos>>> lists;
};
/// By method and layer.
using MeasuredMethods = std::map<std::string, std::vector<Measured>>;

std::vector<std::vector<KeyPos>> scored_lists(const Selection& selection) {
  std::vector<std::vector<KeyPos>> lists;
  for (Index list = 0; !selection.is_dense && list < selection.n_lists(); ++list) {
    const auto keys = selection.at(list).scored();
    lists.emplace_back(keys.begin(), keys.end());
    std::ranges::sort(lists.back());
  }
  return lists;
}

/// Positions at least a chunk apart, the trace's last one among them. One after the other they
/// stand at every place of the steps between two choices, as all positions do.
std::vector<Index> query_positions(const TraceInfo& info, const LadderOptions& options,
                                   const std::string& where) {
  const Index last = info.n_tokens - 1;
  const Index first = std::max(options.chunk, info.n_tokens / 4);
  if (last < first) {
    throw ConfigError("ladder: {} holds {} tokens, expected more than a chunk of {}", where,
                      info.n_tokens, options.chunk);
  }
  const Index shift = options.every - 1;
  const Index room = std::max<Index>(0, last - first - shift);
  const Index n = std::min(options.rows, room / (options.chunk + shift) + 1);
  std::vector<Index> positions = evenly_spaced(last - room, info.n_tokens, n);
  for (Index i = 0; i < n; ++i) {
    Index& position = positions[static_cast<std::size_t>(i)];
    position -= (position + n - 1 - i + (options.every - last % options.every)) % options.every;
  }
  return positions;
}

class LadderReplay {
 public:
  LadderReplay(const TraceSource& trace, const LadderOptions& options,
               const std::vector<Index>& positions, const AnalysisRun& run)
      : trace_(trace), options_(options), run_(run) {
    for (const Index pos : positions) {
      queries_.push_back({pos, pos + 1});
      chunks_.push_back({pos + 1 - options.chunk, pos + 1});
    }
  }

  /// What the methods keep in these layers; of chunks: asked for a chunk's queries together.
  /// `is_trial`: at the first query alone.
  MeasuredMethods measure(const std::vector<MethodSpec>& methods, const std::vector<Index>& layers,
                          bool of_chunks, bool is_trial = false) const {
    MeasuredMethods all;
    if (methods.empty()) return all;
    std::vector<ReplayPair> pairs;
    for (const MethodSpec& method : methods) pairs.push_back({method, options_.budget});
    ReplayOptions replay;
    replay.calls.phase = of_chunks ? Phase::prefill : Phase::decode;
    replay.calls.at = of_chunks ? chunks_ : queries_;
    if (is_trial) replay.calls.at.resize(1);
    replay.rows_per_chunk = 1;  // the last query of each call
    replay.dense_layers = options_.dense_layers;
    for (const MethodSpec& method : methods) {
      all[method.text()].resize(layers.size());
      for (Measured& one : all[method.text()]) one.lists.resize(replay.calls.at.size());
    }
    if (of_chunks) {
      replay.on_selection = [&](const SelectedCall& selected) {
        if (selected.selection.rows_per_list == 1 && selected.tokens.size() > 1)
          throw ConfigError("has a list per query in chunks too");
      };
    } else {
      replay.on_selection = [&](const SelectedCall& selected) {
        auto lists = scored_lists(selected.selection);
        const auto slot = std::ranges::find(layers, selected.layer) - layers.begin();
        all[pairs[selected.pair].selector.text()][static_cast<std::size_t>(slot)]
            .lists[selected.call] = std::move(lists);
      };
    }
    const std::vector<LayerReplay> found =
        replay_layers(trace_, nullptr, layers, pairs, replay, run_.pool, {}, run_.stop);
    const auto n_q = static_cast<double>(trace_.info().n_q);
    const auto n_tok = static_cast<double>(replay.calls.at.front().size());
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      for (std::size_t l = 0; l < layers.size(); ++l) {
        const PairReplay& pair = found[l].pairs[p];
        all[pairs[p].selector.text()][l].values = {
            mean(pair.of(ReplayMetric::mass)), mean(pair.of(ReplayMetric::output_error_rel)),
            mean(pair.of(ReplayMetric::kept)), mean(pair.of(ReplayMetric::bytes)) * n_q / n_tok};
      }
    }
    return all;
  }

 private:
  const TraceSource& trace_;
  const LadderOptions& options_;
  const AnalysisRun& run_;
  std::vector<TokenRange> queries_, chunks_;
};

void add_method(std::vector<MethodSpec>& methods, const MethodSpec& method) {
  if (!method.empty() && std::ranges::find(methods, method) == methods.end())
    methods.push_back(method);
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

/// What every level measured in some layers: asked for single queries, for chunks.
using LevelResults = std::array<MeasuredMethods, 2>;

LevelResults measure_levels(const std::vector<LadderLevel>& levels,
                            const std::vector<Index>& layers, const LadderReplay& replay,
                            bool is_trial = false) {
  std::array<std::vector<MethodSpec>, 2> asked;
  for (const LadderLevel& level : levels) {
    for (const LadderLevel::Method& method : level.methods)
      add_method(asked[method.is_chunk ? 1 : 0], method.spec);
    add_method(asked[0], level.other_order);
  }
  return {replay.measure(asked[0], layers, /*of_chunks=*/false, is_trial),
          replay.measure(asked[1], layers, /*of_chunks=*/true, is_trial)};
}

/// Takes the methods away that fail at the first query of these layers, and says why.
void refuse_what_fails(std::vector<LadderLevel>& levels, const std::vector<Index>& layers,
                       const LadderReplay& replay) {
  try {
    measure_levels(levels, layers, replay, /*is_trial=*/true);
    return;
  } catch (const ConfigError&) {  // one of them: which, and why
  }
  for (LadderLevel& level : levels) {
    for (LadderLevel::Method& method : level.methods) {
      try {
        if (!method.spec.empty()) replay.measure({method.spec}, layers, method.is_chunk, true);
      } catch (const ConfigError& error) {
        if (&level == &levels.front()) throw;  // the method as it is
        method.refused = error.what();
        method.spec = {};
      }
    }
    if (level.methods[0].spec.empty()) level.other_order = {};
  }
}

/// The arrays of a layer, and what of all layers the summary says of each level.
class LadderArrays {
 public:
  LadderArrays(ResultWriter& output, Index n_layers, Index n_levels)
      : arrays(output, n_layers), means_(static_cast<std::size_t>(n_levels)) {
    const auto add = [&](const std::string& name, std::string_view units, std::string_view words) {
      tensors_.push_back(&arrays.add<double>(name, {n_levels}, {"rung"}, std::string(units),
                                             std::string(words), kNan));
    };
    for (const std::string_view mode : kModes) {
      for (std::size_t v = 0; v < kValues.size(); ++v)
        add(fmt::format("{}/{}", mode, kValues[v]), kUnits[v], kWords[v]);
    }
    add("ties/share", "1", "lists whose cut lies among equal scores");
    add("ties/changed", "token", "keys of a list that the order of equal scores decides");
  }

  void fill(const std::vector<LadderLevel>& levels, const LevelResults& results, std::size_t slot) {
    const auto of = [&](const MethodSpec& spec, bool is_chunk) -> const Measured& {
      return results[is_chunk ? 1 : 0].at(spec.text())[slot];
    };
    for (std::size_t r = 0; r < levels.size(); ++r) {
      const auto& methods = levels[r].methods;
      for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
        if (methods[mode].spec.empty()) continue;
        const Measured& found = of(methods[mode].spec, methods[mode].is_chunk);
        for (std::size_t v = 0; v < kValues.size(); ++v) at(mode, v, r) = found.values[v];
      }
      if (!levels[r].other_order.empty())
        count_ties(of(methods[0].spec, false), of(levels[r].other_order, false), r);
    }
  }

  /// Of the layer that is in the arrays now. `top`: the last level of those together.
  void summarize(std::size_t top, Json& entry) {
    for (std::size_t r = 0; r < means_.size(); ++r) {
      for (std::size_t i = 0; i < tensors_.size(); ++i)
        means_[r][i].add((*tensors_[i])(static_cast<Index>(r)));
    }
    for (std::size_t v = 0; v < kValues.size(); ++v) {
      entry[std::string(kValues[v])] = json_number(at(0, v, 0));
      entry["together_" + std::string(kValues[v])] = json_number(at(1, v, top));
    }
  }

  /// Means over the layers.
  Json row(const LadderLevel& level, std::size_t r) const {
    const auto& [alone, together] = level.methods;
    const auto text_of = [](const MethodSpec& spec) { return spec.empty() ? "" : spec.text(); };
    Json row = {{"concession", level.restriction},
                {"rung", level.name},
                {"selector", text_of(alone.spec)},
                {"refused", alone.refused},
                {"together_refused", alone.refused.empty() ? together.refused : ""}};
    const auto mean = [&](std::size_t i) { return json_number(means_[r][i].value()); };
    for (std::size_t v = 0; v < kValues.size(); ++v) row[std::string(kValues[v])] = mean(v);
    row["together_selector"] = text_of(together.spec);
    for (std::size_t v = 0; v < kValues.size(); ++v)
      row["together_" + std::string(kValues[v])] = mean(kValues.size() + v);
    row["tie_share"] = mean(kTies);
    row["tie_changed"] = mean(kTies + 1);
    return row;
  }

  LayerArrays arrays;

 private:
  static constexpr std::size_t kTies = kModes.size() * kValues.size();

  double& at(std::size_t mode, std::size_t value, std::size_t level) {
    return (*tensors_[mode * kValues.size() + value])(static_cast<Index>(level));
  }

  void count_ties(const Measured& first, const Measured& last, std::size_t r) {
    Mean share, changed;
    for (std::size_t call = 0; call < last.lists.size(); ++call) {
      const auto& a = first.lists[call];
      const auto& b = last.lists[call];
      for (std::size_t list = 0; list < std::min(a.size(), b.size()); ++list) {
        std::vector<KeyPos> differ;
        std::ranges::set_difference(a[list], b[list], std::back_inserter(differ));
        share.add(differ.empty() ? 0.0 : 1.0);
        changed.add(static_cast<double>(differ.size()));
      }
    }
    (*tensors_[kTies])(static_cast<Index>(r)) = share.value();
    (*tensors_[kTies + 1])(static_cast<Index>(r)) = changed.value();
  }

  std::vector<Tensor<double>*> tensors_;            // [kModes][kValues], then of ties
  std::vector<std::array<Mean, kTies + 2>> means_;  // by level
};

}  // namespace

std::vector<Index> ladder_layers(const TraceInfo& info, const LadderOptions& options) {
  std::vector<Index> layers = options.layers.empty() ? info.layers : options.layers;
  std::ranges::sort(layers);
  require_unique(layers, "layer", "ladder");
  for (const Index layer : layers) info.layer_slot(layer);
  const Index n_dense = dense_layers_of(options.selector, options.dense_layers);
  std::erase_if(layers,
                [&](Index layer) { return layer < n_dense || info.window_of(layer).has_value(); });
  if (layers.empty()) {
    throw ConfigError(
        "ladder: no layer is left that a method chooses in ({} leading layers are dense)", n_dense);
  }
  return layers;
}

Json analyze_ladder(const TraceSource& trace, const LadderOptions& options,
                    const AnalysisRun& run) {
  check_fields(options);
  check_budget(options);
  require_full_qkv(trace, "ladder");
  const TraceInfo& info = trace.info();
  const std::vector<Index> layers = ladder_layers(info, options);
  const std::vector<Index> positions = query_positions(info, options, trace.where());
  std::vector<LadderLevel> levels =
      ladder_levels(options.selector, options.budget, options.every, options.chunk);

  Json config = {{"selector", options.selector.text()},
                 {"budget", options.budget ? Json(options.budget->to_string()) : Json(nullptr)},
                 {"layers", layers}};
  config.update(fields_to_json(options));
  add_artifacts({options.selector}, config);
  run.begin("ladder", trace, config);
  const LadderReplay replay(trace, options, positions, run);
  // methods that pass context between layers go through all of them together
  const bool is_linked = options.selector.caps().cross_layer;
  refuse_what_fails(levels, is_linked ? layers : std::vector<Index>{layers.front()}, replay);
  std::size_t top = 0;  // of those together, the chunk apart, which keeps its own keys beside
  for (std::size_t r = 0; r < levels.size(); ++r)
    if (!levels[r].methods[1].spec.empty() && !levels[r].methods[1].is_chunk) top = r;
  write_axis(run.output, "layer", layers, "layer", "layer");
  write_axis(run.output, "query_pos", positions, "token", "position of the measured query");
  LadderArrays arrays(run.output, n_of(layers), n_of(levels));
  std::optional<LevelResults> linked;
  if (is_linked) linked = measure_levels(levels, layers, replay);
  Json summary = {{"rows", Json::array()}, {"layers", Json::array()}, {"totals", Json::object()}};
  summary["layers"] = measure_layers(
      "ladder", layers, arrays.arrays, run.progress,
      [&](Index slot, Index layer) {
        check_stop(run.stop, "ladder");
        if (linked) return arrays.fill(levels, *linked, static_cast<std::size_t>(slot));
        arrays.fill(levels, measure_levels(levels, {layer}, replay), 0);
      },
      [&](Index, Index, Json& entry) { arrays.summarize(top, entry); });
  for (std::size_t r = 0; r < levels.size(); ++r)
    summary["rows"].push_back(arrays.row(levels[r], r));
  if (!options.selector.caps().decode)
    summary["note"] = fmt::format("{} is not defined for single queries", options.selector);
  summary["totals"] = mean_of_layers(summary["layers"]);
  summary["totals"]["queries"] = positions.size();
  for (const std::string_view mode : kModes) {
    for (std::size_t v = 0; v < kValues.size(); ++v) {
      run.output.add_plot({fmt::format("plot_{}_{}", mode, kValues[v]),
                           fmt::format("{}/{}", mode, kValues[v]),
                           {"layer", "."},
                           fmt::format("{}, restrictions {}", kWords[v], mode)});
    }
  }
  return run.finish(std::move(summary));
}

}  // namespace kvscope
