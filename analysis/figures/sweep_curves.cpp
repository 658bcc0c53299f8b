#include "analysis/figures/sweep_curves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/json_reader.hpp"

namespace kvscope::figures {

namespace {

constexpr SweepMetric kMetrics[] = {
    {"mass_mean", "mass", "Attention mass kept", true},
    {"mass_p5", "mass_p5", "Attention mass kept, 5th percentile of rows", true},
    {"mass_min", "mass_min", "Attention mass kept, worst row", true},
    {"recall10", "recall10", "Top-10 recall", true},
    {"recallk", "recallk", "Top-$k$ recall, $k$ = budget", true},
    {"output_error", "output_error", "Output error", false},
    {"output_error_rel", "output_error_rel", "Relative output error", false},
    {"output_error_raw", "output_error_raw", "Output error, not renormalised", false},
    {"jaccard", "jaccard", "Jaccard with the oracle", true},
    {"churn", "churn", "Churn between calls", false},
    {"sink_share", "sink_share", "Share of kept mass on sinks", true},
    {"forced_share", "forced_share", "Share of keys kept by rule", true},
    {"kept", "kept", "Keys kept per query row", false},
    {"union", "union", "Keys loaded per KV head", false},
};

/// Values of one method at one budget, per metric; x from the layers' rows.
struct Cell {
  std::vector<double> values;
  double x_sum = 0.0;
  std::size_t x_n = 0;
};

std::string axis_of_budget(const std::string& kind) {
  if (kind == "ratio") return "Budget (share of the past keys)";
  if (kind == "p") return "Budget (share $p$ of the attention)";
  if (kind == "pages") return "Budget (pages)";
  return "Budget (tokens)";
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool contains(const std::vector<Index>& numbers, double number) {
  return std::find(numbers.begin(), numbers.end(), static_cast<Index>(number)) != numbers.end();
}

/// Codes of a text column whose words were asked for: all if none were.
std::vector<bool> wanted_codes(const TextColumn& column, const std::vector<std::string>& words,
                               std::string_view option) {
  std::vector<bool> wanted;
  for (const std::string& category : column.categories) {
    wanted.push_back(words.empty() || contains(words, category));
  }
  for (const std::string& word : words) {
    if (contains(column.categories, word)) continue;
    throw ConfigError(fmt::format("{}: there is no {} in this table; it has {}", option, quote(word),
                                  some_of(column.categories)));
  }
  return wanted;
}

/// The budget kind of most rows: ties go to the first.
std::string usual_budget_kind(const TextColumn& kinds) {
  std::vector<std::size_t> count(kinds.categories.size(), 0);
  for (std::int32_t code : kinds.codes) ++count[static_cast<std::size_t>(code)];
  std::string best = "none";
  std::size_t most = 0;
  for (std::size_t c = 0; c < count.size(); ++c) {
    if (kinds.categories[c] == "none" || count[c] <= most) continue;
    most = count[c];
    best = kinds.categories[c];
  }
  return best;
}

}  // namespace

const SweepMetric& sweep_metric(std::string_view option) {
  std::vector<std::string_view> names;
  for (const SweepMetric& metric : kMetrics) {
    if (metric.option == option || metric.column == option) return metric;
    names.push_back(metric.option);
  }
  throw ConfigError(
      fmt::format("metric: there is no \"{}\"; choose from {}", option, fmt::join(names, ", ")));
}

SweepSelection select_sweep_rows(const Table& table, const FigureOptions& options,
                                 DenseLayers dense_layers) {
  const TextColumn& selectors = table.text("selector");
  const TextColumn& phases = table.text("phase");
  const TextColumn& kinds = table.text("budget_kind");
  const auto layer = table.numbers("layer");
  const auto head = table.numbers("q_head");
  const auto dense = table.numbers("dense");
  const auto window = table.numbers("window");
  const auto layers = parse_numbers(options.layers, "layers");
  const auto heads = parse_numbers(options.heads, "heads");
  const auto by_selector = wanted_codes(selectors, parse_words(options.selector), "selector");
  const std::string phase =
      options.phase.empty() && table.n_rows() > 0 ? phases.at(0) : options.phase;
  const auto by_phase = wanted_codes(phases, {phase}, "phase");

  SweepSelection selection;
  selection.budget_kind = usual_budget_kind(kinds);
  std::set<std::string> other_kinds;
  const auto trace_of = [&](std::size_t r) {
    return table.has_text("trace") ? table.text("trace").codes[r] : 0;
  };
  // A budget beyond the context keeps everything too: a layer is one that the method leaves dense
  // only if no budget makes it sparse.
  std::set<std::tuple<std::int32_t, std::int32_t, double>> made_sparse;  // trace, selector, layer
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    if (dense[r] == 0.0) made_sparse.insert({trace_of(r), selectors.codes[r], layer[r]});
  }
  const auto stays_dense = [&](std::size_t r) {
    return dense[r] != 0.0 && selectors.at(r) != "full" &&
           !made_sparse.contains({trace_of(r), selectors.codes[r], layer[r]});
  };
  std::set<std::pair<std::int32_t, double>> left_out;
  std::size_t n_dense = 0;
  std::size_t n_window = 0;
  std::vector<bool> has_rows(selectors.categories.size(), false);
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    if (std::isnan(head[r]) || !by_selector[static_cast<std::size_t>(selectors.codes[r])] ||
        !by_phase[static_cast<std::size_t>(phases.codes[r])] ||
        (!layers.empty() && !contains(layers, layer[r])) ||
        (!heads.empty() && !contains(heads, head[r]))) {
      continue;
    }
    const std::string& kind = kinds.at(r);
    if (kind != selection.budget_kind && kind != "none") {
      other_kinds.insert(kind);
      continue;
    }
    n_window += window[r] != 0.0;
    n_dense += stays_dense(r);
    if (stays_dense(r)) left_out.insert({trace_of(r), layer[r]});
    if (window[r] != 0.0 || stays_dense(r)) continue;
    selection.rows.push_back(r);
  }
  if (dense_layers == DenseLayers::leave_out_for_all) {
    std::erase_if(selection.rows, [&](std::size_t r) {
      return left_out.contains({trace_of(r), layer[r]});
    });
  }
  if (selection.rows.empty()) {
    throw ConfigError(fmt::format(
        "{}: the selection is empty: no query head of a sparse layer is left (phase {}{}{})",
        table.name(), phase, options.selector.empty() ? "" : ", selector " + options.selector,
        n_dense > 0 ? "; the layers are dense for these methods" : ""));
  }
  for (std::size_t r : selection.rows)
    has_rows[static_cast<std::size_t>(selectors.codes[r])] = true;
  for (std::size_t c = 0; c < has_rows.size(); ++c) {
    if (has_rows[c]) selection.selectors.push_back(selectors.categories[c]);
  }
  selection.sentences.push_back(fmt::format("Phase: {}.", phase));
  if (n_dense > 0)
    selection.sentences.push_back(
        dense_layers == DenseLayers::leave_out_for_all
            ? "Layers that one of the methods leaves dense are left out for all."
            : "Layers that a method leaves dense are left out.");
  if (n_window > 0) selection.sentences.push_back("Sliding-window layers are left out.");
  if (!other_kinds.empty()) {
    selection.sentences.push_back(
        fmt::format("Budgets given as {} are left out.", fmt::join(other_kinds, ", ")));
  }
  return selection;
}

std::string curve_label(std::string_view selector, Along along) {
  if (selector != "oracle-topk") return method_label(selector);
  return along == Along::budget ? "oracle top-$k$ (ceiling)" : "oracle top-$k$";
}

plot::Figure sweep_curves(const Table& table, const FigureOptions& options, Along along,
                          std::string_view fallback, const std::vector<std::string>& coloured) {
  const SweepSelection selection =
      select_sweep_rows(table, options, DenseLayers::leave_out_for_all);
  const TextColumn& selectors = table.text("selector");
  const auto budget = table.numbers("budget");
  std::vector<std::string> names = parse_words(options.metric);
  if (names.empty()) names = parse_words(fallback);

  plot::Figure figure;
  figure.columns = static_cast<int>(std::min<std::size_t>(names.size(), 3));
  figure.span = names.size() > 1 ? plot::Span::full : plot::Span::column;
  figure.legend = plot::LegendPlace::above;
  std::set<double> budgets;
  for (std::size_t r : selection.rows) {
    if (!std::isnan(budget[r])) budgets.insert(budget[r]);
  }
  std::size_t n_min = std::numeric_limits<std::size_t>::max();
  std::size_t n_max = 0;
  std::vector<std::string> methods = coloured;
  for (const std::string& selector : selection.selectors) {
    if (!contains(methods, selector)) methods.push_back(selector);
  }
  const MethodTones tones(methods);

  for (const std::string& name : names) {
    const SweepMetric& metric = sweep_metric(name);
    const auto values = table.numbers(metric.column);
    std::map<std::string, std::map<double, Cell>> cells;  // selector, budget (-1: takes none)
    const auto x_values = along == Along::bytes ? table.numbers("bytes") : budget;
    for (std::size_t r : selection.rows) {
      const double key = std::isnan(budget[r]) ? -1.0 : budget[r];
      Cell& cell = cells[selectors.at(r)][key];
      cell.values.push_back(values[r]);
      if (std::isnan(x_values[r])) continue;
      cell.x_sum += x_values[r];
      ++cell.x_n;
    }
    plot::Panel panel;
    panel.y.label = metric.label;
    panel.y.format = plot::TickFormat::number;
    panel.x.scale = plot::ScaleKind::log2;
    if (along == Along::bytes) {
      panel.x.label = "Bytes read per query head";
      panel.x.format = plot::TickFormat::bytes;
    } else {
      panel.x.label = axis_of_budget(selection.budget_kind);
      const bool is_count = selection.budget_kind == "tokens" || selection.budget_kind == "pages";
      panel.x.ticks = ticks_at({budgets.begin(), budgets.end()},
                               is_count ? plot::TickFormat::tokens : plot::TickFormat::number);
      if (!is_count) panel.x.scale = plot::ScaleKind::linear;
    }
    // references first: what is compared lies over them
    std::vector<std::string> order = selection.selectors;
    std::stable_partition(order.begin(), order.end(), [&](const std::string& selector) {
      return tones.of(selector).role == plot::Role::reference;
    });
    for (const std::string& selector : order) {
      plot::Line line;
      line.label = curve_label(selector, along);
      line.tone = tones.of(selector);
      std::vector<std::pair<double, Summary>> points;
      for (const auto& [key, cell] : cells[selector]) {
        const Summary s = summarize(cell.values, options.band);
        if (s.n == 0) continue;
        n_min = std::min(n_min, s.n);
        n_max = std::max(n_max, s.n);
        if (key < 0.0 && along == Along::budget) {
          plot::Rule rule{plot::Rule::Kind::horizontal, s.middle, line.label, line.tone};
          panel.marks.emplace_back(rule);
          continue;
        }
        const double x = along == Along::bytes ? cell.x_sum / static_cast<double>(cell.x_n) : key;
        points.emplace_back(x, s);
      }
      std::sort(points.begin(), points.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
      for (const auto& [x, s] : points) {
        line.x.push_back(x);
        line.y.push_back(s.middle);
        if (options.band == BandKind::none) continue;
        line.low.push_back(s.low);
        line.high.push_back(s.high);
      }
      line.markers = line.tone.role != plot::Role::reference || line.x.size() == 1;
      if (!line.x.empty()) panel.marks.emplace_back(std::move(line));
    }
    figure.panels.push_back(std::move(panel));
  }
  figure.caption = selection.sentences;
  figure.caption.push_back(
      band_sentence(options.band, n_min, n_max, "query heads (over layers and traces)"));
  return figure;
}

FigureKind sweep_kind(std::string name, std::string shows) {
  return {
      .name = std::move(name),
      .shows = std::move(shows),
      .needs = "the table of a sweep (.h5, .csv or .json)",
      .command =
          "kvscope sweep trace.h5 --selector quoka,quest,streamingllm,oracle-topk --budget "
          "64,128,256 --out sweep.h5",
      .kinds = {"sweep|table"},
      .options = {"metric", "selector", "layers", "heads", "phase", "band"},
  };
}

}  // namespace kvscope::figures
