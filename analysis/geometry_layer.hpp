// The geometry of one layer: its arrays, and how one KV group fills them.
#pragma once

#include <span>
#include <vector>

#include "analysis/geometry.hpp"

namespace kvscope {

/// What does not change from layer to layer.
struct GeometryPlan {
  GeometryPlan(const TraceInfo& info, const GeometryOptions& options);
  TraceInfo part;                // the selected layers and heads
  std::vector<Index> positions;  // shown, ascending
  std::vector<Index> bases;      // the head that each basis belongs to
  Index n_shown = 0;             // axes shown: 3, or d_head if that is less
};

/// All arrays of one layer, by slots of the selected heads; see geometry.hpp.
struct GeometryLayer {
  explicit GeometryLayer(const GeometryPlan& plan);
  Tensor<double> variance, explained;                    // [basis, component]
  Tensor<double> center;                                 // [basis, channel]
  Tensor<double> directions;                             // [basis, shown, channel]
  Tensor<float> q_projection;                            // [q_head, pos, shown]
  Tensor<float> k_projection;                            // [basis, pos, shown]
  Tensor<float> s_q, q_cos, q_norm;                      // [q_head, pos]
  Tensor<float> k_cos, k_norm;                           // [kv_head, pos]
  std::vector<double> q_clustering, means;               // [q_head]
  std::vector<double> k_clustering;                      // [kv_head]
  Tensor<double> all_q_norms, all_k_norms, all_v_norms;  // [head, n_tokens]: every position
};

/// Fills the slots of one KV head, its query heads and its bases; groups may run in parallel.
void geometry_group(const TraceSource& trace, const GeometryOptions& options,
                    const GeometryPlan& plan, Index layer, Index kv_slot, GeometryLayer& out);

}  // namespace kvscope
