#include "analysis/figures/sweep_curves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "analysis/figures/beyond_oracle.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/figures/sweep_cells.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/nan.hpp"

namespace kvscope::figures {

namespace {

constexpr std::string_view kOfRows = "the 95% intervals that the rows record";
constexpr std::string_view kPairedWithFull =
    "95% intervals of the difference to full attention, on the same tokens";
constexpr std::string_view kPairedHeads =
    "95% intervals of the mean difference over query heads, paired (Student)";

constexpr SweepMetric kMetrics[] = {
    {"mass_mean", "mass", "Attention mass kept", true},
    {"mass_p05", "mass_p05", "Attention mass kept, 5th percentile of rows", true},
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
    {"relative_increase", "relative_increase", "Increase of perplexity", false, kPairedWithFull,
     true, true},
    {"perplexity", "perplexity", "Perplexity", false, kOfRows},
    {"accuracy", "accuracy", "Accuracy", true, kOfRows},
    {"acceptance_length", "acceptance_length", "Accepted tokens per pass", false, kOfRows},
    {"mass_difference", "mass_difference", "Attention mass, difference", false, kPairedHeads, true},
    {"recall10_difference", "recall10_difference", "Top-10 recall, difference", false, kPairedHeads,
     true},
    {"output_error_rel_difference", "output_error_rel_difference",
     "Relative output error, difference", false, kPairedHeads, true},
};

/// `whose`: "query head", or "layer" where rows are of whole layers.
plot::Axis axis_of(Along along, const std::string& kind, const std::vector<double>& budgets,
                   std::string_view whose) {
  using plot::ScaleKind;
  using plot::TickFormat;
  if (along == Along::bytes)
    return {.label = fmt::format("Bytes per {} and call", whose),
            .scale = ScaleKind::log2,
            .format = TickFormat::bytes};
  if (along == Along::flops)
    return {.label = fmt::format("FLOPs per {} and call", whose), .scale = ScaleKind::log10};
  if (along == Along::keys)
    return {.label = "Keys kept per query (measured)",
            .scale = ScaleKind::log2,
            .format = TickFormat::tokens};
  const bool is_count = kind == "tokens" || kind == "pages";
  return {.label = kind == "ratio"   ? "Budget (share of the past keys)"
                   : kind == "p"     ? "Budget (share $p$ of the attention)"
                   : kind == "pages" ? "Budget (pages)"
                                     : "Budget (tokens)",
          .scale = is_count ? ScaleKind::log2 : ScaleKind::linear,
          .ticks = ticks_at(budgets, is_count ? TickFormat::tokens : TickFormat::number)};
}

/// Why a method may lie beyond the oracle.
std::string_view what_an_oracle_bounds(Along along) {
  if (along == Along::keys)
    return "The oracle keeps the keys with the largest weights, as many in each row: the most mass "
           "that so many keys in every row can hold. Methods that give some rows and heads more "
           "keys than others can lie beyond it at the same mean, and so can errors, which it does "
           "not minimise.";
  if (along == Along::bytes || along == Along::flops)
    return "The oracle reads and scores every key to find those with the largest weights; methods "
           "that choose by less load more keys for the same cost, and can hold more attention.";
  return "The oracle keeps the budget's number of keys, those with the largest weights of each "
         "row: the most mass that so many keys can hold. Methods that keep more keys at the same "
         "nominal budget can lie beyond it, and so can errors of methods that add to the output.";
}

/// One method's means along the axis, with their bands, and a row of each.
plot::Line curve_of(const std::multimap<double, std::pair<Summary, std::size_t>>& points,
                    BandKind band) {
  plot::Line line;
  bool has_width = false;
  for (const auto& [x, point] : points) {
    const auto& [s, row] = point;
    line.of.push_back(row);
    if (band == BandKind::none) {
      line.add(x, s.middle);
      continue;
    }
    line.add(x, s.middle, {s.low, s.high});
    has_width = has_width || s.high > s.low;
  }
  if (!has_width) {  // dense attention keeps everything; or nothing was recorded
    line.low.clear();
    line.high.clear();
  }
  return line;
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

bool contains(const std::vector<Index>& numbers, double number) {
  return std::ranges::find(numbers, static_cast<Index>(number)) != numbers.end();
}

/// Codes of a text column whose words were asked for: all if none were.
std::vector<bool> wanted_codes(const TextColumn& column, const std::vector<std::string>& words,
                               std::string_view option) {
  std::vector<bool> wanted;
  for (const std::string& category : column.categories)
    wanted.push_back(words.empty() || contains(words, category));
  for (const std::string& word : words) {
    if (contains(column.categories, word)) continue;
    throw ConfigError("{}: there is no {} in this table; it has {}", option, quote(word),
                      some_of(column.categories));
  }
  return wanted;
}

/// The budget kind of most rows of the wanted methods: ties go to the first.
std::string usual_budget_kind(const TextColumn& kinds, const TextColumn& selectors,
                              const std::vector<bool>& wanted) {
  std::vector<std::size_t> count(kinds.categories.size(), 0);
  for (std::size_t r = 0; r < kinds.codes.size(); ++r) {
    if (wanted[static_cast<std::size_t>(selectors.codes[r])])
      ++count[static_cast<std::size_t>(kinds.codes[r])];
  }
  std::string best = "none";
  std::size_t most = 0;
  for (std::size_t c = 0; c < count.size(); ++c) {
    if (kinds.categories[c] == "none" || count[c] <= most) continue;
    most = count[c];
    best = kinds.categories[c];
  }
  return best;
}

void require_known(const std::vector<Index>& wanted, const std::vector<double>& there,
                   std::string_view option, const std::string& where) {
  for (const Index number : wanted) {
    if (std::ranges::find(there, static_cast<double>(number)) == there.end())
      throw ConfigError("{}: there is no {} in {}", option, number, where);
  }
}

/// The column of phases; one without a name where the table has none.
TextColumn phase_column(const Table& table) {
  if (table.has_text("phase") || table.has("layer")) return table.text("phase");
  return {{""}, std::vector<std::int32_t>(table.n_rows(), 0)};
}

}  // namespace

std::vector<double> numbers_or(const Table& table, std::string_view column, double fallback) {
  if (!table.has(column) && !table.has_text(column))
    return std::vector<double>(table.n_rows(), fallback);
  const auto numbers = table.numbers(column);
  return {numbers.begin(), numbers.end()};
}

const SweepMetric& sweep_metric(std::string_view option) {
  std::vector<std::string> names;
  for (const SweepMetric& metric : kMetrics) {
    if (metric.column == option) return metric;
    names.emplace_back(metric.option);
  }
  return kMetrics[metric_slot(std::string(option), names)];
}

SweepSelection select_sweep_rows(const Table& table, const FigureOptions& options,
                                 DenseLayers dense_layers, BudgetKinds budget_kinds,
                                 RowsOf rows_of) {
  const TextColumn& selectors = table.text("selector");
  const TextColumn phases = phase_column(table);
  const TextColumn& kinds = table.text("budget_kind");
  const auto layer = numbers_or(table, "layer", kNan);
  const auto head = numbers_or(table, "q_head", kNan);
  const auto dense = numbers_or(table, "dense", 0.0);
  const auto budget = numbers_or(table, "budget", kNan);
  const auto window = numbers_or(table, "window", 0.0);
  const bool has_heads = rows_of == RowsOf::heads &&
                         std::ranges::any_of(head, [](double h) { return !std::isnan(h); });
  const auto layers = parse_numbers(options.layers, "layers");
  const auto heads = parse_numbers(options.heads, "heads");
  require_known(layers, layer, "layers", table.name());
  require_known(heads, head, "heads", table.name());
  const auto by_selector = wanted_codes(selectors, parse_words(options.selector), "selector");
  const std::string phase =
      options.phase.empty() && table.n_rows() > 0 ? phases.at(0) : options.phase;
  const auto by_phase = wanted_codes(phases, {phase}, "phase");

  SweepSelection selection;
  selection.budget_kind = usual_budget_kind(kinds, selectors, by_selector);
  std::set<std::string> other_kinds;
  const TableColumn* const traces = table.find("trace");
  const auto trace_of = [&](std::size_t r) {
    return traces == nullptr ? std::string() : traces->cell(r);
  };
  // A budget beyond the context keeps everything too: a layer is one that the method leaves dense
  // only if no budget makes it sparse. (In a row of means over layers, dense is a share.)
  std::set<std::tuple<std::string, std::int32_t, double>> made_sparse;  // trace, selector, layer
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    if (dense[r] != 1.0) made_sparse.insert({trace_of(r), selectors.codes[r], layer[r]});
  }
  const auto stays_dense = [&](std::size_t r) {
    return dense[r] == 1.0 && selectors.at(r) != "full" &&
           !made_sparse.contains({trace_of(r), selectors.codes[r], layer[r]});
  };
  // What rows of methods have in common, or not: a layer of a recording; of closed loops a text,
  // length, ...
  const bool has_layers = table.has("layer");
  const auto place_of = [&](std::size_t r) {
    return has_layers ? fmt::format("{} {}", trace_of(r), layer[r]) : words_of_place(table, r);
  };
  const auto head_of = [&](std::size_t r) { return fmt::format("{} {}", place_of(r), head[r]); };
  std::vector<std::string> shown;
  for (const std::string& name : parse_words(options.metric)) {
    shown.emplace_back(sweep_metric(name).column);
    table.numbers(shown.back());  // says which columns there are
  }
  const std::vector<bool> has_number = rows_with_numbers(table, shown);
  const TextColumn* const solved =
      table.has_text("dense_solves") ? &table.text("dense_solves") : nullptr;
  const bool has_solved = solved != nullptr && contains(solved->categories, "yes");
  bool has_unsolved = false;
  std::set<std::string> left_out;
  std::size_t n_dense = 0;
  std::size_t n_window = 0;
  std::vector<bool> has_rows(selectors.categories.size(), false);
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    if (std::isnan(head[r]) == has_heads ||
        !by_selector[static_cast<std::size_t>(selectors.codes[r])] ||
        !by_phase[static_cast<std::size_t>(phases.codes[r])] ||
        (!layers.empty() && !contains(layers, layer[r])) ||
        (!heads.empty() && !contains(heads, head[r]))) {
      continue;
    }
    const std::string& kind = kinds.at(r);
    if (budget_kinds == BudgetKinds::usual && kind != selection.budget_kind && kind != "none") {
      other_kinds.insert(kind);
      continue;
    }
    if (has_solved && solved->at(r) == "no") {
      has_unsolved = true;
      continue;
    }
    n_window += window[r] != 0.0;
    n_dense += stays_dense(r);
    if (stays_dense(r)) left_out.insert(place_of(r));
    if (window[r] == 0.0 && !stays_dense(r) && has_number[r]) selection.rows.push_back(r);
  }
  CommonRows common;
  if (dense_layers == DenseLayers::leave_out_for_all) {
    std::erase_if(selection.rows, [&](std::size_t r) { return left_out.contains(place_of(r)); });
    const auto method_of = [&](std::size_t r) { return selectors.at(r); };
    const auto setting_of = [&](std::size_t r) {
      return fmt::format("{} {} {}", selectors.at(r), kinds.at(r), budget[r]);
    };
    common = common_rows(selection.rows, setting_of, head_of);
    // matched budgets are of one recording each
    if (!common.has_common) {
      common = common_rows(selection.rows, method_of, head_of);
      if (common.has_common)
        selection.sentences.emplace_back(
            "No place has numbers at all budgets: points of a line are of different ones.");
    }
    selection.rows = common.rows;
  }
  if (selection.rows.empty()) {
    throw ConfigError(
        "{}: the selection is empty: no query head of a sparse layer is left (phase {}{}{})",
        table.name(), phase, options.selector.empty() ? "" : ", selector " + options.selector,
        n_dense > 0 ? "; the layers are dense for these methods" : "");
  }
  for (std::size_t r : selection.rows)
    has_rows[static_cast<std::size_t>(selectors.codes[r])] = true;
  for (std::size_t c = 0; c < has_rows.size(); ++c) {
    if (has_rows[c]) selection.selectors.push_back(selectors.categories[c]);
  }
  if (!phase.empty()) selection.sentences.push_back(fmt::format("Phase: {}.", phase));
  selection.rows_are = has_heads    ? "query heads (over layers and traces)"
                       : has_layers ? "layers (over traces)"
                                    : "rows";
  if (const std::string over = has_layers ? "" : means_over_methods(table, selection.rows);
      !over.empty())
    selection.sentences.push_back(over);
  if (n_dense > 0)
    selection.sentences.push_back(
        dense_layers == DenseLayers::leave_out_for_all
            ? "Layers that one of the methods leaves dense are left out for all."
            : "Layers that a method leaves dense are left out.");
  if (const std::string lacking = common.sentence(has_heads    ? "query head"
                                                  : has_layers ? "layer"
                                                               : "place");
      !lacking.empty())
    selection.sentences.push_back(lacking);
  if (n_window > 0) selection.sentences.push_back("Sliding-window layers are left out.");
  if (has_unsolved)
    selection.sentences.push_back("Prompts that the dense model does not answer are left out.");
  for (const std::string& word : parse_words(options.selector)) {
    if (!contains(selection.selectors, word))
      selection.sentences.push_back(fmt::format("Without rows here: {}.", method_label(word)));
  }
  if (!other_kinds.empty()) {
    selection.sentences.push_back(
        fmt::format("Budgets given as {} are left out.", fmt::join(other_kinds, ", ")));
  }
  return selection;
}

Along along_of(const FigureOptions& options, Along own) {
  if (options.x.empty()) return own;
  if (options.x == "keys") return Along::keys;
  if (options.x == "bytes") return Along::bytes;
  if (options.x == "flops") return Along::flops;
  if (options.x == "budget") return Along::budget;
  throw ConfigError(
      "x: expected keys, bytes or flops (as measured) or budget (nominal), found \"{}\"",
      options.x);
}

std::vector<double> along_values(const Table& table, Along along) {
  if (along != Along::flops) {
    const auto values = table.numbers(along == Along::budget ? "budget"
                                      : along == Along::keys ? "kept"
                                                             : "bytes");
    return {values.begin(), values.end()};
  }
  const auto score = table.numbers("score_flops");
  const auto attend = table.numbers("attend_flops");
  std::vector<double> sums(score.size());
  for (std::size_t r = 0; r < sums.size(); ++r) sums[r] = score[r] + attend[r];
  return sums;
}

namespace {

/// What the points of curves are means of, for the caption.
struct BandFacts {
  std::size_t n_min = std::numeric_limits<std::size_t>::max();
  std::size_t n_max = 0;
  std::vector<std::string> without_interval;
  std::set<std::string> means_of;  // what the bands are intervals of
  std::set<std::string_view> intervals;
  bool has_zero = false;  // a point at 0 of a logarithmic axis
};

std::vector<std::string> sentences_on(const BandFacts& facts, BandKind band,
                                      const std::string& rows_are) {
  const BandKind said = band == BandKind::ci ? BandKind::none : band;
  std::vector<std::string> sentences;
  if (facts.has_zero) sentences.emplace_back("Points at 0 of the first axis are left out.");
  if (facts.n_max > 1) sentences.push_back(band_sentence(said, facts.n_min, facts.n_max, rows_are));
  if (band != BandKind::ci) return sentences;
  for (const std::string_view interval : facts.intervals) {
    if (!interval.empty())
      sentences.push_back(
          fmt::format("Bands: {}{}.", interval, facts.n_max > 1 ? ", their ends averaged" : ""));
  }
  if (facts.intervals.contains(""))
    sentences.push_back(fmt::format(
        "Bands: the result's 95% intervals of each {}'s mean over calls (bootstrap), their ends "
        "averaged{}.",
        facts.means_of.empty() ? "layer" : fmt::format("{}", fmt::join(facts.means_of, " or ")),
        facts.without_interval.empty()
            ? std::string()
            : fmt::format("; none are recorded for {}", fmt::join(facts.without_interval, ", "))));
  return sentences;
}

/// Adds the curve of one method, and rules where it takes no budget.
void add_method(plot::Panel& panel, const std::map<BudgetKey, SweepCell>& cells,
                const std::string& selector, plot::Tone tone, Along along, BandKind band,
                BandFacts& facts) {
  const std::string label = method_label(selector);
  std::multimap<double, std::pair<Summary, std::size_t>> points;
  std::set<std::pair<double, double>> settings;  // budget and place
  for (const auto& [key, cell] : cells) {
    Summary s = summarize(cell.values, band);
    if (s.n == 0) continue;
    if (band == BandKind::ci) {
      s.low = cell.ends.low();
      s.high = cell.ends.high();
    }
    facts.n_min = std::min(facts.n_min, s.n);
    facts.n_max = std::max(facts.n_max, s.n);
    if (key.second < 0.0 &&
        (along == Along::budget || (along == Along::keys && selector == "full"))) {
      panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::horizontal, s.middle, label, tone});
      continue;
    }
    const double x = along == Along::budget ? key.second : cell.x.value();
    // A logarithmic axis has no place for an empty list.
    const bool has_place = along == Along::budget || x > 0.0;
    facts.has_zero = facts.has_zero || !has_place;
    const bool is_new = settings.insert({key.second, x}).second;  // else it has met two costs
    if (has_place && is_new) points.emplace(x, std::pair(s, cell.row));
  }
  plot::Line line = curve_of(points, band);
  line.label = label;
  line.tone = tone;
  line.markers = tone.role != plot::Role::reference || line.x.size() == 1;
  if (!line.x.empty()) panel.marks.emplace_back(std::move(line));
}

}  // namespace

plot::Figure sweep_curves(const Table& table, const FigureOptions& options, Along along,
                          std::string_view fallback, const std::vector<std::string>& coloured) {
  const bool lacks_keys = along == Along::keys && !table.has("kept") && options.x.empty();
  if (lacks_keys) along = Along::budget;
  FigureOptions shown = options;
  if (parse_words(shown.metric).empty()) shown.metric = fallback;
  const SweepSelection selection =
      select_sweep_rows(table, shown, DenseLayers::leave_out_for_all,
                        along == Along::budget ? BudgetKinds::usual : BudgetKinds::all);
  const auto budget = table.numbers("budget");
  const std::vector<std::string> names = parse_words(shown.metric);
  std::set<double> budgets;
  for (std::size_t r : selection.rows) {
    if (!std::isnan(budget[r])) budgets.insert(budget[r]);
  }
  std::vector<std::string> methods = coloured;
  for (const std::string& selector : selection.selectors) {
    if (!contains(methods, selector)) methods.push_back(selector);
  }
  const MethodTones tones(methods);
  // references first: what is compared lies over them
  std::vector<std::string> order = selection.selectors;
  std::stable_partition(order.begin(), order.end(), [&](const std::string& selector) {
    return tones.of(selector).role == plot::Role::reference;
  });

  const bool has_heads = selection.rows_are.starts_with("query head");
  plot::Figure figure = panels_in_rows(names.size(), 3);
  BandFacts facts;
  std::vector<std::string> beyond;
  for (const std::string& name : names) {
    const SweepMetric& metric = sweep_metric(name);
    SweepCells cells = collect_cells(table, selection, metric, along);
    if (options.band == BandKind::ci && interval_stem(table, metric.column).empty())
      facts.without_interval.push_back(std::string(metric.option));
    if (cells.has_layer_ends) facts.means_of.insert("layer");
    if (cells.has_head_ends) facts.means_of.insert("head");
    if (metric.interval.empty() || !interval_stem(table, metric.column).empty())
      facts.intervals.insert(metric.interval);
    plot::Panel panel{
        .x = axis_of(along, selection.budget_kind, {budgets.begin(), budgets.end()},
                     has_heads ? "query head" : "layer"),
        .y = {.label = std::string(metric.label),
              .format = metric.is_percent ? plot::TickFormat::percent : plot::TickFormat::number}};
    if (metric.has_zero)
      panel.marks.emplace_back(
          plot::Rule{plot::Rule::Kind::horizontal, 0.0, "", {plot::Role::neutral, 0}});
    for (const std::string& selector : order)
      add_method(panel, cells.of[selector], selector, tones.of(selector), along, options.band,
                 facts);
    const std::string why = why_beyond_oracle(cells, metric, along);
    if (!why.empty())
      beyond.push_back(names.size() > 1 ? fmt::format("{}: {}", metric.label, why) : why);
    figure.panels.push_back(std::move(panel));
  }
  figure.caption = selection.sentences;
  if (lacks_keys)
    figure.caption.emplace_back(
        "The table has no column kept: the first axis is the nominal budget.");
  if (along == Along::keys) {
    figure.caption.emplace_back(
        "First axis: the keys that a query attended to, as measured, with those kept in "
        "addition to the budget (--x budget: nominal budgets).");
  }
  for (std::string& sentence : sentences_on(facts, options.band, selection.rows_are))
    figure.caption.push_back(std::move(sentence));
  figure.caption.insert(figure.caption.end(), beyond.begin(), beyond.end());
  if (!beyond.empty()) figure.caption.emplace_back(what_an_oracle_bounds(along));
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
      .options = {"metric", "selector", "layers", "heads", "phase", "x", "band", "panels"},
  };
}

}  // namespace kvscope::figures
