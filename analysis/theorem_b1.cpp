#include "analysis/theorem_b1.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/layer_arrays.hpp"
#include "analysis/statistics.hpp"
#include "core/attention/quoka_scores.hpp"
#include "core/attention/theorem_b1.hpp"
#include "core/attention/topk.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/nan.hpp"
#include "core/base/splitmix64.hpp"
#include "core/trace/result.hpp"

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

/// Rows of the heads of one layer, in the precision they are stored in, and how they compare with
/// the truth. A row without k* makes no statement: it keeps what clear() gives it.
struct LayerRowsB1 {
  LayerRowsB1(ResultWriter& output, const TraceInfo& info, Index n_rows)
      : layer(output, static_cast<Index>(info.layers.size())),
        shape{static_cast<Index>(info.q_heads.size()), n_rows} {
    for (std::size_t b = 0; b < kBounds.size(); ++b) {
      const BoundName& bound = kBounds[b];
      bounds[b] = &add<float>(bound.array, "1", bound.long_name, kNanF);
      violated[b] = &add<std::uint8_t>("violated/" + std::string(bound.key), "1",
                                       "1 if the bound fails in this row", 0);
      gaps[b] = Tensor<double>(shape);
      layer.remember("gaps/" + std::string(bound.key), gaps[b]);
    }
  }
  template <class T>
  Tensor<T>& add(std::string_view name, const char* units, std::string_view text, T fill) {
    return layer.add<T>(std::string(name), shape, {"q_head", "row"}, units, std::string(text),
                        fill);
  }

  LayerArrays layer;
  Shape shape;  // [q_head, row]
  Tensor<float>& cos = add<float>("cos", "1", "cos(k*, q)", kNanF);
  Tensor<float>& weight = add<float>("weight", "1", "softmax weight of k*", kNanF);
  Tensor<float>& log_odds = add<float>("log_odds", "nat", "log(w / (1 - w))", kNanF);
  Tensor<float>& norm_eff = add<float>("norm_eff", "1", "N_eff = |q| max|k| scale", kNanF);
  Tensor<float>& cos_mean_query = add<float>("cos_mean_query", "1", "cos(M_Q, q)", kNanF);
  Tensor<std::int32_t>& n_others =
      add<std::int32_t>("n_others", "token", "visible keys besides k*", 0);
  Tensor<std::int32_t>& star_pos = add<std::int32_t>("star_pos", "token", "position of k*", -1);
  std::array<Tensor<float>*, kBounds.size()> bounds{};
  std::array<Tensor<std::uint8_t>*, kBounds.size()> violated{};
  std::array<Tensor<double>, kBounds.size()> gaps;  // >= 0 where a bound holds
};

/// Violations and gaps of the rows that make a statement.
struct Tally {
  std::int64_t rows = 0;
  Mean cos;
  std::array<std::int64_t, kBounds.size()> violations{};
  std::array<Mean, kBounds.size()> gaps;

  void add(const LayerRowsB1& rows_of_layer, Index head, Index row) {
    if (rows_of_layer.n_others(head, row) < 1) return;
    ++rows;
    cos.add(rows_of_layer.cos(head, row));
    for (std::size_t b = 0; b < kBounds.size(); ++b) {
      violations[b] += (*rows_of_layer.violated[b])(head, row);
      gaps[b].add(rows_of_layer.gaps[b](head, row));
    }
  }

  nlohmann::ordered_json to_json() const {
    nlohmann::ordered_json json;
    json["rows"] = rows;
    json["cos_mean"] = json_number(cos.value());
    for (std::size_t b = 0; b < kBounds.size(); ++b) {
      json[std::string(kBounds[b].key) + "_violations"] = violations[b];
    }
    for (std::size_t b = 0; b < kBounds.size(); ++b) {
      json[std::string(kBounds[b].key) + "_mean_gap"] = json_number(gaps[b].value());
    }
    return json;
  }
};

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
                  const KeyTable& keys, ScoreRowLoop& loop, LayerRowsB1& out) {
  const TraceInfo& info = trace.info();
  const Index slot = info.q_slot(q_head);
  const Tensor<float> q = trace.read_q(layer, q_head, {0, info.n_tokens});
  const Index n_prompt = std::clamp<Index>(info.n_prompt, 1, info.n_tokens);
  const std::vector<double> mean_query =
      quoka_mean_query(q.view().range(0, 0, n_prompt), QuokaMean::raw, kEps);
  const double scale = static_cast<double>(info.score_scale);

  // The theorem is about the softmax of q.k: a model's soft cap stays out of it.
  loop.run(q.view(), 0, row_pos, keys, {.scale = scale}, window_of(info, layer),
           [&](Index i, std::span<double> scores, TokenRange visible) {
             const Index pos = row_pos[static_cast<std::size_t>(i)];
             const std::optional<Index> picked = pick_star(options, scores, layer, q_head, pos);
             if (!picked) return;
             const Index star = *picked;
             const Index star_pos = visible.begin + star;
             const auto norms = keys.norms().subspan(static_cast<std::size_t>(visible.begin),
                                                     static_cast<std::size_t>(visible.size()));
             const auto query = q.view().row(pos);
             const TheoremB1Row row =
                 theorem_b1_row(scores, star, norm_of(query), norms[static_cast<std::size_t>(star)],
                                max_of(norms), scale);
             const double cos_mean = cosine(mean_query, query);
             const MainTextBound main_text =
                 main_text_bound(cosine(mean_query, k.row(star_pos)), row.cos);

             out.n_others(slot, i) = static_cast<std::int32_t>(row.n);
             out.star_pos(slot, i) = static_cast<std::int32_t>(star_pos);
             out.cos(slot, i) = static_cast<float>(row.cos);
             out.weight(slot, i) = static_cast<float>(row.weight);
             out.log_odds(slot, i) = static_cast<float>(row.log_odds);
             out.norm_eff(slot, i) = static_cast<float>(row.norm_eff);
             out.cos_mean_query(slot, i) = static_cast<float>(cos_mean);
             const std::array<double, kBounds.size()> bounds = {row.printed,       row.repaired,
                                                                row.jensen,        row.worst,
                                                                main_text.relaxed, main_text.exact};
             for (std::size_t b = 0; b < bounds.size(); ++b) {
               const double gap = b < kFirstUpperBound ? row.cos - bounds[b] : bounds[b] - cos_mean;
               const double slack = b < kFirstUpperBound ? row.slack : main_text.slack;
               (*out.bounds[b])(slot, i) = static_cast<float>(bounds[b]);
               out.gaps[b](slot, i) = gap;
               (*out.violated[b])(slot, i) = gap < -(options.tolerance + slack);
             }
           });
}

}  // namespace

nlohmann::ordered_json analyze_theorem_b1(const TraceSource& trace, const TheoremB1Options& options,
                                          ResultWriter& output, ThreadPool& pool,
                                          const ProgressFn& progress, std::stop_token stop,
                                          const ResultProvenance& provenance) {
  check_fields(options);
  require_full_qkv(trace, "theorem-b1");
  const TraceInfo& info = trace.info();
  const std::vector<Index> row_pos = evenly_spaced(0, info.n_tokens, options.rows);
  const TraceSource* const traces[] = {&trace};
  output.begin(make_result_info("theorem-b1", traces, fields_to_json(options), provenance));
  write_head_axes(output, info);
  write_axis(output, "row_pos", row_pos, "token", "query position");
  LayerRowsB1 rows(output, info, static_cast<Index>(row_pos.size()));

  nlohmann::ordered_json summary;
  summary["layers"] = nlohmann::ordered_json::array();
  Tally total;
  ScoreRowLoop loop(pool, stop, "theorem-b1");
  const auto n_layers = static_cast<Index>(info.layers.size());
  const auto n_heads = static_cast<Index>(info.q_heads.size());
  const auto n_rows = static_cast<Index>(row_pos.size());
  for (Index slot = 0; slot < n_layers; ++slot) {
    const Index layer = info.layers[static_cast<std::size_t>(slot)];
    rows.layer.clear();
    const bool is_known = rows.layer.load(slot);
    for (Index kv_head : info.kv_heads) {
      if (is_known) break;
      check_stop(stop, "theorem-b1");
      const Tensor<float> k = trace.read_k(layer, kv_head, {0, info.n_tokens});
      const KeyTable keys(k.view());
      for (Index q_head : info.q_heads) {
        if (q_head / info.group() != kv_head) continue;
        analyze_head(trace, options, layer, q_head, row_pos, k.view(), keys, loop, rows);
      }
    }
    rows.layer.write(slot);

    Tally tally;
    for (Index head = 0; head < n_heads; ++head) {
      for (Index row = 0; row < n_rows; ++row) {
        tally.add(rows, head, row);
        total.add(rows, head, row);
      }
    }
    nlohmann::ordered_json entry;
    entry["layer"] = layer;
    entry.update(tally.to_json());
    summary["layers"].push_back(entry);
    if (progress) progress({"theorem-b1", slot + 1, n_layers, "layers"});
  }
  summary["totals"] = total.to_json();
  summary["totals"]["rows_per_head"] = n_rows;
  std::int64_t broken = 0;
  for (std::size_t b = 0; b < kBounds.size(); ++b) {
    if (kBounds[b].must_hold) broken += total.violations[b];
  }
  summary["totals"]["violations_of_proved_bounds"] = broken;

  const std::vector<std::string> axes = {"layer", "q_head", "row_pos"};
  output.add_plot({"plot_cos", "cos", axes, "Measured cos(k*, q)"});
  output.add_plot({"plot_printed", "bounds/printed", axes, "Theorem B.1 as printed"});
  output.add_plot({"plot_jensen", "bounds/jensen", axes, "Jensen bound (always valid)"});
  output.add_plot({"plot_worst", "bounds/worst", axes, "Worst-case bound (always valid)"});
  output.finish(summary);
  return summary;
}

}  // namespace kvscope
