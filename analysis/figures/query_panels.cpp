#include "analysis/figures/query_panels.hpp"

#include <fmt/format.h>

#include <cmath>

#include "analysis/figures/maps.hpp"

namespace kvscope::figures {

std::string s_q_label(QuerySpan span) {
  return span == QuerySpan::prompt ? "$S_q$ = −cos($q$, $M_Q$)"
                                   : "$S_q$ = −cos($q$, mean of the chunk)";
}

plot::Panel query_score_panel(QueryPoints points, QuerySpan span, Index layer, Index q_head,
                              double r, double rho) {
  plot::Panel panel;
  // spaces that do not break: a line ends before the numbers, not inside of one
  panel.title =
      fmt::format("Layer {}, query head {}: $r$\u00A0=\u00A0{:.2f},\u00A0$ρ$\u00A0=\u00A0{:.2f}",
                  layer, q_head, r, rho);
  panel.x.label = s_q_label(span);
  panel.y.label = "Largest attention weight";
  panel.y.scale = plot::ScaleKind::log10;
  panel.aspect = 0.8;
  panel.colour = {.axis = {.label = "Query position", .format = plot::TickFormat::tokens}};
  panel.marks.emplace_back(plot::Scatter{.x = std::move(points.s_q),
                                         .y = std::move(points.weight),
                                         .value = std::move(points.pos),
                                         .size = 0.55,
                                         .opacity = 0.75,
                                         .of = std::move(points.row)});
  return panel;
}

std::string query_score_caption(std::size_t n, const std::string& left_out) {
  return fmt::format(
      "n = {} queries; {}; r and ρ: Pearson and Spearman with the log of the weight. With more "
      "visible keys the largest weight falls, so position confounds both.",
      n, left_out);
}

plot::Panel correlation_panel(std::span<const double> layers, std::span<const double> heads,
                              std::vector<float> values, std::string label,
                              std::string masked_label, Index layer_slot, Index head_slot) {
  plot::ColourAxis colour;
  colour.map = plot::ColourMap::diverging;
  colour.axis.label = std::move(label);
  colour.axis.range = plot::Range{-1.0, 1.0};
  colour.masked_label = std::move(masked_label);
  plot::Panel panel = head_panel(layers, heads, std::vector<double>(values.begin(), values.end()),
                                 std::move(colour));
  panel.title = layers.size() == 1 ? "Heads of the layer" : "All heads";
  panel.aspect = 0.8;
  const auto cell = [](Index slot) {
    return plot::Range{static_cast<double>(slot), static_cast<double>(slot) + 1.0};
  };
  panel.marks.emplace_back(plot::Boxes{.x = {cell(head_slot)}, .y = {cell(layer_slot)}});
  return panel;
}

std::string component_label(std::size_t component, double share) {
  return std::isnan(share)
             ? fmt::format("PC{}", component + 1)
             : fmt::format("PC{} ({:.0f} % of the variance)", component + 1, 100.0 * share);
}

plot::Scatter mean_point(bool is_query, double x, double y) {
  return {.label = is_query ? "mean query $M_Q$" : "mean key $M_K$",
          .tone = {is_query ? plot::Role::highlight : plot::Role::reference, 0},
          .x = {x},
          .y = {y},
          .size = is_query ? 1.9 : 1.4};
}

}  // namespace kvscope::figures
