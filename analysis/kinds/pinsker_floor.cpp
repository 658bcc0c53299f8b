#include "analysis/kinds/pinsker_floor.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/base/analysis.hpp"
#include "analysis/base/mean_rows.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/kinds/layer_map.hpp"
#include "core/attention/layer_divergence.hpp"
#include "core/attention/monotone_map.hpp"
#include "core/attention/nucleus.hpp"
#include "core/attention/row_kernels.hpp"
#include "core/base/nan.hpp"
#include "core/sim/draft_rows.hpp"
#include "core/sim/replay.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kMonotone = "monotone";

/// The map as specattn's option takes it: per layer of the model the place of its draft layer among
/// the recorded ones. Layers that are not recorded take their predecessor's: nobody asks about
/// them.
std::string monotone_map_text(const TraceSource& verifier, const TraceSource& draft,
                              ThreadPool& pool, const ProgressFn& progress,
                              const std::stop_token& stop) {
  LayerMapOptions options{.token_match = TokenMatch::common_prefix};
  MemoryResult result;
  analyze_layer_map(verifier, draft, options, {result, pool, progress, stop});
  const auto map = result.values<std::int64_t>("monotone_map");
  const TraceInfo& info = verifier.info();
  std::vector<Index> draft_of;
  Index current = draft.info().layer_slot(map.front());
  for (Index layer = 0; layer < info.n_layers; ++layer) {
    const auto it = std::ranges::find(info.layers, layer);
    if (it != info.layers.end())
      current = draft.info().layer_slot(map[static_cast<std::size_t>(it - info.layers.begin())]);
    draft_of.push_back(current);
  }
  return layer_map_text(draft_of);
}

/// Mass of `row` at the positions `keys`.
double mass_on(std::span<const double> row, const std::vector<Index>& keys) {
  double mass = 0.0;
  for (Index key : keys) mass += row[static_cast<std::size_t>(key)];
  return mass;
}

struct RowFloor {
  double kl, floor, tv_floor, nucleus_mass;
};

/// a: the verifier's row, b: the draft's, over the same keys.
RowFloor compare(std::span<const double> a, std::span<const double> b, double p) {
  std::vector<double> log_a(a.size()), log_b(b.size());
  log_row(a, log_a);
  log_row(b, log_b);
  RowFloor out{};
  out.kl = row_divergence(a, log_a, log_b, /*has_zeros=*/true);
  out.floor = std::max(0.0, p - std::sqrt(0.5 * out.kl));
  out.tv_floor = std::max(0.0, p - 0.5 * l1_distance(a, b));
  const std::vector<float> weights(b.begin(), b.end());
  out.nucleus_mass = mass_on(a, nucleus(weights, p, NucleusMode::exact));
  return out;
}

/// What the heads of a layer give to keys in each verified row, and how much of it was kept.
class RowMasses {
 public:
  RowMasses(const std::vector<Index>& row_pos, const std::vector<Index>& q_heads)
      : row_pos_(row_pos), q_heads_(q_heads) {
    for (auto* list : {&keys_, &kept_, &share_}) list->resize(row_pos.size() * q_heads.size(), 1.0);
  }
  /// Each row and head has a place of its own: any order, several threads.
  void add(const MeasuredRow& row) {
    const auto r = std::ranges::lower_bound(row_pos_, row.pos) - row_pos_.begin();
    const auto h = std::ranges::lower_bound(q_heads_, row.q_head) - q_heads_.begin();
    const auto at = static_cast<std::size_t>(h) * row_pos_.size() + static_cast<std::size_t>(r);
    const std::span<const KeyPos> kept = row.kept.front();
    keys_[at] = sum_of(row.probs);
    kept_[at] = 0.0;
    for (const KeyPos key : kept)
      kept_[at] += row.probs[static_cast<std::size_t>(key - row.visible.begin)];
    share_[at] = static_cast<double>(kept.size()) / static_cast<double>(row.visible.size());
  }
  /// Heads count by what they give to keys, as in the mean row that the floor is about.
  void file(PinskerLayer& out) const {
    for (std::size_t r = 0; r < row_pos_.size(); ++r) {
      double keys = 0.0;
      double kept = 0.0;
      double share = 0.0;
      for (std::size_t h = 0; h < q_heads_.size(); ++h) {
        keys += keys_[h * row_pos_.size() + r];
        kept += kept_[h * row_pos_.size() + r];
        share += share_[h * row_pos_.size() + r];
      }
      out.specattn_mass.push_back(keys > 0.0 ? std::min(1.0, kept / keys) : 1.0);
      out.specattn_kept.push_back(share / static_cast<double>(q_heads_.size()));
    }
  }

 private:
  const std::vector<Index>& row_pos_;
  const std::vector<Index>& q_heads_;
  std::vector<double> keys_, kept_, share_;  // [q_head, row]; all kept where nothing was measured
};

}  // namespace

PinskerResult pinsker_floors(const TraceSource& verifier, const TraceSource& draft,
                             const CoverageOptions& options, std::span<const Index> layers,
                             ThreadPool& pool, const ProgressFn& progress, std::stop_token stop) {
  const double p = options.nucleus;
  if (options.layer_map != kMonotone) DraftMap(options.layer_map, "monotone, ");  // refuses others
  require_same_tokens(verifier, draft);
  require_full_qkv(draft, "coverage");
  const TraceInfo& info = verifier.info();
  const std::string map = options.layer_map == kMonotone
                              ? monotone_map_text(verifier, draft, pool, progress, stop)
                              : options.layer_map;

  // 1. what SpecAttn keeps
  ReplayOptions replay;
  replay.calls.phase = Phase::verify;
  replay.calls.steps = options.replay.calls.steps;
  replay.calls.drafts = options.replay.calls.drafts;
  replay.rows_per_chunk.reset();
  MethodSpec specattn = "specattn";
  specattn.set("dense-layers", 0);
  specattn.set("layer-map", map);
  const ReplayPair pair{specattn, Budget{Budget::Kind::mass, p}};
  PinskerResult out;
  std::vector<bool> has_draft_row;  // of each verified row: the last one of a call has none
  for (const TokenRange& call : plan_calls(info, replay.calls, verifier.where())) {
    for (Index pos = call.begin; pos < call.end; ++pos) {
      out.row_pos.push_back(pos);
      has_draft_row.push_back(pos + 1 < call.end);
    }
  }
  for (Index layer : layers) {
    RowMasses masses(out.row_pos, info.q_heads);
    replay.on_row = [&](const MeasuredRow& row) { masses.add(row); };
    replay_layers(verifier, &draft, {layer}, {pair}, replay, pool, progress, stop);
    PinskerLayer one{.layer = layer};
    masses.file(one);
    out.layers.push_back(std::move(one));
  }

  // 2. the rows of both models and their floors
  ScoreRowLoop loop(pool, stop, "coverage");
  const auto n_rows = static_cast<Index>(out.row_pos.size());
  Tensor<double> ver_rows(Shape{n_rows, out.row_pos.back() + 1});
  Tensor<double> draft_rows(ver_rows.shape());
  std::optional<Index> loaded;  // the draft layer in draft_rows
  const DraftMap draft_map(map);
  for (std::size_t l = 0; l < out.layers.size(); ++l) {
    PinskerLayer& layer = out.layers[l];
    if (progress)
      progress({"floors", static_cast<Index>(l), static_cast<Index>(out.layers.size()), "layers"});
    const std::vector<Index>& draft_layers = draft.info().layers;
    const Index draft_slot =
        draft_map.draft_of(layer.layer, info.n_layers, static_cast<Index>(draft_layers.size()));
    layer.draft_layer = draft_layers[static_cast<std::size_t>(draft_slot)];
    head_mean_rows(verifier, layer.layer, out.row_pos, loop, ver_rows.view());
    if (loaded != layer.draft_layer)
      head_mean_rows(draft, layer.draft_layer, out.row_pos, loop, draft_rows.view());
    loaded = layer.draft_layer;
    std::vector<RowFloor> floors(out.row_pos.size(), RowFloor{kNan, kNan, kNan, kNan});
    pool.parallel_for(n_rows, [&](Index r, int) {
      if (!has_draft_row[static_cast<std::size_t>(r)]) return;
      const auto n_keys = static_cast<std::size_t>(out.row_pos[static_cast<std::size_t>(r)] + 1);
      floors[static_cast<std::size_t>(r)] =
          compare(ver_rows.view().row(r).first(n_keys), draft_rows.view().row(r).first(n_keys), p);
    });
    for (std::size_t r = 0; r < floors.size(); ++r) {
      layer.kl.push_back(floors[r].kl);
      layer.floor.push_back(floors[r].floor);
      layer.tv_floor.push_back(floors[r].tv_floor);
      layer.nucleus_mass.push_back(floors[r].nucleus_mass);
      if (!has_draft_row[r]) continue;
      const double least = std::min(floors[r].nucleus_mass, layer.specattn_mass[r]);
      if (least < floors[r].floor - kFloorSlack) ++layer.violations;
    }
  }
  return out;
}

}  // namespace kvscope
