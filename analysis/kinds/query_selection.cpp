#include "analysis/kinds/query_selection.hpp"

#include <fmt/format.h>

#include <cmath>

#include "analysis/base/columns.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "core/attention/exact_rows.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kFewestInChunk = 8;  // queries for a correlation inside one chunk
constexpr std::array<std::string_view, 2> kSpans = EnumNames<QuerySpan>::value;
constexpr std::size_t kPrompt = 0;
constexpr std::size_t kChunk = 1;
constexpr std::size_t kPearsonLog = 1;  // among QueryCorrelation::kNames
constexpr std::size_t kPartialPearson = 3;
static_assert(QueryCorrelation::kNames[kPearsonLog] == "pearson_log" &&
              QueryCorrelation::kNames[kPartialPearson] == "partial_pearson");

/// What does not change from layer to layer.
struct Plan {
  Plan(const TraceInfo& info, const QuerySelectionOptions& options)
      : part(selected_part(info, options.selection)),
        positions(evenly_spaced(0, info.n_tokens, options.queries)),
        chunks(prompt_chunks(info, options.chunk)) {
    counted = static_cast<std::size_t>(std::ranges::lower_bound(positions, options.skip) -
                                       positions.begin());
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

/// One query of one head; the arrays of analyze_query_selection say what is what.
struct QueryRow {
  std::array<double, 2> s_q{};  // by span
  double log_max = 0.0;
  double lse = 0.0;
  double breadth = 0.0;
  Index max_key = 0;
};

/// All arrays of one layer. The correlations see no rounding: what they take is kept in f64.
struct LayerQueries {
  LayerQueries(ResultWriter& output, const Plan& plan)
      : columns(output, n_of(plan.part.layers)),
        rows(columns, {n_of(plan.part.q_heads), n_of(plan.positions)}, {"q_head", "query"}) {
    rows.add<float>(
        "prompt/s_q", [](const QueryRow& one) { return one.s_q[kPrompt]; }, "1",
        "S_q against the prompt's mean query");
    rows.add<float>(
        "chunk/s_q", [](const QueryRow& one) { return one.s_q[kChunk]; }, "1",
        "S_q against the chunk's mean query");
    rows.add<float>("log_max_weight", &QueryRow::log_max, "nat",
                    "log of the largest attention weight");
    rows.add<float>(
        "max_weight", [](const QueryRow& one) { return std::exp(static_cast<float>(one.log_max)); },
        "1", "largest attention weight");
    rows.add<std::int32_t>("max_key", &QueryRow::max_key, "token",
                           "position of the key of largest weight");
    rows.add<float>("lse", &QueryRow::lse, "nat", "log-sum-exp of the scores");
    rows.add<float>("breadth", &QueryRow::breadth, "token", "exp(entropy) of the attention row");
    LayerArrays& arrays = columns.arrays;
    const Index n_heads = n_of(plan.part.q_heads);
    const auto per_head = [&](const std::string& name, const std::string& text) {
      return &arrays.add<double>(name, {n_heads}, {"q_head"}, "1", text);
    };
    for (const std::size_t span : {kPrompt, kChunk}) {
      for (std::size_t i = 0; i < QueryCorrelation::kNames.size(); ++i) {
        correlation[span][i] = per_head(
            fmt::format("correlation/{}/{}", kSpans[span], QueryCorrelation::kNames[i]),
            fmt::format("{} ({}'s mean query)", QueryCorrelation::kTexts[i], kSpans[span]));
      }
    }
    weight_position = per_head("correlation/position/log_weight",
                               "Pearson of what is held fixed and the log of the largest weight");
    s_q_position =
        per_head("correlation/position/prompt_s_q", "Pearson of what is held fixed and S_q");
    within_chunk = &arrays.add<double>(
        "correlation/within_chunk", {n_heads, n_of(plan.chunks)}, {"q_head", "chunk"}, "1",
        "Pearson of S_q and the log of the largest weight inside one chunk");
    const Shape exact{n_heads, n_of(plan.positions)};
    for (Tensor<double>* t : {&s_q[kPrompt], &s_q[kChunk], &log_max}) *t = Tensor<double>(exact);
  }
  LayerColumns columns;
  ColumnsOf<QueryRow> rows;
  std::array<std::array<Tensor<double>*, QueryCorrelation::kNames.size()>, 2> correlation{};
  Tensor<double>*weight_position, *s_q_position;  // [q_head]
  Tensor<double>* within_chunk;                   // [q_head, chunk]
  std::array<Tensor<double>, 2> s_q;              // by span: [q_head, query]
  Tensor<double> log_max;                         // [q_head, query]
};

/// Stage 1: S_q and the exact rows of one query head.
void measure_head(const TraceSource& trace, const QuerySelectionOptions& options, const Plan& plan,
                  Index layer, Index slot, const KeyTable& keys, ScoreRowLoop& loop,
                  LayerQueries& out) {
  const TraceInfo& part = plan.part;
  const Index q_head = part.q_heads[static_cast<std::size_t>(slot)];
  const Tensor<float> q = trace.read_q(layer, q_head, {0, part.n_tokens});
  for (const std::size_t span : {kPrompt, kChunk}) {
    const auto s_q = query_scores(part, q.view(), static_cast<QuerySpan>(span), options.scoring());
    for (std::size_t i = 0; i < plan.positions.size(); ++i)
      out.s_q[span](slot, static_cast<Index>(i)) = s_q[static_cast<std::size_t>(plan.positions[i])];
  }
  const std::optional<double> sink_logit = part.sink_logit(layer, q_head);
  loop.run(q.view(), 0, plan.positions, keys, part.shape(layer).score_rule(), part.window_of(layer),
           [&](Index i, std::span<double> scores, TokenRange visible) {
             const RowSums sums = row_sums(scores, sink_logit);
             const LargestWeight largest =
                 largest_weight(scores, visible, options.counted_keys(visible), sums.lse);
             out.log_max(slot, i) = largest.log_weight;
             out.rows.put(slot, i,
                          {.s_q = {out.s_q[kPrompt](slot, i), out.s_q[kChunk](slot, i)},
                           .log_max = largest.log_weight,
                           .lse = sums.lse,
                           .breadth = sums.breadth,
                           .max_key = largest.key});
           });
}

/// Pearson's inside each prefill chunk.
void correlate_chunks(const Plan& plan, std::span<const double> s_q,
                      std::span<const double> log_max, std::span<double> out) {
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    const auto at = [&](Index pos) {
      const auto found = std::ranges::lower_bound(plan.positions, pos);
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
  const std::span<const double> log_max = out.log_max.view().row(slot);
  const std::span<const double> control = counted(plan.control);
  for (std::size_t span : {kPrompt, kChunk}) {
    const QueryCorrelation all =
        correlate_queries(counted(out.s_q[span].view().row(slot)), counted(log_max), control);
    for (std::size_t i = 0; i < all.value.size(); ++i)
      (*out.correlation[span][i])(slot) = all.value[i];
  }
  (*out.weight_position)(slot) = pearson(control, counted(log_max));
  // over the same queries as the partial correlations, which --skip-recent may leave without a key
  const std::span<const double> s_q = counted(out.s_q[kPrompt].view().row(slot));
  const std::span<const double> weights = counted(log_max);
  std::vector<double> known(s_q.begin(), s_q.end());
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (std::isnan(weights[i])) known[i] = kNan;
  }
  (*out.s_q_position)(slot) = pearson(control, known);
  correlate_chunks(plan, out.s_q[kChunk].view().row(slot), log_max,
                   out.within_chunk->view().row(slot));
}

void write_axes(ResultWriter& output, const Plan& plan) {
  const auto chunk_begin = mapped<Index>(plan.chunks, &TokenRange::begin);
  write_head_axes(output, plan.part);
  write_axis(output, "pos", plan.positions, "token", "query position");
  write_axis(output, "chunk_begin", chunk_begin, "token", "first position of the chunk");
}

/// Means over the layer's heads, and its best head.
void add_summary(Json& json, const Plan& plan, const LayerQueries& layer) {
  for (const std::size_t span : {kPrompt, kChunk}) {
    for (std::size_t i = 0; i < QueryCorrelation::kNames.size(); ++i) {
      json[fmt::format("{}_{}", kSpans[span], QueryCorrelation::kNames[i])] =
          json_number(mean(layer.correlation[span][i]->flat()));
    }
  }
  json["within_chunk"] = json_number(mean(layer.within_chunk->flat()));
  json["position_log_weight"] = json_number(mean(layer.weight_position->flat()));
  json["position_prompt_s_q"] = json_number(mean(layer.s_q_position->flat()));
  Mean positive;  // share of the heads in which the partial correlation is positive
  std::optional<std::size_t> best;
  const std::span<const double> pearson_log = layer.correlation[kPrompt][kPearsonLog]->flat();
  const std::span<const double> partial = layer.correlation[kPrompt][kPartialPearson]->flat();
  for (std::size_t h = 0; h < partial.size(); ++h) {
    if (!std::isnan(partial[h])) positive.add(partial[h] > 0.0);
    if (std::isnan(pearson_log[h])) continue;
    if (!best || pearson_log[h] > pearson_log[*best]) best = h;
  }
  json["partial_positive"] = json_number(positive.value());
  json["best_pearson_log"] = json_number(best ? pearson_log[*best] : kNan);
  json["best_partial_pearson"] = json_number(best ? partial[*best] : kNan);
  json["best_head"] = best ? Json(plan.part.q_heads[*best]) : Json(nullptr);
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
                             const AnalysisRun& run) {
  check_fields(options);
  require_full_qkv(trace, "query-selection");
  const Plan plan(trace.info(), options);
  const TraceInfo& part = plan.part;
  run.begin("query-selection", trace, with_part(fields_to_json(options), part));
  write_axes(run.output, plan);
  LayerQueries queries(run.output, plan);
  ScoreRowLoop loop(run.pool, run.stop, "query-selection");
  const auto measure = [&](Index, Index layer) {
    for (const Index kv_head : part.kv_heads_of(layer)) {
      check_stop(run.stop, "query-selection");
      const Tensor<float> k = trace.read_k(layer, kv_head, {0, part.n_tokens});
      const KeyTable keys(k.view());
      for (const Index q_slot : q_slots_of(part, layer, kv_head))
        measure_head(trace, options, plan, layer, q_slot, keys, loop, queries);
    }
    run.pool.parallel_for(n_of(part.q_heads),
                          [&](Index head, int) { correlate_head(plan, head, queries); });
  };
  const auto summarize = [&](Index, Index, Json& entry) { add_summary(entry, plan, queries); };
  Json summary;
  summary["layers"] = measure_layers("query-selection", part.layers, queries.columns.arrays,
                                     run.progress, measure, summarize);
  summary["totals"] = mean_of_layers(summary["layers"]);
  const Json best = max_of_layers(summary["layers"], "best_pearson_log");
  for (const Json& layer : summary["layers"]) {
    for (const char* of_head : {"best_pearson_log", "best_partial_pearson"})
      if (layer.at("best_pearson_log") == best) summary["totals"][of_head] = layer.at(of_head);
  }
  summary["totals"]["queries_per_head"] = plan.positions.size() - plan.counted;
  add_selection_plots(run.output);
  return run.finish(std::move(summary));
}

}  // namespace kvscope
