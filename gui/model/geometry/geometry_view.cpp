#include "gui/model/geometry/geometry_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/base/csv_text.hpp"
#include "core/base/error.hpp"
#include "gui/model/geometry/geometry_scene.hpp"

namespace kvscope::gui {

namespace {

/// Row `slot` of an array [1, n_slots, n_points, n_shown] as points.
std::vector<CloudPoint> points_of(const GeometryView& view, std::string_view name, std::size_t slot,
                                  std::size_t n_points, std::size_t n_shown) {
  const auto row =
      view.result.values<float>(name).subspan(slot * n_points * n_shown, n_points * n_shown);
  std::vector<CloudPoint> points(n_points);
  for (std::size_t i = 0; i < n_points; ++i) {
    for (std::size_t c = 0; c < n_shown; ++c) points[i][c] = row[i * n_shown + c];
  }
  return points;
}

CloudPoint mean_point(std::span<const CloudPoint> points) {
  std::array<double, 3> sum{};
  for (const CloudPoint& p : points) {
    for (std::size_t c = 0; c < 3; ++c) sum[c] += static_cast<double>(p[c]);
  }
  CloudPoint mean{};
  for (std::size_t c = 0; c < 3; ++c) {
    mean[c] = static_cast<float>(sum[c] / static_cast<double>(points.size()));
  }
  return mean;
}

}  // namespace

GeometryOptions geometry_request(const TraceInfo& info, Index layer, Index q_head,
                                 GeometryOptions options) {
  info.layer_slot(layer);
  info.q_slot(q_head);
  options.selection = {{layer}, recorded_group_of(info, layer, q_head)};
  options.max_points = kMostGeometryPoints;
  return options;
}

GeometryView geometry_view(const TraceSource& trace, const GeometryOptions& options,
                           JobContext& job) {
  const auto& [layers, q_heads] = options.selection;
  const TraceInfo& info = trace.info();
  GeometryView view{.options = options,
                    .kv_head = q_heads.front() / info.group(layers.front()),
                    .n_prompt = info.n_prompt,
                    .n_tokens = info.n_tokens};
  analyze_geometry(trace, options, {view.result, job.pool, job.progress, job.stop});
  return view;
}

GeometryHead head_of(const GeometryView& view, Index q_head) {
  const auto& [layers, q_heads] = view.options.selection;
  const auto found = std::ranges::find(q_heads, q_head);
  if (found == q_heads.end()) {
    throw ConfigError("query head {} does not read KV head {} of layer {}", q_head, view.kv_head,
                      layers.front());
  }
  const auto h = static_cast<std::size_t>(found - q_heads.begin());
  const std::size_t basis = view.options.basis == GeometryBasis::head ? h : 0;
  const MemoryResult& result = view.result;
  GeometryHead head{.layer = layers.front(),
                    .q_head = q_head,
                    .kv_head = view.kv_head,
                    .n_tokens = view.n_tokens,
                    .basis = view.options.basis,
                    .span = view.options.span,
                    .pos = result.values<std::int64_t>("pos")};
  const std::size_t n = head.pos.size();
  const std::size_t n_shown = result.values<std::int64_t>("shown").size();
  const auto row = [&](std::string_view name, std::size_t slot) {
    return result.values<float>(name).subspan(slot * n, n);
  };
  head.queries = points_of(view, "queries/projection", h, n, n_shown);
  head.keys = points_of(view, "keys/projection", basis, n, n_shown);
  head.s_q = row("queries/s_q", h);
  head.q_cos = row("queries/cos_mean", h);
  head.q_norm = row("queries/norm", h);
  head.k_cos = row("keys/cos_mean", 0);
  head.k_norm = row("keys/norm", 0);
  const auto explained = result.values<double>("explained");
  const std::size_t d = result.values<std::int64_t>("component").size();
  for (std::size_t c = 0; c < n_shown; ++c) head.explained[c] = explained[basis * d + c];

  // Projections are linear: their mean is the projection of the mean.
  const auto in_prompt = static_cast<std::size_t>(
      std::ranges::lower_bound(head.pos, std::max<Index>(1, view.n_prompt)) - head.pos.begin());
  const std::size_t n_mean = std::max<std::size_t>(1, in_prompt);
  head.mean_query = mean_point(std::span(head.queries).first(std::min(n, n_mean)));
  head.mean_key = mean_point(std::span(head.keys).first(std::min(n, n_mean)));
  head.query_clustering = result.values<double>("clustering/queries")[h];
  head.key_clustering = result.values<double>("clustering/keys")[0];
  head.means_cosine = result.values<double>("clustering/means")[h];
  return head;
}

std::string geometry_csv(const GeometryHead& head, std::span<const TokenId> tokens) {
  std::string csv = "layer,what,head,pos,token_id,pc1,pc2,pc3,s_q,cos_mean,norm\n";
  const auto line = [&](const char* what, Index number, std::size_t i, const CloudPoint& at,
                        const std::string& s_q, float cos, float norm) {
    const Index pos = head.pos[i];
    const std::string token = pos < static_cast<Index>(tokens.size())
                                  ? fmt::format("{}", tokens[static_cast<std::size_t>(pos)])
                                  : std::string();
    fmt::format_to(std::back_inserter(csv), "{},{},{},{},{},{},{},{},{},{},{}\n", head.layer, what,
                   number, pos, token, csv_number(at[0]), csv_number(at[1]), csv_number(at[2]), s_q,
                   csv_number(cos), csv_number(norm));
  };
  for (std::size_t i = 0; i < head.queries.size(); ++i) {
    line("query", head.q_head, i, head.queries[i], csv_number(head.s_q[i]), head.q_cos[i],
         head.q_norm[i]);
  }
  for (std::size_t i = 0; i < head.keys.size(); ++i) {
    line("key", head.kv_head, i, head.keys[i], "", head.k_cos[i], head.k_norm[i]);
  }
  return csv;
}

LargestWeights largest_weights(const TraceSource& trace, Index layer, Index q_head,
                               JobContext& job) {
  MemoryResult result;
  QuerySelectionOptions options;
  options.selection = {{layer}, {q_head}};
  analyze_query_selection(trace, options, {result, job.pool, job.progress, job.stop});
  const auto pos = result.values<std::int64_t>("pos");
  const auto weights = result.values<float>("log_max_weight");
  return {layer, q_head, {pos.begin(), pos.end()}, {weights.begin(), weights.end()}};
}

}  // namespace kvscope::gui
