// The geometry of one KV group as the explorer asks for it: every position up to a limit, along the
// group's principal axes.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "analysis/kinds/geometry.hpp"
#include "analysis/kinds/query_selection.hpp"
#include "gui/model/geometry/cloud.hpp"
#include "gui/model/jobs/jobs.hpp"
#include "gui/model/traces/trace_part.hpp"

namespace kvscope::gui {

/// More positions than this are sampled evenly; the fit always takes all.
inline constexpr Index kMostGeometryPoints = 200'000;

/// The options for the group that a query head belongs to: its layer, and the recorded query heads
/// of its KV head. Throws ConfigError if the trace lacks it.
GeometryOptions geometry_request(const TraceInfo& info, Index layer, Index q_head,
                                 GeometryOptions options);

/// The result of analyze_geometry for one group.
struct GeometryView {
  MemoryResult result;
  GeometryOptions options;  // as geometry_request() makes them
  Index kv_head = 0;
  Index n_prompt = 0;
  Index n_tokens = 0;
  std::size_t bytes() const { return sizeof *this + bytes_of(result); }
};

/// Throws what analyze_geometry throws.
GeometryView geometry_view(const TraceSource& trace, const GeometryOptions& options,
                           JobContext& job);

/// The largest weight in the attention rows of one head's queries, the sink left out.
struct LargestWeights {
  Index layer = 0;
  Index q_head = 0;
  std::vector<std::int64_t> pos;  // of the measured queries, ascending
  std::vector<float> log_weight;
  std::size_t bytes() const {
    return sizeof *this + pos.size() * (sizeof(std::int64_t) + sizeof(float));
  }
};
/// Throws what analyze_query_selection throws.
LargestWeights largest_weights(const TraceSource& trace, Index layer, Index q_head,
                               JobContext& job);

/// One query head of it, and its keys: arrays [pos] into the view.
struct GeometryHead {
  Index layer = 0;
  Index q_head = 0;
  Index kv_head = 0;
  Index n_tokens = 0;
  GeometryBasis basis = GeometryBasis::group;
  QuerySpan span = QuerySpan::prompt;
  std::span<const std::int64_t> pos;
  std::vector<CloudPoint> queries;  // [pos] along the first three axes; 0 beyond d_head
  std::vector<CloudPoint> keys;
  std::span<const float> s_q, q_cos, q_norm;  // NaN in s_q: a query alone in its chunk
  std::span<const float> k_cos, k_norm;
  std::array<double, 3> explained{};  // shares of the variance; NaN if all rows are equal
  CloudPoint mean_query{};            // of the shown positions in the prompt
  CloudPoint mean_key{};
  double query_clustering = 0.0;  // mean cos(q, M_Q) over all positions
  double key_clustering = 0.0;    // mean cos(k, M_K)
  double means_cosine = 0.0;      // cos(M_Q, M_K)
};

/// Throws ConfigError for a head outside the group.
GeometryHead head_of(const GeometryView& view, Index q_head);

/// Columns layer, what (query or key), head, pos, token_id, pc1, pc2, pc3, s_q, cos_mean, norm: one
/// line per query and key of the head, whatever is switched on. Keys have no s_q.
std::string geometry_csv(const GeometryHead& head, std::span<const TokenId> tokens);

}  // namespace kvscope::gui
