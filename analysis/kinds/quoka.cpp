// Compiled alone: geometry.cpp has an add_plots(ResultWriter&) too.
#include "analysis/kinds/quoka.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/kinds/query_scores.hpp"
#include "core/attention/exact_rows.hpp"
#include "core/attention/topk.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/selectors/score_engine.hpp"

namespace kvscope {

namespace {

/// One chunk of the replay.
struct QuokaChunk {
  TokenRange tokens;  // its queries
  bool is_decode = false;
  TokenRange candidates;  // keys that compete; empty if the chunk is dense
  Index budget = 0;       // how many of them are kept, at most
  Index score_begin = 0;  // where its candidates start in key_scores/values
  Index kept_begin = 0;   // where its kept positions start in selected/positions
  /// True if the budget leaves something out.
  bool cuts() const { return budget < candidates.size(); }
};

/// Chunks of the prompt, then one chunk per decoded token.
struct QuokaPlan {
  QuokaPlan(const TraceInfo& info, const QuokaOptions& options);
  std::vector<QuokaChunk> chunks;
  Index n_scores = 0;  // entries of key_scores/values per KV head
  Index n_kept = 0;    // entries of selected/positions per KV head
  /// The last whole prompt chunk, for statistics at one visible length; empty if there is none.
  std::optional<Index> last_whole_chunk;
};

/// All arrays of one layer, by slots of the recorded heads.
struct QuokaLayer {
  QuokaLayer(ResultWriter& output, const TraceInfo& info, const QuokaPlan& plan,
             const QuokaOptions& options);

  LayerArrays arrays;
  Tensor<float>&s_q, &s_q_prompt, &mass, &log_max_weight, &breadth;  // [q_head, pos]
  Tensor<std::int32_t>& selected_queries;                            // [q_head, chunk, slot]
  Tensor<std::int32_t>& selected;                                    // [kv_head, entry]
  Tensor<float>* key_scores;            // [kv_head, entry]; null if they are not stored
  Tensor<float>& oracle_recall;         // [kv_head, chunk]
  Tensor<std::int32_t>& loaded;         // [kv_head, chunk]
  Tensor<std::uint8_t>& sink_selected;  // [kv_head, chunk]
  Tensor<std::uint8_t>& zero_mean;      // [kv_head, chunk], in no file
};

/// One KV group of one layer, read once and shared by all chunks.
struct Group {
  Index layer = 0;
  Index kv_slot = 0;
  Index first_head = 0;  // slot of the group's first query head
  std::optional<Index> window;
  bool selects = false;
  ScoreRule score;
  Tensor<float> q;                                 // [group, T, d_head]
  Tensor<float> k;                                 // [T, d_head]
  std::vector<std::optional<double>> sink_logits;  // per head
  KeyTable keys;
};

/// What one thread works with.
struct Worker {
  std::unique_ptr<Selector> selector;
  ScoreEngine engine;  // keeps the norms of the group's keys
  ScoreRows rows;
};

/// What the selector answers for a chunk.
struct Answer {
  Selection lists;
  std::vector<Index> chosen;  // keys that their score earned, ascending
};

/// The first query's list, without the own position that it is given and with the one that it
/// earned.
std::vector<Index> chosen_keys(const Selection& lists, const QuokaChunk& chunk) {
  const std::vector<KeyPos> scored = lists.list(0, 0).scored();
  std::vector<Index> chosen(scored.begin(), scored.end());
  if (static_cast<Index>(chosen.size()) < chunk.budget) {
    const Index own = chunk.tokens.begin;
    chosen.insert(std::ranges::lower_bound(chosen, own), own);
  }
  return chosen;
}

/// Stage 1: asks the selector about a chunk and files what it looked at. Dense layers and chunks
/// are asked too, for their queries alone.
Answer ask(const Group& group, const QuokaOptions& options, const QuokaChunk& chunk,
           Index chunk_index, Worker& worker, QuokaLayer& out) {
  const TokenRange tokens = chunk.tokens;
  const TensorView<const float> k(group.k.data(), {1, group.k.dim(0), group.k.dim(1)});
  SelectionTrace trace;
  SelectCall call{{.layer = group.layer,
                   .pos_begin = tokens.begin,
                   .n_tok = tokens.size(),
                   .score_scale = static_cast<float>(group.score.scale),
                   .score_cap = static_cast<float>(group.score.cap),
                   .q = group.q.view().range(1, tokens.begin, tokens.end),
                   .k = k.range(1, 0, tokens.end)},
                  chunk.is_decode ? Phase::decode : Phase::prefill,
                  chunk_index};
  call.budget = options.kept_per_chunk();
  call.engine = &worker.engine;
  call.trace = &trace;
  Answer selection{worker.selector->select(call), {}};
  out.zero_mean(group.kv_slot, chunk_index) = trace.has_zero_mean.front();
  for (std::size_t h = 0; h < trace.picks.size(); ++h) {
    const Index slot = group.first_head + static_cast<Index>(h);
    for (Index i = 0; i < tokens.size(); ++i) {
      out.s_q(slot, tokens.begin + i) =
          static_cast<float>(-trace.cosines[h][static_cast<std::size_t>(i)]);
    }
    for (std::size_t j = 0; j < trace.picks[h].size(); ++j) {
      out.selected_queries(slot, chunk_index, static_cast<Index>(j)) =
          static_cast<std::int32_t>(tokens.begin + trace.picks[h][j]);
    }
  }
  if (!group.selects || chunk.candidates.size() == 0) return selection;

  if (out.key_scores != nullptr) {
    float* stored = out.key_scores->view().row(group.kv_slot).data() + chunk.score_begin;
    std::transform(trace.scores.front().begin(), trace.scores.front().end(), stored, [](double s) {
      return s > kQuokaUnscored ? static_cast<float>(s) : -std::numeric_limits<float>::infinity();
    });
  }
  selection.chosen = chosen_keys(selection.lists, chunk);
  for (std::size_t i = 0; i < selection.chosen.size(); ++i) {
    out.selected(group.kv_slot, chunk.kept_begin + static_cast<Index>(i)) =
        static_cast<std::int32_t>(selection.chosen[i]);
  }
  out.sink_selected(group.kv_slot, chunk_index) =
      !selection.chosen.empty() && selection.chosen.front() == 0;
  return selection;
}

/// Probability on the listed keys of the row at `pos`; probs: unnormalised, over all visible keys
/// from 0 on. A list may hold keys for later queries of its chunk.
double kept_sum(std::span<const double> probs, const ListView& list, Index pos) {
  double sum = 0.0;
  for (const KeyPos key : list.keys) {
    if (key > pos) break;
    sum += probs[static_cast<std::size_t>(key)];
  }
  return sum;
}

/// Stage 2: exact rows of the chunk's queries in every head of the group. best_weight collects, per
/// candidate, the largest probability that any of these rows gives it (the oracle's score); empty
/// if it is not wanted.
void measure_rows(const Group& group, const QuokaChunk& chunk, const Selection& lists,
                  ScoreRows& scratch, std::span<double> best_weight, QuokaLayer& out) {
  const bool selected = group.selects && chunk.candidates.size() > 0;
  const std::vector<Index> positions = all_in(chunk.tokens.begin, chunk.tokens.end);
  for (std::size_t h = 0; h < group.sink_logits.size(); ++h) {
    const Index slot = group.first_head + static_cast<Index>(h);
    const auto measure = [&](Index i, std::span<double> row, TokenRange visible) {
      const Index pos = chunk.tokens.begin + i;
      // A sink takes its part of every weight; breadth and mass are about what the keys get.
      const double shift = max_of(row);
      const TokenRange without_first{std::max<Index>(visible.begin, 1), visible.end};
      const LargestWeight largest = largest_weight(row, visible, without_first, /*lse=*/0.0);
      const ExpSums sums = exp_row(row, shift, row);
      const double log_sum = std::log(sums.sum);
      const double lse = lse_with_sink_logit(shift + log_sum, group.sink_logits[h]);
      out.log_max_weight(slot, pos) = static_cast<float>(largest.log_weight - lse);
      out.breadth(slot, pos) = static_cast<float>(std::exp(log_sum - sums.weighted / sums.sum));
      if (!selected) return;
      out.mass(slot, pos) = static_cast<float>(kept_sum(row, lists.list(0, i), pos) / sums.sum);
      const double inverse = group.sink_logits[h] ? std::exp(shift - lse) : 1.0 / sums.sum;
      const std::size_t n = std::min(best_weight.size(), row.size());
      for (std::size_t t = 0; t < n; ++t)
        best_weight[t] = std::max(best_weight[t], inverse * row[t]);
    };
    visit_score_rows({group.q.sub(static_cast<Index>(h)), 0, group.keys, group.score, group.window},
                     positions, scratch, measure);
  }
}

/// Keys that the chunk's queries load for one KV head; own positions that whole_cache forces are
/// not counted.
Index loaded_keys(const QuokaOptions& options, const QuokaChunk& chunk, bool selects,
                  Index n_chosen) {
  if (!selects || chunk.candidates.size() == 0) return chunk.tokens.end;
  return options.scope == QuokaScope::past_plus_chunk ? n_chosen + chunk.tokens.size() : n_chosen;
}

/// Share of the oracle's keys that were kept; both ascending.
double overlap(std::span<const Index> oracle, std::span<const Index> kept) {
  std::vector<Index> both;
  std::set_intersection(oracle.begin(), oracle.end(), kept.begin(), kept.end(),
                        std::back_inserter(both));
  return static_cast<double>(both.size()) / static_cast<double>(oracle.size());
}

/// S_q of every position against the mean query of the whole prompt (the paper's figure 2).
void write_prompt_s_q(const TraceInfo& info, const QuokaOptions& options, const Group& group,
                      QuokaLayer& out) {
  const QueryScoring scoring{.mean = options.mean, .eps = options.eps};
  for (Index h = 0; h < group.q.dim(0); ++h) {
    std::ranges::transform(query_scores(info, group.q.sub(h), QuerySpan::prompt, scoring),
                           out.s_q_prompt.view().row(group.first_head + h).begin(),
                           [](double s) { return static_cast<float>(s); });
  }
}

Tensor<float>& per_row(LayerArrays& arrays, const TraceInfo& info, const char* name,
                       const char* units, const char* text, float fill) {
  return arrays.add<float>(name, {n_of(info.q_heads), info.n_tokens}, {"q_head", "pos"}, units,
                           text, fill);
}

template <class T>
Tensor<T>& per_chunk(LayerArrays& arrays, const TraceInfo& info, const QuokaPlan& plan,
                     const char* name, const char* units, const char* text, T fill) {
  return arrays.add<T>(name, {n_of(info.kv_heads), n_of(plan.chunks)}, {"kv_head", "chunk"}, units,
                       text, fill);
}

QuokaPlan::QuokaPlan(const TraceInfo& info, const QuokaOptions& options) {
  const Index n_prompt = std::clamp<Index>(info.n_prompt, 0, info.n_tokens);
  for (Index begin = 0; begin < info.n_tokens;) {
    const bool decodes = begin >= n_prompt;
    QuokaChunk chunk;
    chunk.is_decode = decodes;
    chunk.tokens = {begin, decodes ? begin + 1 : std::min(begin + options.chunk, n_prompt)};
    if (!(decodes && options.decode == QuokaDecode::dense)) {
      chunk.candidates = {
          0, options.scope == QuokaScope::whole_cache ? chunk.tokens.end : chunk.tokens.begin};
    }
    const Index n = chunk.candidates.size();
    chunk.budget = std::min(options.kept_per_chunk().tokens(n, /*page_size=*/1), n);
    chunk.score_begin = n_scores;
    chunk.kept_begin = n_kept;
    n_scores += n;
    n_kept += chunk.budget;
    if (!decodes && chunk.tokens.size() == options.chunk)
      last_whole_chunk = static_cast<Index>(chunks.size());
    chunks.push_back(chunk);
    begin = chunk.tokens.end;
  }
}

QuokaLayer::QuokaLayer(ResultWriter& output, const TraceInfo& info, const QuokaPlan& plan,
                       const QuokaOptions& options)
    : arrays(output, static_cast<Index>(info.layers.size())),
      s_q(per_row(arrays, info, "s_q", "1", "S_q against the chunk's mean query", 0.0f)),
      s_q_prompt(
          per_row(arrays, info, "s_q_prompt", "1", "S_q against the prompt's mean query", 0.0f)),
      mass(per_row(arrays, info, "mass", "1", "attention mass on the kept keys", 1.0f)),
      log_max_weight(per_row(arrays, info, "log_max_weight", "nat",
                             "log of the largest attention weight, key 0 left out", 0.0f)),
      breadth(per_row(arrays, info, "breadth", "token", "exp(entropy) of the attention row", 0.0f)),
      selected_queries(arrays.add<std::int32_t>(
          "selected_queries", {n_of(info.q_heads), n_of(plan.chunks), options.most_queries()},
          {"q_head", "chunk", "slot"}, "token", "positions of the selected queries", -1)),
      selected(arrays.add<std::int32_t>("selected/positions", {n_of(info.kv_heads), plan.n_kept},
                                        {"kv_head", "entry"}, "token", "positions of the kept keys",
                                        -1)),
      key_scores(options.store_key_scores
                     ? &arrays.add<float>("key_scores/values", {n_of(info.kv_heads), plan.n_scores},
                                          {"kv_head", "entry"}, "1", "S-hat of each candidate",
                                          kNanF)
                     : nullptr),
      oracle_recall(per_chunk<float>(arrays, info, plan, "oracle_recall", "1",
                                     "share of the keys of largest attention weight that are kept",
                                     kNanF)),
      loaded(per_chunk<std::int32_t>(arrays, info, plan, "loaded", "token",
                                     "keys loaded per KV head", 0)),
      sink_selected(
          per_chunk<std::uint8_t>(arrays, info, plan, "sink_selected", "1", "key 0 is kept", 0)),
      zero_mean(arrays.add_unwritten<std::uint8_t>("zero_mean",
                                                   {n_of(info.kv_heads), n_of(plan.chunks)})) {}

/// True if QuoKA selects in this layer: full attention, and past the dense layers.
bool quoka_selects_in(const TraceInfo& info, const QuokaOptions& options, Index layer) {
  return layer >= options.dense_layers && !info.window_of(layer);
}

/// Fills the slots of one KV head and its query heads: the selector sees them as a model of one KV
/// head, so queries=random draws otherwise than in a replay.
void quoka_group(const TraceSource& trace, const QuokaOptions& options, const QuokaPlan& plan,
                 Index layer, Index kv_slot, ThreadPool& pool, std::stop_token stop,
                 QuokaLayer& out) {
  const TraceInfo& info = trace.info();
  const TokenRange all{0, info.n_tokens};
  const Index kv_head = info.kv_heads[static_cast<std::size_t>(kv_slot)];
  Tensor<float> k = trace.read_k(layer, kv_head, all);
  KeyTable keys(k.view());
  Group group{layer,
              kv_slot,
              kv_slot * info.group(),
              info.window_of(layer),
              quoka_selects_in(info, options, layer),
              info.shape(layer).score_rule(),
              Tensor<float>::uninitialized({info.group(), info.n_tokens, info.d_head}),
              std::move(k),
              {},
              std::move(keys)};
  for (Index r = 0; r < info.group(); ++r) {
    const Index q_head = info.q_heads[static_cast<std::size_t>(group.first_head + r)];
    const Tensor<float> q = trace.read_q(layer, q_head, all);
    std::copy_n(q.data(), q.count(), group.q.sub(r).data());
    group.sink_logits.push_back(info.sink_logit(layer, q_head));
  }
  write_prompt_s_q(info, options, group, out);

  MethodSpec method = options.method();
  method.set("dense-layers", 0);  // the layer is asked in any case
  std::vector<Worker> workers(static_cast<std::size_t>(pool.n_threads()));
  for (Worker& worker : workers) {
    worker.selector = method.make();
    worker.selector->reset({.n_layers = info.n_layers,
                            .n_q = info.group(),
                            .n_kv = 1,
                            .d_head = info.d_head,
                            .max_tokens = info.n_tokens,
                            .score_scale = info.shape(layer).score_scale,
                            .score_cap = info.shape(layer).score_cap});
  }
  pool.parallel_for(static_cast<Index>(plan.chunks.size()), [&](Index c, int thread) {
    check_stop(stop, "quoka");
    const QuokaChunk& chunk = plan.chunks[static_cast<std::size_t>(c)];
    Worker& worker = workers[static_cast<std::size_t>(thread)];
    const Answer selection = ask(group, options, chunk, c, worker, out);
    out.loaded(kv_slot, c) = static_cast<std::int32_t>(
        loaded_keys(options, chunk, group.selects, static_cast<Index>(selection.chosen.size())));
    const bool wants_oracle = group.selects && chunk.cuts();
    std::vector<double> best_weight(
        wants_oracle ? static_cast<std::size_t>(chunk.candidates.size()) : 0, 0.0);
    measure_rows(group, chunk, selection.lists, worker.rows, best_weight, out);
    if (wants_oracle) {
      const std::vector<Index> oracle = top_k_sorted_by_index(best_weight, chunk.budget);
      out.oracle_recall(kv_slot, c) = static_cast<float>(overlap(oracle, selection.chosen));
    }
  });
}

constexpr std::array<std::string_view, 5> kCorrelations = {"pearson", "pearson_log", "spearman",
                                                           "partial_log", "chunk_pearson_log"};

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
  double in_chunk = kNan;
  if (plan.last_whole_chunk) {
    const TokenRange tokens = plan.chunks[static_cast<std::size_t>(*plan.last_whole_chunk)].tokens;
    const auto first = static_cast<std::size_t>(std::max<Index>(tokens.begin, 1) - 1);
    const auto n = static_cast<std::size_t>(tokens.end) - 1 - first;
    in_chunk =
        pearson(std::span(s_q_chunk).subspan(first, n), std::span(log_weight).subspan(first, n));
  }
  const QueryCorrelation all = correlate_queries(s_q, log_weight, position);
  return {all.value[0], all.value[1], all.value[2], all.value[3], in_chunk};
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
  const std::vector<Index> positions = all_in(0, info.n_tokens);
  std::vector<Index> chunk_begin, available, score_offsets, kept_offsets;
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
    const bool is_in_chunk = i + 1 == out.size();
    out[i] = &arrays.add<double>(fmt::format("correlation/{}", kCorrelations[i]), {n_heads},
                                 {"q_head"}, "1",
                                 fmt::format("{}{}", QueryCorrelation::kTexts[is_in_chunk ? 1 : i],
                                             is_in_chunk ? " in the last whole chunk" : ""));
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
  output.add_plot({"plot_s_q", "s_q", axes, "S_q per query"});
  output.add_plot({"plot_mass", "mass", axes, "Attention mass on the kept keys"});
  output.add_plot(
      {"plot_max_weight", "log_max_weight", axes, "Log of the largest attention weight"});
  output.add_plot({"plot_recall",
                   "oracle_recall",
                   {"layer", "kv_head", "chunk_begin"},
                   "Kept share of the keys of largest weight"});
  output.add_plot({"plot_correlation",
                   "correlation/pearson_log",
                   {"layer", "q_head"},
                   "Correlation of S_q with the log of the largest weight"});
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
    entry["dense"] = !selects;
    entry.update(tally.to_json());
    add_correlations_to(entry, info, correlations);
    if (!selects) return;
    sparse.add(arrays, plan, selects);
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
  summary["totals"]["windowed_layers"] = std::ranges::count_if(
      info.layers, [&](Index layer) { return info.window_of(layer).has_value(); });
  add_plots(run.output);
  return run.finish(std::move(summary));
}

}  // namespace kvscope
