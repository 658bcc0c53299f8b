// The geometry of one layer: its arrays, and how one KV group fills them.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "analysis/base/layer_arrays.hpp"
#include "analysis/kinds/geometry.hpp"

namespace kvscope {

/// What does not change from layer to layer.
struct GeometryPlan {
  GeometryPlan(const TraceInfo& info, const GeometryOptions& options);
  TraceInfo part;                // the selected layers and heads
  std::vector<Index> positions;  // shown, ascending
  std::vector<Index> bases;      // the head that each basis belongs to
  Index n_shown = 0;             // axes shown: 3, or d_head if that is less
};

/// Mean, 5th and 95th percentile of the norms of one layer.
inline constexpr std::array<std::string_view, 3> kNormStatistics = {"mean", "p05", "p95"};
inline constexpr std::array<std::string_view, 3> kNormNames = {"q", "k", "v"};

/// All arrays of one layer, by slots of the selected heads; see geometry.hpp.
struct GeometryLayer {
  GeometryLayer(ResultWriter& output, const GeometryPlan& plan);
  /// Summarises the norms of every position, once all groups are filled.
  void put_norm_statistics();

  LayerArrays arrays;
  Tensor<double>&variance, &explained;                  // [basis, component]
  Tensor<double>& center;                               // [basis, channel]
  Tensor<double>& directions;                           // [basis, shown, channel]
  Tensor<float>& q_projection;                          // [q_head, pos, shown]
  Tensor<float>& k_projection;                          // [basis, pos, shown]
  Tensor<float>&s_q, &q_cos, &q_norm;                   // [q_head, pos]
  Tensor<float>&k_cos, &k_norm;                         // [kv_head, pos]
  Tensor<double>& q_clustering;                         // [q_head]
  Tensor<double>& k_clustering;                         // [kv_head]
  Tensor<double>* k_clustering_before = nullptr;        // [kv_head], with keys before RoPE
  Tensor<double>* rope_share = nullptr;                 // the same
  Tensor<double>& means;                                // [q_head]
  std::array<std::array<Tensor<double>*, 3>, 3> norms;  // by kNormNames and kNormStatistics: []
  std::array<Tensor<double>, 3> all_norms;  // by kNormNames, [head, n_tokens]: every position
};

/// Fills the slots of one KV head, its query heads and its bases; groups may run in parallel.
void geometry_group(const TraceSource& trace, const GeometryOptions& options,
                    const GeometryPlan& plan, Index layer, Index kv_slot, GeometryLayer& out);

}  // namespace kvscope
