#include "analysis/kinds/theorem_b1.hpp"

#include <algorithm>

#include "analysis/base/columns.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "core/attention/quoka_scores.hpp"
#include "core/attention/theorem_b1.hpp"
#include "core/attention/topk.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/base/splitmix64.hpp"

namespace kvscope {

namespace {

constexpr double kEps = 1e-12;  // vectors shorter than this count as zero

struct BoundName {
  std::string_view array;
  std::string_view key;  // in the summary
  std::string_view long_name;
  bool must_hold;
};
constexpr std::array<BoundName, 6> kBounds = {{
    {"bounds/printed", "printed", "printed lower bound on cos(k*, q)", false},
    {"bounds/repaired", "repaired", "rho / N_eff - 1", false},
    {"bounds/jensen", "jensen", "Jensen lower bound on cos(k*, q)", true},
    {"bounds/worst", "worst", "worst-case lower bound on cos(k*, q)", true},
    {"main_text/relaxed", "main_text_relaxed", "1 - (alpha - beta)^2 / 2", true},
    {"main_text/exact", "main_text_exact", "spherical upper bound on cos(M_Q, q)", true},
}};
constexpr std::size_t kFirstUpperBound = 4;

/// What one row says of its k*.
struct StarRow {
  TheoremB1Row row;
  Index star_pos = 0;
  double cos_mean_query = 0.0;
  std::array<double, kBounds.size()> bounds{};
  std::array<double, kBounds.size()> gaps{};  // >= 0 where a bound holds
  std::array<bool, kBounds.size()> violated{};
};

/// Names every array of a layer, [q_head, row]. A row without k* makes no statement: it keeps what
/// is filled in here.
void add_columns(ColumnsOf<StarRow>& rows) {
  const auto add = [&](const char* name, double TheoremB1Row::*from, const char* units,
                       const char* text, const std::vector<Total>& totals = {}) {
    rows.add<float>(
        name, [from](const StarRow& one) { return one.row.*from; }, units, text, totals, kNanF);
  };
  add("cos", &TheoremB1Row::cos, "1", "cos(k*, q)",
      {{Total::count, "rows"}, {Total::mean, "cos_mean"}});
  add("weight", &TheoremB1Row::weight, "1", "softmax weight of k*");
  add("log_odds", &TheoremB1Row::log_odds, "nat", "log(w / (1 - w))");
  add("norm_eff", &TheoremB1Row::norm_eff, "1", "N_eff = |q| max|k| scale");
  rows.add<float>("cos_mean_query", &StarRow::cos_mean_query, "1", "cos(M_Q, q)", {}, kNanF);
  rows.add<std::int32_t>(
      "n_others", [](const StarRow& one) { return one.row.n; }, "token", "visible keys besides k*");
  rows.add<std::int32_t>("star_pos", &StarRow::star_pos, "token", "position of k*", {}, -1);
  for (std::size_t b = 0; b < kBounds.size(); ++b) {
    const std::string key(kBounds[b].key);
    rows.add<float>(
        std::string(kBounds[b].array), [b](const StarRow& one) { return one.bounds[b]; }, "1",
        std::string(kBounds[b].long_name), {}, kNanF);
    rows.add<std::uint8_t>("violated/" + key, [b](const StarRow& one) { return one.violated[b]; },
                           "1", "1 if the bound fails in this row",
                           {{Total::sum, key + "_violations"}});
  }
  for (std::size_t b = 0; b < kBounds.size(); ++b) {
    const std::string key(kBounds[b].key);
    rows.add_unwritten<double>(
        "gaps/" + key, [b](const StarRow& one) { return one.gaps[b]; },
        {{Total::mean, key + "_mean_gap"}}, kNan);
  }
}

/// Index of k* among the visible keys; empty for a rank beyond them.
std::optional<Index> pick_star(const TheoremB1Options& options, std::span<const double> scores,
                               Index layer, Index q_head, Index pos) {
  const auto n = static_cast<Index>(scores.size());
  switch (options.star) {
    case StarKey::argmax:
      return arg_max(scores);
    case StarKey::rank:
      if (options.rank > n) return std::nullopt;
      return top_k(scores, options.rank).back();
    case StarKey::current:
      return n - 1;
    case StarKey::first:
      return 0;
    case StarKey::random:
      break;
  }
  const auto mix = [](std::uint64_t x) { return splitmix64_mix(x + kSplitMix64Step); };
  std::uint64_t counter = mix(static_cast<std::uint64_t>(options.seed));
  for (Index key : {layer, q_head, pos}) counter = mix(counter ^ static_cast<std::uint64_t>(key));
  return static_cast<Index>(counter % static_cast<std::uint64_t>(n));
}

double cosine(std::span<const double> a, std::span<const float> b) {
  double dot = 0.0;
  for (std::size_t c = 0; c < b.size(); ++c) dot += a[c] * static_cast<double>(b[c]);
  const double cos = dot / (std::max(norm_of(a), kEps) * std::max(norm_of(b), kEps));
  return std::clamp(cos, -1.0, 1.0);
}

/// Everything about one query head; `rows` are the sampled positions.
void analyze_head(const TraceSource& trace, const TheoremB1Options& options, Index layer,
                  Index q_head, std::span<const Index> row_pos, TensorView<const float> k,
                  const KeyTable& keys, std::span<const double> key_norms, ScoreRowLoop& loop,
                  const ColumnsOf<StarRow>& out) {
  const TraceInfo& info = trace.info();
  const Index slot = info.q_slot(q_head);
  const Tensor<float> q = trace.read_q(layer, q_head, {0, info.n_tokens});
  const Index n_prompt = std::clamp<Index>(info.n_prompt, 1, info.n_tokens);
  const std::vector<double> mean_query =
      quoka_mean_query(q.view().range(0, 0, n_prompt), QuokaMean::raw, kEps);
  const double scale = static_cast<double>(info.shape(layer).score_scale);

  // The theorem is about the softmax of q.k: a model's soft cap stays out of it.
  loop.run(q.view(), 0, row_pos, keys, {.scale = scale}, info.window_of(layer),
           [&](Index i, std::span<double> scores, TokenRange visible) {
             const Index pos = row_pos[static_cast<std::size_t>(i)];
             const std::optional<Index> picked = pick_star(options, scores, layer, q_head, pos);
             if (!picked) return;
             const Index star = *picked;
             const Index star_pos = visible.begin + star;
             const auto norms = key_norms.subspan(static_cast<std::size_t>(visible.begin),
                                                  static_cast<std::size_t>(visible.size()));
             const auto query = q.view().row(pos);
             const TheoremB1Row row =
                 theorem_b1_row(scores, star, norm_of(query), norms[static_cast<std::size_t>(star)],
                                max_of(norms), scale);
             const double cos_mean = cosine(mean_query, query);
             const MainTextBound main_text =
                 main_text_bound(cosine(mean_query, k.row(star_pos)), row.cos);

             StarRow one{row, star_pos, cos_mean, {}, {}, {}};
             one.bounds = {row.printed, row.repaired,      row.jensen,
                           row.worst,   main_text.relaxed, main_text.exact};
             for (std::size_t b = 0; b < kBounds.size(); ++b) {
               const bool is_lower = b < kFirstUpperBound;
               one.gaps[b] = is_lower ? row.cos - one.bounds[b] : one.bounds[b] - cos_mean;
               const double slack = is_lower ? row.slack : main_text.slack;
               one.violated[b] = one.gaps[b] < -(options.tolerance + slack);
             }
             out.put(slot, i, one);
           });
}

}  // namespace

Json analyze_theorem_b1(const TraceSource& trace, const TheoremB1Options& options,
                        const AnalysisRun& run) {
  check_fields(options);
  require_full_qkv(trace, "theorem-b1");
  const TraceInfo& info = trace.info();
  const std::vector<Index> row_pos = evenly_spaced(0, info.n_tokens, options.rows);
  run.begin("theorem-b1", trace, fields_to_json(options));
  write_head_axes(run.output, info);
  write_axis(run.output, "row_pos", row_pos, "token", "query position");
  const Index n_rows = n_of(row_pos);
  LayerColumns columns(run.output, n_of(info.layers));
  ColumnsOf<StarRow> rows(columns, {n_of(info.q_heads), n_rows}, {"q_head", "row"});
  add_columns(rows);

  Totals total(columns);
  ScoreRowLoop loop(run.pool, run.stop, "theorem-b1");
  const auto measure = [&](Index, Index layer) {
    for (const Index kv_head : info.kv_heads_of(layer)) {
      check_stop(run.stop, "theorem-b1");
      const Tensor<float> k = trace.read_k(layer, kv_head, {0, info.n_tokens});
      const KeyTable keys(k.view());
      std::vector<double> norms;
      for (Index pos = 0; pos < k.dim(0); ++pos) norms.push_back(norm_of(k.view().row(pos)));
      for (const Index q_head : info.q_heads) {
        if (q_head / info.group(layer) != kv_head) continue;
        analyze_head(trace, options, layer, q_head, row_pos, k.view(), keys, norms, loop, rows);
      }
    }
  };
  const auto summarize = [&](Index, Index, Json& entry) {
    Totals of_layer(columns);
    for (Totals* totals : {&of_layer, &total}) totals->add();
    entry.update(of_layer.to_json());
  };
  Json summary;
  summary["layers"] =
      measure_layers("theorem-b1", info.layers, columns.arrays, run.progress, measure, summarize);
  summary["totals"] = total.to_json();
  summary["totals"]["rows_per_head"] = n_rows;
  std::int64_t broken = 0;
  for (std::size_t b = 0; b < kBounds.size(); ++b) {
    if (kBounds[b].must_hold) broken += total.sum_of(std::string(kBounds[b].key) + "_violations");
  }
  summary["totals"]["violations_of_proved_bounds"] = broken;

  const std::vector<std::string> axes = {"layer", "q_head", "row_pos"};
  run.output.add_plot({"plot_cos", "cos", axes, "Measured cos(k*, q)"});
  run.output.add_plot({"plot_printed", "bounds/printed", axes, "Theorem B.1 as printed"});
  run.output.add_plot({"plot_jensen", "bounds/jensen", axes, "Jensen bound (always valid)"});
  run.output.add_plot({"plot_worst", "bounds/worst", axes, "Worst-case bound (always valid)"});
  return run.finish(std::move(summary));
}

}  // namespace kvscope
