#include "analysis/query_selection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/query_correlation.hpp"
#include "analysis/statistics.hpp"
#include "core/attention/exact_rows.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/nan.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kFewestInChunk = 8;  // queries for a correlation inside one chunk
constexpr std::array<std::string_view, 2> kSpans = EnumNames<QuerySpan>::value;
constexpr std::size_t kPrompt = 0;
constexpr std::size_t kChunk = 1;

/// What does not change from layer to layer.
struct Plan {
  Plan(const TraceInfo& info, const QuerySelectionOptions& options)
      : part(selected_part(info, options.selection)),
        positions(evenly_spaced(0, info.n_tokens, options.queries)),
        chunks(prompt_chunks(info, options.chunk)) {
    counted = static_cast<std::size_t>(
        std::lower_bound(positions.begin(), positions.end(), options.skip) - positions.begin());
    for (Index pos : positions) {
      const auto x = static_cast<double>(pos);
      control.push_back(options.control == QueryControl::position ? x : std::log1p(x));
    }
  }
  TraceInfo part;                // the selected layers and heads
  std::vector<Index> positions;  // of the measured queries, ascending
  std::vector<double> control;   // [query] what the partial correlations hold fixed
  std::size_t counted = 0;       // first query that counts in correlations
  std::vector<TokenRange> chunks;
};

/// Everything about one layer, in f64: the correlations see no rounding.
struct LayerQueries {
  LayerQueries(Index n_heads, Index n_queries, Index n_chunks) {
    const Shape rows{n_heads, n_queries};
    for (Tensor<double>* t : {&s_q[kPrompt], &s_q[kChunk], &log_max, &lse, &breadth}) {
      *t = Tensor<double>(rows);
    }
    max_key = Tensor<std::int32_t>(rows);
    within_chunk = Tensor<double>({n_heads, n_chunks});
    for (auto& list : correlation) list.resize(static_cast<std::size_t>(n_heads));
    for (auto* list : {&weight_position, &s_q_position}) {
      list->resize(static_cast<std::size_t>(n_heads));
    }
  }
  std::array<Tensor<double>, 2> s_q;                         // by span: [q_head, query]
  Tensor<double> log_max, lse, breadth;                      // [q_head, query]
  Tensor<std::int32_t> max_key;                              // [q_head, query]
  Tensor<double> within_chunk;                               // [q_head, chunk]
  std::array<std::vector<QueryCorrelation>, 2> correlation;  // by span: [q_head]
  std::vector<double> weight_position, s_q_position;         // [q_head]
};

/// Stage 1: S_q and the exact rows of one query head.
void measure_head(const TraceSource& trace, const QuerySelectionOptions& options, const Plan& plan,
                  Index layer, Index slot, const KeyTable& keys, ScoreRowLoop& loop,
                  LayerQueries& out) {
  const TraceInfo& part = plan.part;
  const Index q_head = part.q_heads[static_cast<std::size_t>(slot)];
  const Tensor<float> q = trace.read_q(layer, q_head, {0, part.n_tokens});
  const std::optional<double> sink_logit = part.sink_logit(layer, q_head);
  for (std::size_t span : {kPrompt, kChunk}) {
    const auto scores =
        query_scores(part, q.view(), static_cast<QuerySpan>(span), options.scoring());
    for (std::size_t i = 0; i < plan.positions.size(); ++i) {
      out.s_q[span](slot, static_cast<Index>(i)) =
          scores[static_cast<std::size_t>(plan.positions[i])];
    }
  }
  loop.run(q.view(), 0, plan.positions, keys, part.score_rule(), window_of(part, layer),
           [&](Index i, std::span<double> scores, TokenRange visible) {
             const RowSums sums = row_sums(scores, sink_logit);
             const LargestWeight largest =
                 largest_weight(scores, visible, options.counted_keys(visible), sums.lse);
             out.log_max(slot, i) = largest.log_weight;
             out.max_key(slot, i) = static_cast<std::int32_t>(largest.key);
             out.lse(slot, i) = sums.lse;
             out.breadth(slot, i) = sums.breadth;
           });
}

/// Pearson's inside each prefill chunk.
void correlate_chunks(const Plan& plan, std::span<const double> s_q,
                      std::span<const double> log_max, std::span<double> out) {
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    const auto at = [&](Index pos) {
      const auto found = std::lower_bound(plan.positions.begin(), plan.positions.end(), pos);
      return std::max(static_cast<std::size_t>(found - plan.positions.begin()), plan.counted);
    };
    const std::size_t first = at(plan.chunks[c].begin);
    const std::size_t n = at(plan.chunks[c].end) - first;
    out[c] = n < kFewestInChunk ? kNan : pearson(s_q.subspan(first, n), log_max.subspan(first, n));
  }
}

/// Stage 2: the correlations of one query head.
void correlate_head(const Plan& plan, Index slot, LayerQueries& out) {
  const auto counted = [&](std::span<const double> x) { return x.subspan(plan.counted); };
  const auto head = static_cast<std::size_t>(slot);
  const std::span<const double> log_max = out.log_max.view().row(slot);
  const std::span<const double> control = counted(plan.control);
  for (std::size_t span : {kPrompt, kChunk}) {
    out.correlation[span][head] =
        correlate_queries(counted(out.s_q[span].view().row(slot)), counted(log_max), control);
  }
  out.weight_position[head] = pearson(control, counted(log_max));
  // over the same queries as the partial correlations, which --skip-recent may leave without a key
  const std::span<const double> s_q = counted(out.s_q[kPrompt].view().row(slot));
  const std::span<const double> weights = counted(log_max);
  std::vector<double> known(s_q.begin(), s_q.end());
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (std::isnan(weights[i])) known[i] = kNan;
  }
  out.s_q_position[head] = pearson(control, known);
  correlate_chunks(plan, out.s_q[kChunk].view().row(slot), log_max,
                   out.within_chunk.view().row(slot));
}

void declare_arrays(ResultWriter& output, const Plan& plan) {
  const TraceInfo& part = plan.part;
  std::vector<Index> chunk_begin;
  for (const TokenRange& chunk : plan.chunks) chunk_begin.push_back(chunk.begin);
  write_head_axes(output, part);
  write_axis(output, "pos", plan.positions, "token", "query position");
  write_axis(output, "chunk_begin", chunk_begin, "token", "first position of the chunk");

  const auto n_layers = static_cast<Index>(part.layers.size());
  const auto n_q = static_cast<Index>(part.q_heads.size());
  const auto per_query = [&](std::string name, ResultType type, std::string units,
                             std::string text) {
    output.declare({std::move(name),
                    type,
                    {n_layers, n_q, static_cast<Index>(plan.positions.size())},
                    {"layer", "q_head", "query"},
                    std::move(units),
                    std::move(text)});
  };
  per_query("prompt/s_q", ResultType::f32, "1", "S_q against the prompt's mean query");
  per_query("chunk/s_q", ResultType::f32, "1", "S_q against the chunk's mean query");
  per_query("log_max_weight", ResultType::f32, "nat", "log of the largest attention weight");
  per_query("max_weight", ResultType::f32, "1", "largest attention weight");
  per_query("max_key", ResultType::i32, "token", "position of the key of largest weight");
  per_query("lse", ResultType::f32, "nat", "log-sum-exp of the scores");
  per_query("breadth", ResultType::f32, "token", "exp(entropy) of the attention row");

  const auto per_head = [&](std::string name, std::string text) {
    output.declare({std::move(name),
                    ResultType::f64,
                    {n_layers, n_q},
                    {"layer", "q_head"},
                    "1",
                    std::move(text)});
  };
  for (std::string_view span : kSpans) {
    for (std::size_t i = 0; i < QueryCorrelation::kNames.size(); ++i) {
      per_head(fmt::format("correlation/{}/{}", span, QueryCorrelation::kNames[i]),
               fmt::format("{} ({}'s mean query)", QueryCorrelation::kTexts[i], span));
    }
  }
  per_head("correlation/position/log_weight",
           "Pearson of what is held fixed and the log of the largest weight");
  per_head("correlation/position/prompt_s_q", "Pearson of what is held fixed and S_q");
  output.declare({"correlation/within_chunk",
                  ResultType::f64,
                  {n_layers, n_q, static_cast<Index>(plan.chunks.size())},
                  {"layer", "q_head", "chunk"},
                  "1",
                  "Pearson of S_q and the log of the largest weight inside one chunk"});
}

std::vector<float> to_f32(const Tensor<double>& x) {
  const std::span<const double> values = x.flat();
  return {values.begin(), values.end()};
}

void write_layer(ResultWriter& output, Index slot, const LayerQueries& layer) {
  const auto write = [&](std::string_view name, std::span<const float> values) {
    output.write<float>(name, slot, values);
  };
  const std::vector<float> log_max = to_f32(layer.log_max);
  std::vector<float> max_weight(log_max.size());
  std::transform(log_max.begin(), log_max.end(), max_weight.begin(),
                 [](float x) { return std::exp(x); });
  write("prompt/s_q", to_f32(layer.s_q[kPrompt]));
  write("chunk/s_q", to_f32(layer.s_q[kChunk]));
  write("log_max_weight", log_max);
  write("max_weight", max_weight);
  write("lse", to_f32(layer.lse));
  write("breadth", to_f32(layer.breadth));
  output.write<std::int32_t>("max_key", slot, layer.max_key.flat());
  for (std::size_t span : {kPrompt, kChunk}) {
    for (std::size_t i = 0; i < QueryCorrelation::kNames.size(); ++i) {
      std::vector<double> values;
      for (const auto& head : layer.correlation[span]) values.push_back(head.value[i]);
      output.write<double>(
          fmt::format("correlation/{}/{}", kSpans[span], QueryCorrelation::kNames[i]), slot,
          values);
    }
  }
  output.write<double>("correlation/position/log_weight", slot, layer.weight_position);
  output.write<double>("correlation/position/prompt_s_q", slot, layer.s_q_position);
  output.write<double>("correlation/within_chunk", slot, layer.within_chunk.flat());
}

/// Means over the layer's heads, and its best head.
Json layer_summary(const Plan& plan, const LayerQueries& layer) {
  Json json;
  for (std::size_t span : {kPrompt, kChunk}) {
    for (std::size_t i = 0; i < QueryCorrelation::kNames.size(); ++i) {
      Mean over_heads;
      for (const auto& head : layer.correlation[span]) over_heads.add(head.value[i]);
      json[fmt::format("{}_{}", kSpans[span], QueryCorrelation::kNames[i])] =
          json_number(over_heads.value());
    }
  }
  json["within_chunk"] = json_number(mean(layer.within_chunk.flat()));
  json["position_log_weight"] = json_number(mean(layer.weight_position));
  json["position_prompt_s_q"] = json_number(mean(layer.s_q_position));
  Mean positive;  // share of the heads in which the partial correlation is positive
  std::optional<std::size_t> best;
  const auto& heads = layer.correlation[kPrompt];
  for (std::size_t h = 0; h < heads.size(); ++h) {
    if (const double r = heads[h].partial_pearson(); !std::isnan(r)) positive.add(r > 0.0);
    if (std::isnan(heads[h].pearson_log())) continue;
    if (!best || heads[h].pearson_log() > heads[*best].pearson_log()) best = h;
  }
  json["partial_positive"] = json_number(positive.value());
  json["best_pearson_log"] = json_number(best ? heads[*best].pearson_log() : kNan);
  json["best_partial_pearson"] = json_number(best ? heads[*best].partial_pearson() : kNan);
  json["best_head"] = best ? Json(plan.part.q_heads[*best]) : Json(nullptr);
  return json;
}

void add_selection_plots(ResultWriter& output) {
  const auto add = [&](const char* name, const char* signal, const char* third, const char* title) {
    std::vector<std::string> axes = {"layer", "q_head"};
    if (third) axes.emplace_back(third);
    output.add_plot({name, signal, axes, title});
  };
  add("plot_pearson_log", "correlation/prompt/pearson_log", nullptr,
      "Correlation of S_q with the log of the largest weight");
  add("plot_partial", "correlation/prompt/partial_pearson", nullptr,
      "The same, given the position");
  add("plot_within_chunk", "correlation/within_chunk", "chunk_begin", "The same inside one chunk");
  add("plot_s_q", "prompt/s_q", "pos", "S_q per query");
  add("plot_log_max_weight", "log_max_weight", "pos", "Log of the largest attention weight");
}

}  // namespace

Json analyze_query_selection(const TraceSource& trace, const QuerySelectionOptions& options,
                             ResultWriter& output, ThreadPool& pool, const ProgressFn& progress,
                             std::stop_token stop, const ResultProvenance& provenance) {
  check_fields(options);
  require_full_qkv(trace, "query-selection");
  const Plan plan(trace.info(), options);
  const TraceInfo& part = plan.part;
  const TraceSource* const traces[] = {&trace};
  Json config = fields_to_json(options);
  config["layers"] = part.layers;
  config["heads"] = part.q_heads;
  output.begin(make_result_info("query-selection", traces, config, provenance));
  declare_arrays(output, plan);

  Json summary;
  summary["layers"] = Json::array();
  ScoreRowLoop loop(pool, stop, "query-selection");
  const auto n_layers = static_cast<Index>(part.layers.size());
  const auto n_heads = static_cast<Index>(part.q_heads.size());
  for (Index slot = 0; slot < n_layers; ++slot) {
    const Index layer = part.layers[static_cast<std::size_t>(slot)];
    LayerQueries queries(n_heads, static_cast<Index>(plan.positions.size()),
                         static_cast<Index>(plan.chunks.size()));
    for (Index kv_head : part.kv_heads) {
      check_stop(stop, "query-selection");
      const Tensor<float> k = trace.read_k(layer, kv_head, {0, part.n_tokens});
      const KeyTable keys(k.view());
      for (Index q_slot : q_slots_of(part, kv_head)) {
        measure_head(trace, options, plan, layer, q_slot, keys, loop, queries);
      }
    }
    pool.parallel_for(n_heads, [&](Index head, int) { correlate_head(plan, head, queries); });
    write_layer(output, slot, queries);
    Json entry;
    entry["layer"] = layer;
    entry.update(layer_summary(plan, queries));
    summary["layers"].push_back(entry);
    if (progress) progress({"query-selection", slot + 1, n_layers, "layers"});
  }
  summary["totals"] = mean_of_layers(summary["layers"]);
  summary["totals"]["queries_per_head"] = plan.positions.size() - plan.counted;
  add_selection_plots(output);
  output.finish(summary);
  return summary;
}

}  // namespace kvscope
