// Predicted speed: speedup of attention over dense by context, and where the time goes at the
// longest context. A line per method, budget and card of a report of kvscope cost; a row of panels
// per batch, since what one sequence costs cannot be seen beside what sixteen do.
#include "analysis/cost/predict.hpp"
#include "analysis/figures/kit.hpp"

namespace kvscope {

namespace {

/// Rows of one method on one card, by context.
struct CostLine {
  std::string label;
  std::string look;  // of figures::MethodTones: the method, and what tells its lines apart
  std::map<double, std::size_t> rows;
};

using CostLines = std::vector<CostLine>;

/// Lines by batch; every batch has all lines, in one order.
std::map<double, CostLines> cost_lines(const Table& table, const FigureOptions& options) {
  const figures::Wanted wanted(options.selector);
  const auto budgets = table.numbers("budget");
  const auto batches = table.numbers("batch");
  const auto contexts = table.numbers("context");
  std::set<std::string> cards;
  for (std::size_t r = 0; r < table.n_rows(); ++r) cards.insert(table.text("hardware").at(r));
  std::map<std::string, std::set<double>> budgets_of;  // a method with one budget does not name it
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    if (std::isfinite(budgets[r])) budgets_of[table.text("selector").at(r)].insert(budgets[r]);
  }
  std::map<double, CostLines> lines;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    const std::string& selector = table.text("selector").at(r);
    if (!wanted.has(selector)) continue;
    std::string label = figures::method_label(selector);
    const std::size_t n_method = label.size();
    if (budgets_of[selector].size() > 1) label += fmt::format(" {:g}", budgets[r]);
    if (cards.size() > 1) label += ", " + plot::verbatim(table.text("hardware").at(r));
    CostLines& of_batch = lines[batches[r]];
    auto line =
        std::ranges::find_if(of_batch, [&](const CostLine& one) { return one.label == label; });
    if (line == of_batch.end())
      line = of_batch.insert(line, {label, selector + ":" + label.substr(n_method), {}});
    line->rows[contexts[r]] = r;
  }
  if (lines.empty()) figures::fail_empty(table.name(), "no row of these methods");
  return lines;
}

plot::Panel speedup_panel(const Table& table, const CostLines& lines) {
  plot::Panel panel{
      .x = figures::length_axis(),
      .y = {.label = "Predicted speedup of attention", .scale = plot::ScaleKind::log2},
      .aspect = 0.8};
  const auto speedups = table.numbers("predicted_speedup");
  std::vector<std::string> looks;
  for (const CostLine& line : lines) looks.push_back(line.look);
  const figures::MethodTones tones(looks);
  for (const CostLine& one : lines) {
    plot::Line line{one.label, tones.of(one.look), {}, {}, {}, {}};
    for (const auto& [context, row] : one.rows) {
      line.x.push_back(context);
      line.y.push_back(speedups[row]);
    }
    panel.marks.emplace_back(std::move(line));
  }
  panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::horizontal, 1.0, ""});
  return panel;
}

/// Stages one after another, a bar per line.
plot::Panel stages_panel(const Table& table, const CostLines& lines) {
  plot::Panel panel{.x = {.label = "Microseconds of a layer"}};
  std::vector<std::string> labels;
  for (const CostLine& line : lines) labels.push_back(line.label);
  panel.y = figures::names_axis(labels);
  panel.aspect = 0.8;
  double largest = 0.0;
  plot::Scatter totals{.label = "total", .tone = {plot::Role::reference, 0}};
  std::set<std::size_t> named;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t row = lines[i].rows.rbegin()->second;
    const auto y = static_cast<double>(i);
    double at = 0.0;
    for (std::size_t s = 0; s < kCostStages.size(); ++s) {
      const double width = table.numbers(std::string(kCostStages[s]) + "_us")[row];
      if (!(width > 0.0)) continue;
      plot::Area bar;
      bar.opacity = 0.7;
      if (named.insert(s).second)
        bar.label = kCostStages[s] == "topk" ? "top-$k$" : std::string(kCostStages[s]);
      bar.tone = {plot::Role::series, static_cast<int>(s)};
      bar.x = {at, at + width};
      bar.low = {y - 0.35, y - 0.35};
      bar.high = {y + 0.35, y + 0.35};
      panel.marks.emplace_back(std::move(bar));
      at += width;
    }
    totals.x.push_back(at);
    totals.y.push_back(y);
    largest = std::max(largest, at);
  }
  panel.marks.emplace_back(std::move(totals));
  panel.x.range = plot::Range{0.0, largest > 0.0 ? 1.05 * largest : 1.0};
  return panel;
}

plot::Figure make_cost(const FigureInput& input) {
  const Table table = rows_of(*input.results[0]);
  const std::map<double, CostLines> all = cost_lines(table, input.options);
  plot::Figure figure;
  double longest = 0.0;
  for (const auto& [batch, lines] : all) {
    for (plot::Panel panel : {speedup_panel(table, lines), stages_panel(table, lines)}) {
      if (all.size() > 1) {
        panel.title = fmt::format("batch {:g}", batch);
        panel.aspect = 0.6;
      }
      // one legend of the methods and one of the stages
      if (figure.panels.size() < 2) panel.legend = plot::LegendPlace::above;
      figure.panels.push_back(std::move(panel));
    }
    for (const CostLine& line : lines) longest = std::max(longest, line.rows.rbegin()->first);
  }
  figure.columns = 2;
  figure.span = plot::Span::full;
  figure.caption.emplace_back(fmt::format(
      "Predicted, not measured: time of attention in one layer, mean over the measured layers; "
      "stages at the longest context of each line ({:g} tokens at most).",
      longest));
  const auto scaled = table.numbers("extrapolated");
  if (std::ranges::any_of(scaled, [](double x) { return x == 1.0; })) {
    figure.caption.emplace_back(
        "The recording's own length is measured; at others a budget in "
        "tokens stays and everything else grows with the context.");
  }
  return figure;
}

}  // namespace

FigureKind figure_cost() {
  return {
      .name = "cost",
      .shows = "predicted speedup of attention by context, and where its time goes",
      .needs = "a report of kvscope cost",
      .command =
          "kvscope cost trace.h5 --selector quest --budget 256 --hardware h100-sxm "
          "--context 32768 --out cost.json",
      .kinds = {"cost"},
      .options = {"selector"},
      .make = make_cost,
  };
}

}  // namespace kvscope
