#include "gui/model/queries/query_selection_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "analysis/figures/query_panels.hpp"
#include "core/base/error.hpp"

namespace kvscope::gui {

namespace {

/// Empty where a table has no number.
std::string cell(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : std::string();
}

std::string key_cell(Index key) {
  return key < 0 ? std::string() : fmt::format("{}", key);
}

bool is_drawn(double s_q, double log_weight) {
  return std::isfinite(s_q) && std::isfinite(log_weight) && std::exp(log_weight) > 0.0;
}

std::string left_out_words(const QuerySelectionSwitches& switches) {
  std::string words =
      switches.skip_sink
          ? "the sink (key 0) is left out of the largest weight, without renormalisation, and "
            "query 0 out of the points"
          : "every key counts, the sink too";
  if (switches.skip_recent > 0) {
    words += fmt::format("; the last {} visible keys do not count either", switches.skip_recent);
  }
  return words;
}

/// Measured queries that count and have both numbers.
figures::QueryPoints query_points(const QuerySelectionHead& head,
                                  const QuerySelectionSwitches& switches) {
  figures::QueryPoints points;
  const auto s_q = head.s_q(switches.span);
  for (std::size_t i = 0; i < head.pos.size(); ++i) {
    const auto x = static_cast<double>(s_q[i]);
    const auto log_weight = static_cast<double>(head.log_max_weight[i]);
    if (head.pos[i] < (switches.skip_sink ? 1 : 0) || !is_drawn(x, log_weight)) continue;
    points.s_q.push_back(x);
    points.weight.push_back(std::exp(log_weight));
    points.pos.push_back(static_cast<double>(head.pos[i]));
  }
  return points;
}

}  // namespace

QuerySelectionOptions options_of(const QuerySelectionSwitches& switches, Index chunk) {
  return {.chunk = std::max<Index>(2, chunk),
          .skip = switches.skip_sink ? 1 : 0,
          .skip_recent = switches.skip_recent};
}

plot::Figure scatter_figure(const QuerySelectionHead& head, Index layer, Index q_head,
                            const QuerySelectionSwitches& switches, const ChunkPicks* picks) {
  figures::QueryPoints points = query_points(head, switches);
  if (points.s_q.empty()) {
    throw ConfigError(
        "Layer {}, query head {}: no query has both an S_q and a largest weight; count the sink, "
        "or fewer recent keys out.",
        layer, q_head);
  }
  const std::size_t n = points.s_q.size();
  const QueryCorrelation& correlation = head.correlation(switches.span);
  plot::Panel panel = figures::query_score_panel(std::move(points), switches.span, layer, q_head,
                                                 correlation.pearson_log(), correlation.spearman());

  plot::Figure figure;
  figure.name = "query-selection";
  if (picks != nullptr && switches.picks) {
    plot::Scatter kept{
        .label = fmt::format("the {} that QuoKA keeps of {} to {}", picks->pos.size(),
                             picks->chunk.begin, picks->chunk.end - 1),
        .tone = {plot::Role::highlight, 0},
        .size = 1.3};
    for (std::size_t i = 0; i < picks->pos.size(); ++i) {
      const double s_q = picks->s_q(switches.span)[i];
      const double log_weight = picks->log_max_weight[i];
      if (is_drawn(s_q, log_weight))
        kept.add(s_q, std::exp(log_weight), static_cast<std::size_t>(picks->pos[i]));
    }
    if (!kept.x.empty()) {
      panel.legend = plot::LegendPlace::above;
      panel.marks.emplace_back(std::move(kept));
    }
  }
  figure.panels.push_back(std::move(panel));
  figure.caption.push_back(figures::query_score_caption(n, left_out_words(switches)));
  return figure;
}

plot::Figure strip_figure(const TraceInfo& info, const LayerCorrelations& known, Index layer,
                          Index q_head) {
  const std::vector<double> layers(info.layers.begin(), info.layers.end());
  const std::vector<double> heads(info.q_heads.begin(), info.q_heads.end());
  std::vector<float> values(layers.size() * heads.size(), std::numeric_limits<float>::quiet_NaN());
  for (std::size_t l = 0; l < info.layers.size(); ++l) {
    const auto found = known.find(info.layers[l]);
    if (found == known.end()) continue;
    for (std::size_t h = 0; h < std::min(heads.size(), found->second.size()); ++h) {
      values[l * heads.size() + h] = static_cast<float>(found->second[h]);
    }
  }
  plot::Figure figure;
  figure.name = "query-selection-heads";
  figure.panels.push_back(
      figures::correlation_panel(layers, heads, std::move(values), "Pearson $r$",
                                 known.size() < layers.size() ? "not computed" : "not defined",
                                 info.layer_slot(layer), info.q_slot(q_head)));
  figure.caption.push_back(fmt::format(
      "Pearson of $S_q$ and the log of the largest weight in {} of {} layers; the head shown is "
      "boxed.",
      known.size(), layers.size()));
  return figure;
}

plot::Figure joined_figure(plot::Figure scatter, const plot::Figure& strip) {
  scatter.columns = 2;
  scatter.span = plot::Span::full;
  scatter.panels.insert(scatter.panels.end(), strip.panels.begin(), strip.panels.end());
  scatter.caption.insert(scatter.caption.end(), strip.caption.begin(), strip.caption.end());
  return scatter;
}

std::vector<Coefficient> coefficients_of(const QuerySelectionHead& head, QuerySpan span) {
  const QueryCorrelation& c = head.correlation(span);
  return {
      {"Pearson r", c.pearson_log(),
       "S_q with the log of the largest weight, over all measured queries: 1 = queries that point "
       "away from the mean put a large weight on one key, 0 = no linear relation."},
      {"Spearman ρ", c.spearman(), "The same by ranks: any rising relation gives 1."},
      {"r at equal position", c.partial_pearson(),
       "Pearson with what the position explains taken out of both: later queries see more keys, so "
       "their largest weight is smaller whatever their S_q."},
      {"r inside chunks", head.within_chunk,
       "Mean over the prefill chunks of Pearson inside one chunk, with the chunk's own mean query: "
       "what the method ranks by."},
      {"r of position", head.position_weight,
       "The position itself with the log of the largest weight: how large the confounding is."},
  };
}

std::string query_selection_csv(const QuerySelectionHead& head, Index layer, Index q_head,
                                std::span<const TokenId> tokens, const ChunkPicks* picks) {
  std::string csv =
      "layer,q_head,pos,token_id,s_q_prompt,s_q_chunk,log_max_weight,max_weight,max_key,breadth,"
      "picked\n";
  const auto token = [&](Index pos) {
    return pos < static_cast<Index>(tokens.size())
               ? fmt::format("{}", tokens[static_cast<std::size_t>(pos)])
               : std::string();
  };
  const auto line = [&](Index pos, double prompt, double chunk, double log_weight, Index key,
                        double breadth, bool picked) {
    fmt::format_to(std::back_inserter(csv), "{},{},{},{},{},{},{},{},{},{},{}\n", layer, q_head,
                   pos, token(pos), cell(prompt), cell(chunk), cell(log_weight),
                   cell(std::exp(log_weight)), key_cell(key), cell(breadth), picked ? 1 : 0);
  };
  const auto is_picked = [&](Index pos) {
    return picks != nullptr && std::ranges::find(picks->pos, pos) != picks->pos.end();
  };
  for (std::size_t i = 0; i < head.pos.size(); ++i) {
    line(head.pos[i], static_cast<double>(head.prompt_s_q[i]),
         static_cast<double>(head.chunk_s_q[i]), static_cast<double>(head.log_max_weight[i]),
         head.max_key[i], static_cast<double>(head.breadth[i]), is_picked(head.pos[i]));
  }
  for (std::size_t i = 0; picks != nullptr && i < picks->pos.size(); ++i) {
    if (head.find(picks->pos[i])) continue;
    line(picks->pos[i], picks->prompt_s_q[i], picks->chunk_s_q[i], picks->log_max_weight[i],
         picks->max_key[i], std::numeric_limits<double>::quiet_NaN(), /*picked=*/true);
  }
  return csv;
}

}  // namespace kvscope::gui
