#include "analysis/kinds/coverage_replay.hpp"

#include <algorithm>
#include <limits>

#include "analysis/base/analysis.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "core/attention/layer_divergence.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

/// The maps of one layer; filled by the replay's callback.
struct LayerMaps {
  Index layer = 0;
  std::vector<std::unique_ptr<QueryPageMap>> pairs;
};

/// A layer that stays dense because of its window: everything visible is kept, so the share of keys
/// is 1 and the kept mass is the mass itself, which the caller knows.
void fill_windowed(std::span<const Index> visible_counts, PairCoverage& out) {
  for (const Index n : visible_counts)
    out.map_selected.push_back(n > 0 ? 1.0f : std::numeric_limits<float>::quiet_NaN());
}

void fill_heads(const LayerReplay& replay, const PairReplay& pair, PairCoverage& out) {
  const std::size_t n_calls = replay.calls.size();
  const auto n_rows = static_cast<std::size_t>(replay.row_begin.back());
  for (std::size_t h = 0; h < replay.q_heads.size(); ++h) {
    const std::span<const double> masses(pair.mass_rows.data() + h * n_rows, n_rows);
    out.mass.push_back(mean(masses));
    out.mass_p05.push_back(quantile(masses, 0.05));
    double kept = 0.0;
    for (std::size_t c = 0; c < n_calls; ++c) {
      kept += pair.of(ReplayMetric::kept)[h * n_calls + c] *
              static_cast<double>(replay.row_begin[c + 1] - replay.row_begin[c]);
    }
    out.kept_keys.push_back(kept / static_cast<double>(n_rows));
  }
  out.mass_mean = mean(out.mass);
  out.mass_p05_all = quantile(pair.mass_rows, 0.05);
  out.is_dense = pair.is_dense;
}

}  // namespace

std::vector<std::vector<PairCoverage>> replay_coverage(
    const TraceSource& trace, const TraceSource* draft, const std::vector<Index>& layers,
    const std::vector<ReplayPair>& pairs, const ReplayOptions& options, const MapGrid& grid,
    ThreadPool& pool, const ProgressFn& progress, const std::stop_token& stop) {
  std::vector<LayerMaps> maps;
  for (Index layer : layers) {
    maps.push_back({layer, {}});
    if (trace.info().window_of(layer)) continue;
    for (std::size_t p = 0; p < pairs.size(); ++p)
      maps.back().pairs.push_back(std::make_unique<QueryPageMap>(grid));
  }
  ReplayOptions watched = options;
  watched.on_row = [&](const MeasuredRow& row) {
    const auto it =
        std::ranges::find_if(maps, [&](const LayerMaps& one) { return one.layer == row.layer; });
    std::span<const double> probs = row.probs;
    std::vector<double> shares;  // of what the keys get, as in the map of all attention
    if (!trace.info().layer_sink_logits(row.layer).empty()) {
      shares.assign(probs.begin(), probs.end());
      normalise_row(shares);
      probs = shares;
    }
    for (std::size_t p = 0; p < pairs.size(); ++p)
      it->pairs[p]->add_kept(row.pos, probs, row.visible, row.kept[p]);
  };
  const std::vector<LayerReplay> replays =
      replay_layers(trace, draft, layers, pairs, watched, pool, progress, stop);

  std::vector<std::vector<PairCoverage>> out(layers.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const auto window = trace.info().window_of(layers[l]);
    const std::vector<Index> visible_counts = grid.visible_counts(window);
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      PairCoverage one;
      fill_heads(replays[l], replays[l].pairs[p], one);
      if (window) {
        fill_windowed(visible_counts, one);
      } else {
        one.map_kept = maps[l].pairs[p]->mean_mass(visible_counts);
        one.map_selected = maps[l].pairs[p]->kept_share(visible_counts);
        maps[l].pairs[p].reset();
      }
      out[l].push_back(std::move(one));
    }
  }
  return out;
}

}  // namespace kvscope
