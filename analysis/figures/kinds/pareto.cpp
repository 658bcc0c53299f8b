// Predicted time against measured loss: a dot per method and budget with its interval, and the
// front through those that no faster one beats.
#include "analysis/figures/kit.hpp"

namespace kvscope {

namespace {

/// What is measured, as the label of an axis.
std::string loss_label(const std::string& metric) {
  return metric == "perplexity" ? "Increase of perplexity"
         : metric == "mass"     ? "Attention mass lost"
                                : "Accuracy lost";
}

plot::Figure make_pareto(const FigureInput& input) {
  const Table table = rows_of(*input.results[0]);
  const figures::Wanted wanted(input.options.selector);
  const auto us = table.numbers("predicted_us");
  const auto loss = table.numbers("loss");
  const auto low = table.numbers("loss_low");
  const auto high = table.numbers("loss_high");
  plot::Panel panel{
      .x = {.label = "Predicted time of attention (us)", .scale = plot::ScaleKind::log10},
      .y = {.label = loss_label(table.text("metric").at(0)), .format = plot::TickFormat::percent},
      .legend = plot::LegendPlace::above};
  std::vector<std::size_t> rows;  // of methods and of full attention
  std::vector<std::string> selectors;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    const std::string& selector = table.text("selector").at(r);
    if (selector == "full") {
      panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::vertical,
                                          us[r],
                                          figures::method_label(selector),
                                          {plot::Role::reference, 1}});
    } else if (!wanted.has(selector)) {
      continue;
    } else if (std::ranges::find(selectors, selector) == selectors.end()) {
      selectors.push_back(selector);
    }
    rows.push_back(r);
  }
  if (selectors.empty()) figures::fail_empty(table.name(), "no row of these methods");
  std::ranges::stable_sort(rows, {}, [&](std::size_t r) { return us[r]; });
  const figures::MethodTones tones(selectors);

  plot::Line front{"front", {plot::Role::neutral, 0}, {}, {}, {}, {}, false, false};
  double least = std::numeric_limits<double>::infinity();
  for (const std::size_t r : rows) {
    const std::string& word = table.text("on_front").at(r);
    if ((word != "yes" && word != "undecided") || !(loss[r] < least)) continue;
    least = loss[r];
    front.add(us[r], least);
  }
  if (front.x.size() > 1) panel.marks.emplace_back(std::move(front));
  for (const std::string& selector : selectors) {
    const plot::Tone tone = tones.of(selector);
    plot::Scatter dots{figures::method_label(selector), tone, {}, {}, {}, 1.3, 1.0};
    plot::Scatter beaten{"", tone, {}, {}, {}, 0.7, 1.0};
    plot::Line intervals{"", tone, {}, {}, {}, {}, false, false};
    for (const std::size_t r : rows) {
      if (table.text("selector").at(r) != selector) continue;
      (table.text("on_front").at(r) == "no" ? beaten : dots).add(us[r], loss[r]);
      intervals.add(us[r], loss[r], {low[r], high[r]});
      intervals.add(us[r], kNan, {kNan, kNan});  // a gap behind each: bars, no band
    }
    if (dots.x.empty()) std::swap(dots.label, beaten.label);
    panel.marks.emplace_back(std::move(intervals));
    for (plot::Scatter* marks : {&beaten, &dots}) {
      if (!marks->x.empty()) panel.marks.emplace_back(std::move(*marks));
    }
  }
  plot::Figure figure;
  figure.panels.push_back(std::move(panel));
  figure.caption.push_back(fmt::format(
      "Predicted time of attention in one layer on {} and measured loss with its 95% interval; "
      "several dots of a method are its budgets. Grey: the front, as far as the means go. Small: "
      "beaten by a method that takes no more time, whose interval lies below. Left of the dotted "
      "line: faster than full attention. Oracles and controls beat nobody.",
      table.text("hardware").at(0)));
  return figure;
}

}  // namespace

FigureKind figure_pareto() {
  return {
      .name = "pareto",
      .shows = "predicted time against measured loss: which methods no faster one beats",
      .needs = "what kvscope pareto wrote",
      .command =
          "kvscope pareto ppl.json --costs cost.json --hardware h100-sxm --metric "
          "perplexity --out pareto.json",
      .kinds = {"pareto|table"},
      .options = {"selector"},
      .make = make_pareto,
  };
}

}  // namespace kvscope
