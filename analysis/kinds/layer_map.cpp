#include "analysis/kinds/layer_map.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "analysis/base/layer_arrays.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/mean_rows.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "core/attention/monotone_map.hpp"
#include "core/attention/row_kernels.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

// head-mean rows of both models in memory at once.
constexpr std::int64_t kBlockBytes = 192LL << 20;

/// Number of leading tokens that may be compared; throws unless the traces hold the same text.
Index shared_tokens(const TraceSource& verifier, const TraceSource& draft, TokenMatch match) {
  const auto a = verifier.tokens();
  const auto b = draft.tokens();
  const auto held = [](const TraceSource& trace) {
    return std::min<Index>(trace.info().n_tokens, static_cast<Index>(trace.tokens().size()));
  };
  const Index shorter = std::min(held(verifier), held(draft));
  Index agree = 0;
  while (agree < shorter &&
         a[static_cast<std::size_t>(agree)] == b[static_cast<std::size_t>(agree)]) {
    ++agree;
  }
  if (match == TokenMatch::common_prefix) return agree;
  if (agree < shorter) {
    const auto at = static_cast<std::size_t>(agree);
    throw ConfigError(
        "layer-map: both traces must hold the same tokens, but at position {} {} has id {} and {} "
        "has id {}; record both from the same ids, or compare the common prefix",
        agree, verifier.where(), a[at], draft.where(), b[at]);
  }
  if (verifier.info().n_tokens != draft.info().n_tokens || shorter != verifier.info().n_tokens) {
    throw ConfigError(
        "layer-map: both traces must hold the same tokens, but {} has {} ids for {} positions and "
        "{} has {} ids for {} positions; compare the common prefix to go on",
        verifier.where(), a.size(), verifier.info().n_tokens, draft.where(), b.size(),
        draft.info().n_tokens);
  }
  return agree;
}

std::vector<Index> choose_rows(Index n_tokens, const LayerMapOptions& options) {
  const Index first = options.min_visible - 1;
  const Index n = options.row_choice == RowChoice::all ? n_tokens : options.rows;
  std::vector<Index> rows = evenly_spaced(first, n_tokens, n);
  if (rows.empty()) {
    throw ConfigError(
        "layer-map: expected at least {} shared tokens (rows need that many visible "
        "keys), found {}",
        options.min_visible, n_tokens);
  }
  return rows;
}

/// The rows of a few queries in every recorded layer of one model: [layer, query, key].
struct ModelRows {
  explicit ModelRows(const TraceSource& source) : trace(source) {}

  void load(std::span<const Index> positions, Index n_keys, bool drop_sink, ScoreRowLoop& loop) {
    const auto n_layers = static_cast<Index>(trace.info().layers.size());
    const Shape shape{n_layers, static_cast<Index>(positions.size()), n_keys};
    if (rows.shape() != shape) rows = Tensor<double>(shape);
    for (Index slot = 0; slot < n_layers; ++slot) {
      const Index layer = trace.info().layers[static_cast<std::size_t>(slot)];
      head_mean_rows(trace, layer, positions, loop, rows.sub(slot));
      if (!drop_sink) continue;
      for (std::size_t i = 0; i < positions.size(); ++i) {
        drop_first_key(rows.sub(slot)
                           .row(static_cast<Index>(i))
                           .first(static_cast<std::size_t>(positions[i] + 1)));
      }
    }
  }

  std::span<const double> row(Index slot, Index query, TokenRange keys) const {
    return rows.sub(slot).row(query).subspan(static_cast<std::size_t>(keys.begin),
                                             static_cast<std::size_t>(keys.size()));
  }
  std::vector<std::span<const double>> of_layers(Index query, TokenRange keys) const {
    std::vector<std::span<const double>> out;
    for (Index slot = 0; slot < rows.dim(0); ++slot) out.push_back(row(slot, query, keys));
    return out;
  }

  const TraceSource& trace;
  Tensor<double> rows;
};

/// Per-row results, [row, draft, verifier].
struct RowResults {
  RowResults(Index n_rows, Index n_draft, Index n_ver) : kl({n_rows, n_draft, n_ver}) {
    smoothed = Tensor<double>(kl.shape());
    variation = Tensor<double>(kl.shape());
    n_smoothed.resize(static_cast<std::size_t>(n_rows));
  }
  Tensor<double> kl, smoothed, variation;
  std::vector<Index> n_smoothed;  // layer rows of either model that were smoothed, per row
};

/// All pairs of layers for one query row.
void compare_row(const ModelRows& verifier, const ModelRows& draft, Index query, Index n_keys,
                 const LayerMapOptions& options, Index row, RowResults& out) {
  const TokenRange keys{options.drop_sink ? 1 : 0, n_keys};
  const auto ver_rows = verifier.of_layers(query, keys);
  const auto draft_rows = draft.of_layers(query, keys);
  const auto fill = [&](Smoothing smoothing, TensorView<double> kl) {
    const RowLogs ver(ver_rows, smoothing, options.eps);
    const RowLogs dra(draft_rows, smoothing, options.eps);
    layer_divergences(ver, dra, kl);
    return ver.n_smoothed + dra.n_smoothed;
  };
  out.n_smoothed[static_cast<std::size_t>(row)] = fill(options.smoothing, out.kl.sub(row));
  fill(Smoothing::always, out.smoothed.sub(row));
  for (std::size_t i = 0; i < draft_rows.size(); ++i) {
    for (std::size_t j = 0; j < ver_rows.size(); ++j) {
      out.variation.sub(row)(static_cast<Index>(i), static_cast<Index>(j)) =
          0.5 * l1_distance(draft_rows[i], ver_rows[j]);
    }
  }
}

/// Mean over the rows of f(value), [draft, verifier].
template <class F>
Tensor<double> mean_over_rows(const Tensor<double>& rows, F f) {
  Tensor<double> out({rows.dim(1), rows.dim(2)});
  for (Index row = 0; row < rows.dim(0); ++row) {
    for (Index i = 0; i < rows.dim(1); ++i) {
      for (Index j = 0; j < rows.dim(2); ++j) out(i, j) += f(rows(row, i, j));
    }
  }
  for (double& value : out.flat()) value /= static_cast<double>(rows.dim(0));
  return out;
}

/// Columns of `d` from `first` on, contiguous.
Tensor<double> columns_from(const Tensor<double>& d, Index first) {
  Tensor<double> out({d.dim(0), d.dim(1) - first});
  for (Index i = 0; i < out.dim(0); ++i) {
    for (Index j = 0; j < out.dim(1); ++j) out(i, j) = d(i, j + first);
  }
  return out;
}

/// The monotone map over the sparse verifier layers: slot of the draft layer, empty where the layer
/// is dense.
struct MonotoneMap {
  MonotoneMap(const Tensor<double>& d, std::span<const Index> verifier_layers, Index dense_layers)
      : draft_slot(verifier_layers.size()) {
    const Index first =
        std::ranges::lower_bound(verifier_layers, dense_layers) - verifier_layers.begin();
    if (first == static_cast<Index>(verifier_layers.size())) {
      throw ConfigError(
          "layer-map: dense-layers {} leaves none of the {} recorded verifier layers to map",
          dense_layers, verifier_layers.size());
    }
    const Tensor<double> sparse = columns_from(d, first);
    const LayerAssignment best = monotone_layer_map(sparse.view());
    cost = best.cost;
    for (std::size_t j = 0; j < best.draft_of.size(); ++j)
      draft_slot[static_cast<std::size_t>(first) + j] = best.draft_of[j];
    unconstrained_cost = unconstrained_layer_map(sparse.view()).cost;
  }
  std::vector<std::optional<Index>> draft_slot;  // per verifier slot
  double cost = 0.0;
  double unconstrained_cost = 0.0;
};

void write_matrix(ResultWriter& output, const std::string& name, const Tensor<double>& values,
                  std::string_view units, std::string_view text) {
  output.put<double>(name, values.shape(), {"draft_layer", "verifier_layer"}, units, text,
                     values.flat());
}

template <class T>
void write_column(ResultWriter& output, const std::string& name, const std::vector<T>& values,
                  std::string_view units, std::string_view text) {
  output.put<T>(name, {n_of(values)}, {"verifier_layer"}, units, text, values);
}

/// Head-mean rows of all layers of both models, a block of queries at a time; all pairs of each
/// row.
RowResults compare_rows(const TraceSource& verifier, const TraceSource& draft,
                        const std::vector<Index>& row_pos, Index n_tokens,
                        const LayerMapOptions& options, const AnalysisRun& run) {
  const auto n_rows = n_of(row_pos);
  const auto n_ver = n_of(verifier.info().layers);
  const auto n_draft = n_of(draft.info().layers);
  RowResults results(n_rows, n_draft, n_ver);
  ScoreRowLoop loop(run.pool, run.stop, "layer-map");
  ModelRows ver_rows(verifier);
  ModelRows draft_rows(draft);
  const std::int64_t row_bytes = (n_ver + n_draft) * n_tokens * 8;
  const Index block = std::clamp<Index>(kBlockBytes / row_bytes, 16, n_rows < 16 ? 16 : n_rows);
  for (Index first = 0; first < n_rows; first += block) {
    check_stop(run.stop, "layer-map");
    const Index last = std::min(first + block, n_rows);
    const auto positions = std::span(row_pos).subspan(static_cast<std::size_t>(first),
                                                      static_cast<std::size_t>(last - first));
    ver_rows.load(positions, n_tokens, options.drop_sink, loop);
    draft_rows.load(positions, n_tokens, options.drop_sink, loop);
    run.pool.parallel_for(last - first, [&](Index i, int) {
      check_stop(run.stop, "layer-map");
      compare_row(ver_rows, draft_rows, i, positions[static_cast<std::size_t>(i)] + 1, options,
                  first + i, results);
    });
    if (run.progress) run.progress({"layer-map", last, n_rows, "rows"});
  }
  return results;
}

/// Means over the rows, [draft, verifier].
struct LayerMeans {
  LayerMeans(const RowResults& results, double nucleus)
      : kl(mean_over_rows(results.kl, [](double x) { return x; })),
        smoothed(mean_over_rows(results.smoothed, [](double x) { return x; })),
        variation(mean_over_rows(results.variation, [](double x) { return x; })),
        floor(mean_over_rows(
            results.kl, [&](double x) { return std::max(0.0, nucleus - std::sqrt(0.5 * x)); })) {}
  Tensor<double> kl, smoothed, variation, floor;
};

void write_means(const LayerMeans& means, const RowResults& results, ResultWriter& output) {
  write_matrix(output, "kl", means.kl, "nat", "KL(verifier || draft)");
  write_matrix(output, "kl_smoothed", means.smoothed, "nat",
               "KL(verifier || draft), all rows smoothed");
  write_matrix(output, "total_variation", means.variation, "1", "total variation distance");
  write_matrix(output, "pinsker_floor", means.floor, "1",
               "floor max(0, p - sqrt(KL / 2)) on the verifier's mass");
  output.put<double>("kl_rows", results.kl.shape(), {"row", "draft_layer", "verifier_layer"}, "nat",
                     "KL(verifier || draft) per row", results.kl.flat());
}

/// Writes the maps; returns a row for each layer of the verifier, and "kl_mean_mapped".
std::pair<Json, double> write_maps(const LayerMeans& means, const MonotoneMap& monotone,
                                   const std::vector<Index>& ver_layers,
                                   const std::vector<Index>& draft_layers, ResultWriter& output) {
  const LayerAssignment argmax = unconstrained_layer_map(means.kl.view());
  std::vector<std::int64_t> monotone_layer, argmax_layer;
  std::vector<double> monotone_kl, argmax_kl;
  Json rows = Json::array();
  for (Index j = 0; j < n_of(ver_layers); ++j) {
    const auto slot = monotone.draft_slot[static_cast<std::size_t>(j)];
    const Index free_slot = argmax.draft_of[static_cast<std::size_t>(j)];
    monotone_layer.push_back(slot ? draft_layers[static_cast<std::size_t>(*slot)] : -1);
    monotone_kl.push_back(slot ? means.kl(*slot, j) : kNan);
    argmax_layer.push_back(draft_layers[static_cast<std::size_t>(free_slot)]);
    argmax_kl.push_back(means.kl(free_slot, j));
    rows.push_back({{"layer", ver_layers[static_cast<std::size_t>(j)]},
                    {"draft_layer", slot ? Json(monotone_layer.back()) : Json(nullptr)},
                    {"kl", json_number(monotone_kl.back())},
                    {"total_variation", json_number(slot ? means.variation(*slot, j) : kNan)},
                    {"pinsker_floor", json_number(slot ? means.floor(*slot, j) : kNan)},
                    {"argmax_draft_layer", argmax_layer.back()},
                    {"argmax_kl", json_number(argmax_kl.back())}});
  }
  write_column(output, "monotone_map", monotone_layer, "1", "draft layer of the monotone map");
  write_column(output, "argmax_map", argmax_layer, "1", "draft layer of least divergence");
  write_column(output, "monotone_kl", monotone_kl, "nat", "KL at the monotone map");
  write_column(output, "argmax_kl", argmax_kl, "nat", "KL at the arg max map");
  return {std::move(rows), mean(monotone_kl)};
}

/// How much smoothing changes a divergence at most.
double largest_change(const LayerMeans& means) {
  double largest = 0.0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(means.kl.count()); ++i)
    largest = std::max(largest, std::abs(means.kl.flat()[i] - means.smoothed.flat()[i]));
  return largest;
}

void add_kl_plots(ResultWriter& output) {
  const std::vector<std::string> axes = {"draft_layer", "verifier_layer"};
  output.add_plot({"plot_kl", "kl", axes, "KL(verifier || draft), nats"});
  output.add_plot({"plot_total_variation", "total_variation", axes, "Total variation distance"});
  output.add_plot({"plot_pinsker_floor", "pinsker_floor", axes, "Floor on the verifier's mass"});
  output.add_plot({"plot_map", "monotone_map", {"verifier_layer"}, "Monotone layer map"});
  output.add_plot({"plot_argmax_map", "argmax_map", {"verifier_layer"}, "Arg max layer map"});
}

}  // namespace

Json analyze_layer_map(const TraceSource& verifier, const TraceSource& draft,
                       const LayerMapOptions& options, const AnalysisRun& run) {
  check_fields(options);
  require_full_qkv(verifier, "layer-map");
  require_full_qkv(draft, "layer-map");
  const Index n_tokens = shared_tokens(verifier, draft, options.token_match);
  const std::vector<Index> row_pos = choose_rows(n_tokens, options);
  const std::vector<Index>& ver_layers = verifier.info().layers;
  const std::vector<Index>& draft_layers = draft.info().layers;
  const RowResults results = compare_rows(verifier, draft, row_pos, n_tokens, options, run);
  const LayerMeans means(results, options.nucleus);
  const MonotoneMap monotone(means.kl, ver_layers, options.dense_layers);

  const TraceSource* const traces[] = {&verifier, &draft};
  run.begin("layer-map", traces, fields_to_json(options));
  write_axis(run.output, "draft_layer", draft_layers, "1", "draft layer");
  write_axis(run.output, "verifier_layer", ver_layers, "1", "verifier layer");
  write_axis(run.output, "row_pos", row_pos, "token", "query position");
  write_means(means, results, run.output);
  Json summary;
  double kl_mean_mapped = 0.0;
  std::tie(summary["layers"], kl_mean_mapped) =
      write_maps(means, monotone, ver_layers, draft_layers, run.output);
  std::int64_t n_smoothed = 0;
  for (const Index n : results.n_smoothed) n_smoothed += n;
  summary["totals"] = {{"rows", n_of(row_pos)},
                       {"tokens", n_tokens},
                       {"monotone_cost", json_number(monotone.cost)},
                       {"argmax_cost", json_number(monotone.unconstrained_cost)},
                       {"kl_mean_mapped", json_number(kl_mean_mapped)},
                       {"smoothed_layer_rows", n_smoothed},
                       {"largest_change_by_smoothing", json_number(largest_change(means))}};
  add_kl_plots(run.output);
  return run.finish(std::move(summary));
}

}  // namespace kvscope
