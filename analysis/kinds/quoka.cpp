// Compiled alone: the names of this file stand in quest_bounds.cpp too.
#include "analysis/kinds/quoka.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/kinds/query_correlation.hpp"
#include "analysis/kinds/quoka_group.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

constexpr std::array<std::string_view, 5> kCorrelations = {"pearson", "pearson_log", "spearman",
                                                           "partial_log", "chunk_pearson_log"};
constexpr std::array<std::string_view, 5> kCorrelationTexts = {
    "Pearson of S_q and the largest weight", "Pearson of S_q and the log of the largest weight",
    "Spearman of S_q and the largest weight",
    "partial Pearson of S_q and the log of the largest weight, given the position",
    "Pearson of S_q and the log of the largest weight in the last whole chunk"};

/// kCorrelations of one query head; query 0 is left out, as is key 0 in the largest weight.
std::array<double, 5> correlations_of_head(const QuokaLayer& layer, const QuokaPlan& plan,
                                           Index head) {
  std::vector<double> s_q, s_q_chunk, log_weight, position;
  for (Index pos = 1; pos < layer.s_q.dim(1); ++pos) {
    s_q.push_back(static_cast<double>(layer.s_q_prompt(head, pos)));
    s_q_chunk.push_back(static_cast<double>(layer.s_q(head, pos)));
    log_weight.push_back(static_cast<double>(layer.log_max_weight(head, pos)));
    position.push_back(static_cast<double>(pos));
  }
  double in_chunk = std::numeric_limits<double>::quiet_NaN();
  if (plan.last_whole_chunk) {
    const TokenRange tokens = plan.chunks[static_cast<std::size_t>(*plan.last_whole_chunk)].tokens;
    const auto first = static_cast<std::size_t>(std::max<Index>(tokens.begin, 1) - 1);
    const auto n = static_cast<std::size_t>(tokens.end) - 1 - first;
    in_chunk =
        pearson(std::span(s_q_chunk).subspan(first, n), std::span(log_weight).subspan(first, n));
  }
  const QueryCorrelation all = correlate_queries(s_q, log_weight, position);
  return {all.pearson(), all.pearson_log(), all.spearman(), all.partial_pearson(), in_chunk};
}

/// The numbers of some layers that a person reads first.
struct Tally {
  std::vector<double> mass_where_cut;  // per (q_head, pos) in chunks where the budget cuts
  Mean oracle_recall, sink_selected;
  std::int64_t loaded = 0;     // per KV head
  std::int64_t available = 0;  // per KV head
  std::int64_t zero_means = 0;
  std::int64_t rows_without_keys = 0;

  void add(const QuokaLayer& layer, const QuokaPlan& plan, bool selects) {
    for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
      const QuokaChunk& chunk = plan.chunks[c];
      const auto index = static_cast<Index>(c);
      for (Index kv = 0; kv < layer.loaded.dim(0); ++kv) {
        loaded += layer.loaded(kv, index);
        available += chunk.tokens.end;
        zero_means += layer.zero_mean(kv, index);
        oracle_recall.add(static_cast<double>(layer.oracle_recall(kv, index)));
        if (selects && chunk.cuts()) sink_selected.add(layer.sink_selected(kv, index));
      }
      if (!selects || !chunk.cuts()) continue;
      for (Index head = 0; head < layer.mass.dim(0); ++head) {
        for (Index pos = chunk.tokens.begin; pos < chunk.tokens.end; ++pos) {
          const double mass = static_cast<double>(layer.mass(head, pos));
          mass_where_cut.push_back(mass);
          rows_without_keys += mass == 0.0;
        }
      }
    }
  }

  double reduction() const {
    return 1.0 - static_cast<double>(loaded) / static_cast<double>(available);
  }

  Json to_json() const {
    Json json;
    json["mass_mean"] = json_number(mean(mass_where_cut));
    json["mass_p05"] = json_number(quantile(mass_where_cut, 0.05));
    json["rows_where_the_budget_cuts"] = mass_where_cut.size();
    json["oracle_recall"] = json_number(oracle_recall.value());
    json["sink_selected"] = json_number(sink_selected.value());
    json["reduction_per_kv_head"] = json_number(reduction());
    json["zero_mean_queries"] = zero_means;
    json["rows_with_zero_mass"] = rows_without_keys;
    return json;
  }
};

void write_axes(ResultWriter& output, const TraceInfo& info, const QuokaPlan& plan,
                const QuokaOptions& options) {
  // coordinates and the starts of the ragged arrays
  std::vector<Index> positions, chunk_begin, available, score_offsets, kept_offsets;
  for (Index pos = 0; pos < info.n_tokens; ++pos) positions.push_back(pos);
  for (const QuokaChunk& chunk : plan.chunks) {
    chunk_begin.push_back(chunk.tokens.begin);
    available.push_back(chunk.tokens.end);
    score_offsets.push_back(chunk.score_begin);
    kept_offsets.push_back(chunk.kept_begin);
  }
  score_offsets.push_back(plan.n_scores);
  kept_offsets.push_back(plan.n_kept);
  write_head_axes(output, info);
  write_axis(output, "pos", positions, "token", "position");
  write_axis(output, "chunk_begin", chunk_begin, "token", "first position of the chunk");
  write_axis(output, "available", available, "token", "keys of the cache after the chunk");
  write_axis(output, "selected/offsets", kept_offsets, "1", "first entry of each chunk");
  if (options.store_key_scores)
    write_axis(output, "key_scores/offsets", score_offsets, "1", "first entry of each chunk");
}

/// By kCorrelations: [q_head].
using CorrelationArrays = std::array<Tensor<double>*, kCorrelations.size()>;

CorrelationArrays add_correlations(LayerArrays& arrays, Index n_heads) {
  CorrelationArrays out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = &arrays.add<double>(fmt::format("correlation/{}", kCorrelations[i]), {n_heads},
                                 {"q_head"}, "1", std::string(kCorrelationTexts[i]));
  }
  return out;
}

/// Head means of the correlations, and the best head.
void add_correlations_to(Json& entry, const TraceInfo& info, const CorrelationArrays& values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    entry[fmt::format("{}_mean", kCorrelations[i])] = json_number(mean(values[i]->flat()));
  const std::span<const double> headline = values[1]->flat();
  const auto best = std::ranges::max_element(
      headline, [](double a, double b) { return std::isnan(a) ? !std::isnan(b) : a < b; });
  entry["pearson_log_best"] = json_number(*best);
  entry["pearson_log_best_head"] = info.q_heads[static_cast<std::size_t>(best - headline.begin())];
}

void add_plots(ResultWriter& output) {
  const std::vector<std::string> axes = {"layer", "q_head", "pos"};
  add_plot(output, "plot_s_q", "s_q", axes, "S_q per query");
  add_plot(output, "plot_mass", "mass", axes, "Attention mass on the kept keys");
  add_plot(output, "plot_max_weight", "log_max_weight", axes,
           "Log of the largest attention weight");
  add_plot(output, "plot_recall", "oracle_recall", {"layer", "kv_head", "chunk_begin"},
           "Kept share of the keys of largest weight");
  add_plot(output, "plot_correlation", "correlation/pearson_log", {"layer", "q_head"},
           "Correlation of S_q with the log of the largest weight");
}

}  // namespace

MethodSpec QuokaOptions::method() const {
  MethodSpec spec = "quoka";
  visit_fields(static_cast<const QuokaRules&>(*this), [&](const Field& field, const auto& value) {
    spec.set(field.name, option_text(value));
  });
  spec.set("scope", scope == QuokaScope::whole_cache ? "whole" : "past");
  return spec;
}

Budget QuokaOptions::kept_per_chunk() const {
  return budget_kind == BudgetKind::tokens
             ? Budget{Budget::Kind::tokens, static_cast<double>(budget)}
             : Budget{Budget::Kind::ratio, ratio};
}

Json analyze_quoka(const TraceSource& trace, const QuokaOptions& options, const AnalysisRun& run) {
  check_fields(options);
  require_full_qkv(trace, "quoka");
  require_one_shape(trace.info(), "quoka");
  require_whole_groups(trace.info(), "quoka");
  const TraceInfo& info = trace.info();
  const QuokaPlan plan(info, options);
  run.begin("quoka", trace, fields_to_json(options));
  write_axes(run.output, info, plan, options);
  QuokaLayer arrays(run.output, info, plan, options);
  const CorrelationArrays correlations =
      add_correlations(arrays.arrays, static_cast<Index>(info.q_heads.size()));

  Tally sparse;
  Tally all;
  Mean correlation;
  const auto measure = [&](Index, Index layer) {
    for (Index kv_slot = 0; kv_slot < n_of(info.kv_heads); ++kv_slot) {
      check_stop(run.stop, "quoka");
      quoka_group(trace, options, plan, layer, kv_slot, run.pool, run.stop, arrays);
    }
    run.pool.parallel_for(n_of(info.q_heads), [&](Index head, int) {
      const auto of_head = correlations_of_head(arrays, plan, head);
      for (std::size_t i = 0; i < of_head.size(); ++i) (*correlations[i])(head) = of_head[i];
    });
  };
  const auto summarize = [&](Index, Index layer, Json& entry) {
    const bool selects = quoka_selects_in(info, options, layer);
    Tally tally;
    tally.add(arrays, plan, selects);
    all.add(arrays, plan, selects);
    if (selects) sparse.add(arrays, plan, selects);
    entry["dense"] = !selects;
    entry.update(tally.to_json());
    add_correlations_to(entry, info, correlations);
    correlation.add(mean(correlations[1]->flat()));
  };
  Json summary;
  summary["layers"] =
      measure_layers("quoka", info.layers, arrays.arrays, run.progress, measure, summarize);

  // loads: the kept set is shared by the group, so the union per KV head and the count per query
  // head reduce alike
  summary["totals"] = sparse.to_json();
  summary["totals"]["reduction_per_q_head"] = json_number(sparse.reduction());
  summary["totals"]["reduction_per_kv_head_with_dense_layers"] = json_number(all.reduction());
  summary["totals"]["pearson_log_mean"] = json_number(correlation.value());
  summary["totals"]["chunks"] = plan.chunks.size();
  add_plots(run.output);
  return run.finish(std::move(summary));
}

}  // namespace kvscope
