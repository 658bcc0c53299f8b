#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "gui/model/geometry/geometry_scene.hpp"

namespace kvscope::gui {

namespace {

/// Empty where a table has no number.
std::string cell(float value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : std::string();
}

}  // namespace

std::string geometry_csv(const GeometryHead& head, std::span<const TokenId> tokens) {
  std::string csv = "layer,what,head,pos,token_id,pc1,pc2,pc3,s_q,cos_mean,norm\n";
  const auto line = [&](const char* what, Index number, std::size_t i, const CloudPoint& at,
                        const std::string& s_q, float cos, float norm) {
    const Index pos = head.pos[i];
    const std::string token = pos < static_cast<Index>(tokens.size())
                                  ? fmt::format("{}", tokens[static_cast<std::size_t>(pos)])
                                  : std::string();
    fmt::format_to(std::back_inserter(csv), "{},{},{},{},{},{},{},{},{},{},{}\n", head.layer, what,
                   number, pos, token, cell(at[0]), cell(at[1]), cell(at[2]), s_q, cell(cos),
                   cell(norm));
  };
  for (std::size_t i = 0; i < head.queries.size(); ++i) {
    line("query", head.q_head, i, head.queries[i], cell(head.s_q[i]), head.q_cos[i],
         head.q_norm[i]);
  }
  for (std::size_t i = 0; i < head.keys.size(); ++i) {
    line("key", head.kv_head, i, head.keys[i], "", head.k_cos[i], head.k_norm[i]);
  }
  return csv;
}

}  // namespace kvscope::gui
