#include "gui/model/bounds/theorem_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/fields_json.hpp"

namespace kvscope::gui {

std::string TheoremRequest::key() const {
  return fmt::format("theorem-b1/{}/{}/{}", layer, q_head, fields_to_json(options).dump());
}

std::optional<std::size_t> TheoremRows::nearest(Index query_pos) const {
  if (query.empty()) return std::nullopt;
  const auto after = std::lower_bound(query.begin(), query.end(), query_pos);
  if (after == query.begin()) return 0;
  const auto before = static_cast<std::size_t>(after - query.begin()) - 1;
  if (after == query.end() || query_pos - query[before] < *after - query_pos) return before;
  return before + 1;
}

TheoremRows theorem_rows(const TraceSource& trace, const TheoremRequest& request, JobContext& job) {
  const TracePart part(trace, {{request.layer}, {request.q_head}});
  TheoremRows rows;
  MemoryResult& result = rows.result;
  const auto summary =
      analyze_theorem_b1(part, request.options, result, job.pool, job.progress, job.stop);
  const auto& totals = summary["totals"];
  rows.trace = file_name_of(trace);
  rows.request = request;
  rows.n_tokens = part.info().n_tokens;
  rows.n_stated = totals["rows"].get<Index>();
  rows.query = result.values<std::int64_t>("row_pos");
  rows.star = result.values<std::int32_t>("star_pos");
  rows.cos = result.values<float>("cos");
  rows.weight = result.values<float>("weight");
  rows.log_odds = result.values<float>("log_odds");
  rows.norm_eff = result.values<float>("norm_eff");
  rows.cos_mean_query = result.values<float>("cos_mean_query");
  for (std::size_t b = 0; b < kTheoremBounds; ++b) {
    const auto bound = static_cast<TheoremBound>(b);
    const std::string name(enum_name(bound));
    TheoremColumn& column = rows.columns[b];
    column.bound = result.values<float>(figures::array_of(bound));
    column.violated = result.values<std::uint8_t>("violated/" + name);
    column.violations = totals[name + "_violations"].get<Index>();
    column.gap_mean = number_of(totals, name + "_mean_gap");
  }
  return rows;
}

}  // namespace kvscope::gui
