#include "gui/model/tokens/token_view.hpp"

#include <fmt/format.h>

#include "core/base/csv_text.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/figures/selection.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::gui {

namespace {

constexpr double kDecades = 4.0;
constexpr Index kMostPoints = 600;  // of a curve that is as wide as a column

std::string method_words(const KeptKeys& kept) {
  const std::string label = figures::method_label(kept.method);
  return kept.budget.empty() ? label : fmt::format("{}, {}", label, kept.budget);
}

/// Largest weight of each bin of neighbouring keys; every key of its own where there are few.
plot::Line weight_line(const AttentionRow& row, Index first, double lowest) {
  plot::Line line{.label = "attention weight", .tone = {plot::Role::neutral, 0}, .markers = false};
  const Index n = row.visible.end - first;
  const Index width = std::max<Index>(1, (n + kMostPoints - 1) / kMostPoints);
  for (Index begin = first; begin < row.visible.end; begin += width) {
    Index best = begin;
    for (Index pos = begin; pos < std::min(begin + width, row.visible.end); ++pos) {
      if (row.prob(pos) > row.prob(best)) best = pos;
    }
    line.add(static_cast<double>(best), std::max(row.prob(best), lowest));
  }
  return line;
}

/// The kept keys that are shown: the largest one of each bin of the curve's width.
plot::Scatter kept_points(const AttentionRow& row, const KeptKeys& kept, Index first, double lowest,
                          plot::Tone tone) {
  plot::Scatter points{.label = "kept by " + method_words(kept), .tone = tone, .size = 0.8};
  const Index n = row.visible.end - first;
  const Index width = std::max<Index>(1, (n + kMostPoints - 1) / kMostPoints);
  Index bin = -1;
  for (Index key = first; key < row.visible.end; ++key) {
    if (!kept.uses.keeps(key)) continue;
    const double weight = std::max(row.prob(key), lowest);
    if ((key - first) / width == bin && !points.y.empty()) {
      if (weight <= points.y.back()) continue;
      points.x.back() = static_cast<double>(key);
      points.y.back() = weight;
      continue;
    }
    bin = (key - first) / width;
    points.add(static_cast<double>(key), weight);
  }
  return points;
}

/// The lowest weight that a logarithmic axis shows.
double floor_of(double largest) {
  return largest * std::pow(10.0, -kDecades);
}

}  // namespace

// ---- weights ----

Index RankedRow::rank_of(Index pos) const {
  if (pos < row.visible.begin || pos >= row.visible.end) return 0;
  return rank[static_cast<std::size_t>(pos - row.visible.begin)];
}

RankedRow rank_keys(Index layer, Index q_head, AttentionRow row) {
  RankedRow ranked{.layer = layer, .q_head = q_head, .row = std::move(row)};
  const auto& probs = ranked.row.probs;
  std::vector<std::int32_t> order(probs.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    return probs[static_cast<std::size_t>(a)] > probs[static_cast<std::size_t>(b)];
  });
  ranked.rank.resize(probs.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    ranked.rank[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i) + 1;
  }
  const TokenRange visible = ranked.row.visible;
  for (Index pos = visible.begin; pos < visible.end; ++pos) {
    const double weight = ranked.row.prob(pos);
    ranked.largest = std::max(ranked.largest, weight);
    if (pos >= kSinkTokens) ranked.largest_but_sinks = std::max(ranked.largest_but_sinks, weight);
  }
  return ranked;
}

Shading::Shading(const RankedRow& row, WeightScale scale, bool mask_sinks)
    : row_(&row),
      scale_(scale),
      mask_sinks_(mask_sinks),
      largest_(mask_sinks ? row.largest_but_sinks : row.largest) {}

double Shading::shade(Index pos) const {
  if (losses_ != nullptr) return largest_ > 0.0 ? losses_->at(pos).value_or(0.0) / largest_ : 0.0;
  if (row_ == nullptr || is_masked(pos)) return 0.0;
  const Index rank = row_->rank_of(pos);
  if (rank == 0 || largest_ <= 0.0) return 0.0;
  const double weight = row_->row.prob(pos);
  switch (scale_) {
    case WeightScale::linear:
      return std::clamp(weight / largest_, 0.0, 1.0);
    case WeightScale::percentile: {
      const auto n = static_cast<double>(row_->rank.size());
      return n > 1.0 ? 1.0 - (static_cast<double>(rank) - 1.0) / (n - 1.0) : 1.0;
    }
    case WeightScale::log:
      break;
  }
  if (weight <= 0.0) return 0.0;
  return std::clamp(1.0 + std::log10(weight / largest_) / kDecades, 0.0, 1.0);
}

// ---- kept keys ----

std::pair<Index, double> KeyUses::kept_of(const AttentionRow& row) const {
  std::pair<Index, double> kept{0, 0.0};
  for (Index key = row.visible.begin; key < row.visible.end; ++key) {
    if (!keeps(key)) continue;
    ++kept.first;
    kept.second += row.prob(key);
  }
  return kept;
}

std::string budget_words(const std::optional<Budget>& budget) {
  if (!budget) return {};
  return budget->kind == Budget::Kind::mass ? fmt::format("p = {}", budget->value)
                                            : fmt::format("{} tokens", budget->value);
}

std::string kept_words(const KeptKeys& kept, const AttentionRow& row) {
  const std::string label = figures::method_label(kept.method);
  if (!kept.is_known()) return fmt::format("{}: this query was not measured", label);
  if (kept.is_dense) return fmt::format("{} leaves this layer dense", label);
  const auto [n_kept, mass] = kept.uses.kept_of(row);
  return fmt::format("{} keeps {} of {} keys, {} of the attention", label, n_kept,
                     row.visible.size(), percent_text(mass));
}

// ---- search ----

std::optional<Index> next_match(const std::vector<std::size_t>& found, Index from, bool forward) {
  if (found.empty()) return std::nullopt;
  const auto at = static_cast<std::size_t>(std::max<Index>(0, from));
  if (forward) {
    const auto next = std::ranges::upper_bound(found, at);
    return static_cast<Index>(next == found.end() ? found.front() : *next);
  }
  const auto after = std::ranges::lower_bound(found, at);
  return static_cast<Index>(after == found.begin() ? found.back() : *(after - 1));
}

std::string match_words(const std::vector<std::size_t>& found, Index at) {
  const auto place =
      std::ranges::lower_bound(found, static_cast<std::size_t>(std::max<Index>(0, at)));
  if (place == found.end() || static_cast<Index>(*place) != at) {
    return fmt::format("{}", found.size());
  }
  return fmt::format("{} of {}", place - found.begin() + 1, found.size());
}

// ---- picture and table ----

plot::Figure token_figure(const TokenFigureInput& input) {
  const AttentionRow& row = input.row.row;
  const TraceInfo& info = input.document.info();
  const Shading shading(input.row, input.scale, input.mask_sinks);
  const Index first = input.mask_sinks
                          ? std::min(std::max(row.visible.begin, kSinkTokens), row.visible.end - 1)
                          : row.visible.begin;
  const bool is_log = input.scale == WeightScale::log;
  const double lowest = is_log ? floor_of(std::max(shading.largest(), 1e-30)) : 0.0;

  plot::Panel panel;
  panel.x.label = "key position";
  panel.x.whole_numbers = true;
  panel.x.range =
      plot::Range{static_cast<double>(first) - 0.5, static_cast<double>(row.visible.end) - 0.5};
  panel.y.label = "attention weight";
  panel.y.scale = is_log ? plot::ScaleKind::log10 : plot::ScaleKind::linear;
  panel.aspect = 0.35;
  panel.marks.push_back(weight_line(row, first, lowest));
  std::vector<std::string> methods;
  for (const KeptKeys& kept : input.kept) methods.push_back(kept.method);
  const figures::MethodTones tones(methods);
  for (const KeptKeys& kept : input.kept) {
    if (!kept.is_known() || kept.is_dense) continue;
    plot::Scatter points = kept_points(row, kept, first, lowest, tones.of(kept.method));
    if (!points.x.empty()) panel.marks.push_back(std::move(points));
  }

  plot::Figure figure{.name = "attention-row",
                      .title = fmt::format("Attention of position {} in layer {}, head {}",
                                           row.query, input.row.layer, input.row.q_head),
                      .legend = plot::LegendPlace::above,
                      .span = plot::Span::full};
  figure.panels.push_back(std::move(panel));
  figure.caption.push_back(fmt::format(
      "Attention weights of the query at position {} over its {} visible keys in layer {}, query "
      "head {} of {} ({}).",
      row.query, row.visible.size(), input.row.layer, input.row.q_head, info.model_name,
      input.document.name()));
  const Index n_shown = row.visible.end - first;
  if (first > row.visible.begin) {
    figure.caption.push_back(
        fmt::format("The first {} positions (sinks) are left out; they take "
                    "{} of the attention.",
                    first - row.visible.begin, [&] {
                      double mass = 0.0;
                      for (Index p = row.visible.begin; p < first; ++p) mass += row.prob(p);
                      return percent_text(mass);
                    }()));
  }
  if (n_shown > kMostPoints) {
    figure.caption.push_back(
        fmt::format("Of each {} neighbouring keys the one with the largest weight is shown.",
                    (n_shown + kMostPoints - 1) / kMostPoints));
  }
  if (is_log) {
    figure.caption.push_back(
        fmt::format("Weights below {:.1e} ({:g} decades under the largest) are drawn there.",
                    lowest, kDecades));
  }
  if (row.sink_weight > 0.0) {
    figure.caption.push_back(
        fmt::format("A learned sink takes {}.", percent_text(row.sink_weight)));
  }
  for (const KeptKeys& kept : input.kept) {
    figure.caption.push_back(
        kept_words(kept, row) +
        (kept.budget.empty() ? "." : fmt::format("; budget {}.", kept.budget)));
  }
  return figure;
}

std::string weight_words(double weight) {
  return fmt::format("{:.9g}", weight);
}

std::string token_csv(const TokenFigureInput& input) {
  const AttentionRow& row = input.row.row;
  const auto ids = input.document.source().tokens();
  std::string csv = "position,id,text,weight,rank";
  for (const KeptKeys& kept : input.kept) {
    csv += "," + csv_field("kept by " + method_words(kept));
  }
  csv += "\n";
  for (Index pos = row.visible.begin; pos < row.visible.end; ++pos) {
    csv += fmt::format("{},{},{},{},{}", pos, ids[static_cast<std::size_t>(pos)],
                       csv_field(input.document.has_text() ? input.document.token_text(pos) : ""),
                       weight_words(row.prob(pos)), input.row.rank_of(pos));
    for (const KeptKeys& kept : input.kept) {
      csv += !kept.is_known() ? "," : kept.holds(pos) ? ",1" : ",0";
    }
    csv += "\n";
  }
  return csv;
}

}  // namespace kvscope::gui
