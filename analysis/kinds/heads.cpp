#include "analysis/kinds/heads.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/base/layer_arrays.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/replay_means.hpp"
#include "analysis/base/statistics.hpp"
#include "core/attention/exact_rows.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/lists.hpp"
#include "core/base/nan.hpp"
#include "core/selectors/spec_lists.hpp"

namespace kvscope {

namespace {

/// Keys that a retrieval head looks for, ascending, for each measured row.
using Targets = std::vector<std::vector<Index>>;

Targets needle_targets(const std::string& needle, std::span<const Index> row_pos, Index n_tokens) {
  const std::vector<Index> keys = parse_index_list(needle, "needle");
  if (keys.back() >= n_tokens) {
    throw ConfigError(
        "heads: needle: expected positions below {}, the tokens of the trace, found {}", n_tokens,
        keys.back());
  }
  Targets targets(row_pos.size());
  for (std::size_t i = 0; i < row_pos.size(); ++i) {
    if (row_pos[i] > keys.back()) targets[i] = keys;
  }
  return targets;
}

/// Of each row: the positions after an earlier occurrence of its token, before the row itself.
Targets repeated_targets(std::span<const TokenId> tokens, std::span<const Index> row_pos) {
  std::map<TokenId, std::vector<Index>> seen;
  for (std::size_t t = 0; t < tokens.size(); ++t) seen[tokens[t]].push_back(static_cast<Index>(t));
  Targets targets(row_pos.size());
  for (std::size_t i = 0; i < row_pos.size(); ++i) {
    const auto pos = static_cast<std::size_t>(row_pos[i]);
    if (pos >= tokens.size()) break;  // a trace without tokens
    for (const Index earlier : seen[tokens[pos]]) {
      if (earlier + 1 >= row_pos[i]) break;
      targets[i].push_back(earlier + 1);
    }
  }
  return targets;
}

/// What all heads have in common.
struct HeadsPlan {
  HeadsPlan(const TraceSource& trace, const HeadsOptions& options)
      : part(selected_part(trace.info(), options.selection)),
        row_pos(evenly_spaced(0, part.n_tokens, options.rows)),
        targets(options.needle.empty() ? repeated_targets(trace.tokens(), row_pos)
                                       : needle_targets(options.needle, row_pos, part.n_tokens)),
        block((part.n_tokens + options.cells - 1) / options.cells),
        n_cells((part.n_tokens + block - 1) / block) {
    for (Index b = 0; b <= n_cells; ++b) {
      const auto row = std::lower_bound(row_pos.begin(), row_pos.end(), b * block);
      row_begin.push_back(static_cast<Index>(row - row_pos.begin()));
    }
  }

  TraceInfo part;
  std::vector<Index> row_pos;
  Targets targets;  // [rows]
  Index block;      // tokens per side of a cell
  Index n_cells;
  std::vector<Index> row_begin;  // [n_cells + 1] first row of each block
};

/// The numbers of one row, in the order of kHeadMeasures.
using RowNumbers = std::array<double, kHeadMeasures.size()>;

/// Turns the scores into weights.
RowNumbers measure_row(const HeadsOptions& options, Index pos, std::span<const Index> targets,
                       std::span<double> scores, TokenRange visible,
                       std::optional<double> sink_logit) {
  const double breadth = row_sums(scores, sink_logit).breadth;
  softmax_in_place(scores, sink_logit);
  double sum = 0.0;
  double far = 0.0;
  double first = 0.0;
  double local = 0.0;
  for (Index key = visible.begin; key < visible.end; ++key) {
    const double weight = scores[static_cast<std::size_t>(key - visible.begin)];
    sum += weight;
    far += weight * static_cast<double>(pos - key);
    if (key < options.sink_tokens) first += weight;
    if (pos - key < options.local_tokens) local += weight;
  }
  double found = 0.0;
  double n_found = 0.0;
  for (auto key = std::lower_bound(targets.begin(), targets.end(), visible.begin);
       key != targets.end(); ++key) {
    found += scores[static_cast<std::size_t>(*key - visible.begin)];
    n_found += 1.0;
  }
  const bool looks = n_found > 0.0;
  return {far / sum,
          std::log(breadth),
          first,
          local,
          looks ? found : kNan,
          looks ? n_found / static_cast<double>(visible.size()) : kNan,
          sink_logit ? 1.0 - sum : 0.0};
}

/// The arrays of a layer.
struct HeadsArrays {
  HeadsArrays(ResultWriter& output, const HeadsPlan& plan, std::size_t n_methods)
      : layer(output, n_of(plan.part.layers)) {
    const Index n_heads = n_of(plan.part.q_heads);
    for (const HeadMeasure& measure : kHeadMeasures) {
      measures.push_back(&layer.add<double>(std::string(measure.name), {n_heads}, {"q_head"},
                                            std::string(measure.units), std::string(measure.label),
                                            kNan));
    }
    if (n_methods > 0) {
      lost = &layer.add<double>("lost_mass", {n_heads, static_cast<Index>(n_methods)},
                                {"q_head", "method"}, "1", "attention lost", kNan);
    }
    map = &layer.add<float>("map", {n_heads, plan.n_cells, plan.n_cells},
                            {"q_head", "query_block", "key_block"}, "1", "pooled softmax weight",
                            kNanF);
  }
  LayerArrays layer;
  std::vector<Tensor<double>*> measures;
  Tensor<double>* lost = nullptr;
  Tensor<float>* map = nullptr;
};

class HeadMeter {
 public:
  HeadMeter(const TraceSource& trace, const HeadsOptions& options, const HeadsPlan& plan,
            ThreadPool& pool, const std::stop_token& stop)
      : trace_(trace),
        options_(options),
        plan_(plan),
        loop_(pool, stop, "heads"),
        pooled_(n_of(plan.row_pos), plan.n_cells, plan.block, options.pooling),
        rows_(plan.row_pos.size()) {}

  void measure(Index layer, Index q_head, Index slot, const KeyTable& keys, HeadsArrays& out) {
    const std::optional<double> sink_logit = trace_.info().sink_logit(layer, q_head);
    pooled_.clear();
    loop_.run(trace_, layer, q_head, plan_.row_pos, keys,
              [&](Index i, std::span<double> scores, TokenRange visible) {
                const auto at = static_cast<std::size_t>(i);
                rows_[at] = measure_row(options_, plan_.row_pos[at], plan_.targets[at], scores,
                                        visible, sink_logit);
                pooled_.put(i, scores, visible);
              });
    for (std::size_t m = 0; m < kHeadMeasures.size(); ++m) {
      Mean over_rows;
      for (const RowNumbers& row : rows_) over_rows.add(row[m]);
      (*out.measures[m])(slot) = over_rows.value();
    }
    const auto width = static_cast<std::size_t>(plan_.n_cells);
    const std::span<float> map =
        out.map->flat().subspan(static_cast<std::size_t>(slot) * width * width, width * width);
    for (std::size_t b = 0; b < width; ++b) {
      pooled_.join(plan_.row_begin[b], plan_.row_begin[b + 1], map.subspan(b * width, width));
    }
  }

 private:
  const TraceSource& trace_;
  const HeadsOptions& options_;
  const HeadsPlan& plan_;
  ScoreRowLoop loop_;
  PooledRows pooled_;
  std::vector<RowNumbers> rows_;
};

/// What each query head loses under sparse methods at one budget: a replay, read head by head.
struct HeadLosses {
  std::vector<ReplayPair> pairs;
  std::vector<std::string> skipped;  // sentences: methods left out, and why
  /// [layers, heads, pairs] of the selected part; NaN in a layer that stays dense.
  std::vector<double> lost;
  std::size_t n_heads = 0;

  double at(std::size_t layer, std::size_t head, std::size_t pair) const {
    return lost[(layer * n_heads + head) * pairs.size() + pair];
  }
};

/// Replays the methods of `options` over the layers and heads of `part`; no pairs if it names none.
HeadLosses measure_head_losses(const TraceSource& trace, const TraceInfo& part,
                               const HeadsOptions& options, ThreadPool& pool,
                               const ProgressFn& progress, const std::stop_token& stop) {
  HeadLosses out;
  out.n_heads = part.q_heads.size();
  if (options.selector.empty()) return out;
  const std::vector<Budget> budgets = split_budgets({options.budget});
  if (budgets.size() != 1) {
    throw ConfigError("heads: budget: expected one, found {}: \"{}\"", budgets.size(),
                      options.budget);
  }
  PairPlan plan = plan_pairs(parse_methods({options.selector}, "selector"), budgets,
                             {options.phase}, trace.where(), "heads");
  out.pairs = std::move(plan.pairs);
  out.skipped = std::move(plan.skipped);

  ReplayOptions replay = options.replay(part.q_heads);
  replay.calls = whole_periods(replay.calls, out.pairs);
  replay.dense_layers = options.dense_layers;
  replay.n_sink = options.sink_tokens;
  const std::vector<LayerReplay> layers =
      replay_layers(trace, /*draft=*/nullptr, part.layers, out.pairs, replay, pool, progress, stop);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const LayerReplay& layer = layers[l];
    for (std::size_t h = 0; h < out.n_heads; ++h) {
      for (std::size_t p = 0; p < layer.pairs.size(); ++p) {
        const bool is_dense =
            layer.has_window ||
            layer.layer < dense_layers_of(out.pairs[p].selector, options.dense_layers);
        out.lost.push_back(
            is_dense ? kNan : 1.0 - mean_of(layer, layer.pairs[p], ReplayMetric::mass, h, h + 1));
      }
    }
  }
  return out;
}

/// Means over the heads of a layer, and who looks for repetitions most.
void add_summary(Json& entry, const HeadsPlan& plan, const HeadsArrays& arrays) {
  for (std::size_t m = 0; m < kHeadMeasures.size(); ++m) {
    entry[std::string(kHeadMeasures[m].name)] = json_number(mean(arrays.measures[m]->flat()));
  }
  const Tensor<double>& retrieval = *arrays.measures[4];
  static_assert(kHeadMeasures[4].name == "retrieval");
  std::optional<Index> best;
  for (Index slot = 0; slot < n_of(plan.part.q_heads); ++slot) {
    const bool is_more = retrieval(slot) > (best ? retrieval(*best) : -1.0);
    if (is_more) best = slot;
  }
  entry["retrieval_max"] = best ? json_number(retrieval(*best)) : Json(nullptr);
  entry["best_head"] =
      best ? Json(plan.part.q_heads[static_cast<std::size_t>(*best)]) : Json(nullptr);
}

/// One row per head of the layer and method; one per head without methods.
void add_rows(Json& rows, Index layer, const HeadsPlan& plan, const HeadsArrays& arrays,
              const HeadLosses& losses) {
  for (std::size_t h = 0; h < plan.part.q_heads.size(); ++h) {
    Json row = {{"layer", layer}, {"q_head", plan.part.q_heads[h]}};
    for (std::size_t m = 0; m < kHeadMeasures.size(); ++m) {
      row[std::string(kHeadMeasures[m].name)] =
          json_number((*arrays.measures[m])(static_cast<Index>(h)));
    }
    if (losses.pairs.empty()) rows.push_back(row);
    for (std::size_t p = 0; p < losses.pairs.size(); ++p) {
      Json one = row;
      one["selector"] = losses.pairs[p].selector.text();
      one["lost_mass"] = json_number((*arrays.lost)(static_cast<Index>(h), static_cast<Index>(p)));
      rows.push_back(one);
    }
  }
}

Json methods_summary(const HeadsPlan& plan, const HeadLosses& losses) {
  Json methods = Json::array();
  for (std::size_t p = 0; p < losses.pairs.size(); ++p) {
    const ReplayPair& pair = losses.pairs[p];
    Mean over_heads;
    double most = -1.0;
    Json entry = {{"pair", pair_label(pair)},
                  {"selector", pair.selector.text()},
                  {"budget", pair.budget ? Json(pair.budget->to_string()) : Json(nullptr)},
                  {"lost_mass", nullptr},
                  {"worst_layer", nullptr},
                  {"worst_head", nullptr},
                  {"worst_lost_mass", nullptr}};
    for (std::size_t l = 0; l < plan.part.layers.size(); ++l) {
      for (std::size_t h = 0; h < plan.part.q_heads.size(); ++h) {
        const double lost = losses.at(l, h, p);
        over_heads.add(lost);
        if (!(lost > most)) continue;
        most = lost;
        entry["worst_layer"] = plan.part.layers[l];
        entry["worst_head"] = plan.part.q_heads[h];
        entry["worst_lost_mass"] = lost;
      }
    }
    entry["lost_mass"] = json_number(over_heads.value());
    methods.push_back(entry);
  }
  return methods;
}

void write_axes(ResultWriter& output, const HeadsPlan& plan) {
  write_head_axes(output, plan.part);
  std::vector<Index> begins;
  for (Index b = 0; b < plan.n_cells; ++b) begins.push_back(b * plan.block);
  write_axis(output, "row_pos", plan.row_pos, "token", "query position");
  write_axis(output, "query_block", begins, "token", "first query of a block");
  write_axis(output, "key_block", begins, "token", "first key of a block");
}

}  // namespace

Json analyze_heads(const TraceSource& trace, const HeadsOptions& options, const AnalysisRun& run) {
  check_fields(options);
  require_full_qkv(trace, "heads");
  const HeadsPlan plan(trace, options);
  const TraceInfo& part = plan.part;
  // what may still be refused comes before the first array
  const HeadLosses losses =
      measure_head_losses(trace, part, options, run.pool, run.progress, run.stop);

  run.begin("heads", trace, with_part(fields_to_json(options), part));
  write_axes(run.output, plan);
  HeadsArrays arrays(run.output, plan, losses.pairs.size());
  HeadMeter meter(trace, options, plan, run.pool, run.stop);
  const auto measure = [&](Index slot, Index layer) {
    for (const Index kv_head : part.kv_heads_of(layer)) {
      check_stop(run.stop, "heads");
      const Tensor<float> k = trace.read_k(layer, kv_head, {0, part.n_tokens});
      const KeyTable keys(k.view());
      for (const Index q_slot : q_slots_of(part, layer, kv_head)) {
        meter.measure(layer, part.q_heads[static_cast<std::size_t>(q_slot)], q_slot, keys, arrays);
      }
    }
    for (std::size_t h = 0; arrays.lost != nullptr && h < part.q_heads.size(); ++h) {
      for (std::size_t p = 0; p < losses.pairs.size(); ++p) {
        (*arrays.lost)(static_cast<Index>(h), static_cast<Index>(p)) =
            losses.at(static_cast<std::size_t>(slot), h, p);
      }
    }
  };
  Json rows = Json::array();
  const auto summarize = [&](Index, Index layer, Json& entry) {
    add_summary(entry, plan, arrays);
    add_rows(rows, layer, plan, arrays, losses);
  };
  Json summary;
  summary["layers"] =
      measure_layers("heads", part.layers, arrays.layer, run.progress, measure, summarize);
  summary["totals"] = mean_of_layers(summary["layers"]);
  summary["totals"]["retrieval_max"] = max_of_layers(summary["layers"], "retrieval_max");
  summary["totals"]["rows"] = n_of(plan.row_pos);
  summary["totals"]["heads"] = n_of(part.q_heads) * n_of(part.layers);
  summary["methods"] = methods_summary(plan, losses);
  summary["skipped"] = losses.skipped;
  summary["tokens"] = part.n_tokens;
  summary["block"] = plan.block;
  summary["pooling"] = std::string(enum_name(options.pooling));
  summary["needle"] = options.needle;
  summary["rows"] = std::move(rows);

  for (const HeadMeasure& one : kHeadMeasures) {
    const std::string name(one.name);
    run.output.add_plot({"plot_" + name, name, {"layer", "q_head"}, std::string(one.label)});
  }
  if (arrays.lost != nullptr)
    run.output.add_plot(
        {"plot_lost_mass", "lost_mass", {"layer", "q_head", "."}, "Attention lost"});
  run.output.add_plot({"plot_map",
                       "map",
                       {"layer", "q_head", "query_block", "key_block"},
                       "Attention maps of all heads"});
  return run.finish(std::move(summary));
}

}  // namespace kvscope
