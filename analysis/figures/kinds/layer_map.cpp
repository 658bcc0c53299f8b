// The divergence between the layers of a verifier and its draft, with the monotone map boxed:
// SpecAttn's figure 2.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/figures/maps.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

plot::Figure make_layer_map(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const std::string metric = input.options.metric.empty() ? "kl" : input.options.metric;
  constexpr const char* kLabels[] = {"KL divergence (nats)", "KL of smoothed rows (nats)",
                                     "Total variation distance", "Floor on the verifier's mass"};
  const char* label = kLabels[figures::metric_slot(
      metric, {"kl", "kl_smoothed", "total_variation", "pinsker_floor"})];
  const figures::ArrayData values(result, metric);
  const auto draft = result.axis(metric, 0);
  const auto verifier = result.axis(metric, 1);
  const auto monotone = result.read("monotone_map");
  const auto argmax = result.read("argmax_map");

  if (monotone.size() != verifier.size() || argmax.size() != verifier.size()) {
    throw FormatError("{}: maps of {} and {} entries for {} verifier layers", result.name(),
                      monotone.size(), argmax.size(), verifier.size());
  }

  plot::Panel panel =
      figures::head_panel(draft, verifier, values.values, {.axis = {.label = label}});
  panel.x.label = "Verifier layer";
  panel.y.label = "Draft layer";
  panel.legend = plot::LegendPlace::above;
  std::get<plot::HeatMap>(panel.marks[0]).print_values = true;

  plot::Boxes boxes{.label = "monotone map"};
  plot::Scatter least{.label = "least KL divergence of its column",
                      .tone = {plot::Role::highlight, 0},
                      .size = 0.8};
  for (std::size_t j = 0; j < verifier.size(); ++j) {
    const double x = static_cast<double>(j);
    const auto row_of = [&](double layer) {
      return static_cast<double>(std::ranges::find(draft, layer) - draft.begin());
    };
    if (monotone[j] >= 0.0) {
      boxes.x.push_back({x, x + 1.0});
      boxes.y.push_back({row_of(monotone[j]), row_of(monotone[j]) + 1.0});
    }
    if (argmax[j] != monotone[j]) least.add(x + 0.5, row_of(argmax[j]) + 0.12);
  }
  panel.marks.emplace_back(std::move(boxes));
  if (!least.x.empty()) panel.marks.emplace_back(std::move(least));

  plot::Figure figure;
  figure.panels.push_back(std::move(panel));
  if (const Json totals = totals_of(result.summary()); !totals.empty()) {
    figure.caption.push_back(fmt::format(
        "{}, verifier to draft: means over n = {} query rows of attention averaged over "
        "heads. Boxed: the non-decreasing map "
        "of least total KL ({:.3f} nats; {:.3f} without the order).",
        label, totals.value("rows", 0), totals.value("monotone_cost", 0.0),
        totals.value("argmax_cost", 0.0)));
  }
  const bool has_dense = std::ranges::any_of(monotone, [](double m) { return m < 0; });
  if (has_dense) figure.caption.emplace_back("Columns without a box: layers that stay dense.");
  return figure;
}

}  // namespace

FigureKind figure_layer_map() {
  return {
      .name = "layer-map",
      .shows =
          "divergence between draft and verifier layers, the monotone map boxed (SpecAttn, "
          "figure 2)",
      .needs = "a layer map",
      .command = "kvscope analyze layer-map verifier.h5 draft.h5 --out map.h5",
      .kinds = {"layer-map"},
      .options = {"metric"},
      .make = make_layer_map,
  };
}

}  // namespace kvscope
