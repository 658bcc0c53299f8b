// Where attention lies and what a method keeps of it: query block x page of one layer.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "analysis/base/replay_pairs.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

/// What the panels of methods show.
enum class Part { kept, selected, lost };

Part part_of(const std::string& metric) {
  return static_cast<Part>(
      figures::metric_slot(metric.empty() ? "kept" : metric, {"kept", "selected", "lost"}));
}

/// Shares of keys instead of attention.
plot::ColourAxis share_colours() {
  plot::ColourAxis colour;
  colour.axis.label = "Share of visible keys selected";
  colour.axis.range = plot::Range{0.0, 1.0};
  return colour;
}

/// One matrix [block, page] as a panel; blocks run downwards, as attention maps are drawn.
plot::Panel map_panel(const std::vector<float>& values, std::span<const double> blocks,
                      std::span<const double> pages, std::string title, plot::ColourAxis colour,
                      const ResultView& result, std::string& sentence) {
  const auto end_of = [&](std::span<const double> begins, const char* size) {
    if (begins.size() > 1) return 2.0 * begins.back() - begins[begins.size() - 2];
    return begins.back() + result.info().config.value(size, 1.0);
  };
  plot::HeatMap map;
  map.n_rows = static_cast<Index>(blocks.size());
  map.n_cols = static_cast<Index>(pages.size());
  map.values = values;
  map.x = {pages.front(), end_of(pages, "page_size")};
  map.y = {blocks.front(), end_of(blocks, "query_block")};
  figures::PooledMap pooled = figures::pool_map(map, 1024);
  sentence = pooled.sentence;
  plot::Panel panel =
      figures::attention_panel(std::move(pooled.map), std::move(title), std::move(colour));
  // The last block and page may reach beyond the text.
  const double n_tokens = result.summary().value("tokens", std::max(map.x.high, map.y.high));
  panel.x.range = plot::Range{map.x.low, std::min(map.x.high, n_tokens)};
  panel.y.range = plot::Range{map.y.low, std::min(map.y.high, n_tokens)};
  panel.aspect = 0.95;
  panel.colour->masked_label = "not visible, or nothing kept";
  panel.colour->show_bar = false;
  return panel;
}

/// The place of a method, or of a method at a budget, among the labels of pairs.
std::size_t pair_of(const std::vector<std::string>& labels, const std::string& wanted,
                    const std::string& where) {
  const auto found = std::ranges::find_if(labels, [&](const std::string& label) {
    return label == wanted || selector_of_label(label) == wanted;
  });
  if (found == labels.end())
    throw ConfigError("{}: there is no {}; it holds {}", where, wanted, fmt::join(labels, ", "));
  return static_cast<std::size_t>(found - labels.begin());
}

/// What one method keeps or loses of the attention, or selects of the keys, more than another.
plot::Figure make_difference(const std::vector<float>& of_first, const std::vector<float>& of_other,
                             std::span<const double> blocks, std::span<const double> pages,
                             std::string title, Part part, const ResultView& result) {
  std::vector<float> values(of_first.size());
  float most = 0.0F;
  for (std::size_t i = 0; i < values.size(); ++i) {
    // what both leave is lost by neither more
    values[i] = part == Part::lost ? of_other[i] - of_first[i] : of_first[i] - of_other[i];
    if (!std::isnan(values[i])) most = std::max(most, std::abs(values[i]));
  }
  plot::ColourAxis colour;
  colour.map = plot::ColourMap::diverging;
  colour.axis.label = part == Part::selected ? "Share of visible keys: difference"
                      : part == Part::lost   ? "Attention lost: difference"
                                             : "Attention kept: difference";
  const double end = most > 0.0F ? static_cast<double>(most) : 1.0;
  colour.axis.range = plot::Range{-end, end};
  std::string sentence;
  plot::Figure figure;
  figure.panels.push_back(
      map_panel(values, blocks, pages, std::move(title), colour, result, sentence));
  figure.panels[0].colour->show_bar = true;
  figure.panels[0].colour->masked_label = "not visible";
  figures::set_in_rows(figure, 1, 1);
  if (!sentence.empty()) figure.caption.push_back(sentence);
  return figure;
}

/// The names of the pairs, which the summary has as objects or as names alone.
std::vector<std::string> pair_names(const ResultView& result, const figures::ArrayData& of_pairs,
                                    const figures::ArrayData& mass) {
  const auto n_pairs = static_cast<std::size_t>(of_pairs.spec.shape[1]);
  const auto& summary = result.summary();
  if (!summary.contains("pairs") || summary["pairs"].size() != n_pairs ||
      of_pairs.values.size() != mass.values.size() * n_pairs) {
    throw FormatError("{}: {} does not fit the summary's pairs", result.name(), of_pairs.spec.name);
  }
  std::vector<std::string> names;
  for (const auto& entry : summary["pairs"])
    names.push_back(entry.is_string() ? entry.get<std::string>() : entry.value("pair", ""));
  return names;
}

/// The two pairs that are compared: `selector` (else the first that is another) and `against`.
std::pair<std::size_t, std::size_t> compared(const FigureOptions& options,
                                             const std::vector<std::string>& names,
                                             const std::string& where) {
  const std::size_t other = pair_of(names, options.against, where);
  const std::size_t first = options.selector.empty() ? (other == 0 && names.size() > 1 ? 1 : 0)
                                                     : pair_of(names, options.selector, where);
  if (first == other)
    throw ConfigError("selector and against are both {}: choose another method or budget",
                      names[first]);
  return {first, other};
}

/// The attention of the layer that is asked for, else of the middle one.
struct LayerAttention {
  LayerAttention(const ResultView& result, const figures::ArrayData& mass,
                 const FigureOptions& options)
      : blocks(result.axis("map_mass", 1)), pages(result.axis("map_mass", 2)) {
    const auto layers = result.axis("map_mass", 0);
    if (layers.empty()) throw ConfigError("{}: has no layers", result.name());
    layer =
        figures::one_of(options.layers, "layers", static_cast<Index>(layers[layers.size() / 2]));
    slot = static_cast<std::size_t>(figures::slot_of(layers, layer, "layer", result.name()));
    values = part(mass, slot);
    // four decades below the largest page: what lies below is drawn as the low end
    float largest = 0.0F;
    for (float v : values) largest = std::max(largest, std::isnan(v) ? 0.0F : v);
    if (!(largest > 0.0F))
      throw ConfigError("{}: layer {} holds no attention", result.name(), layer);
    colour.axis.range =
        plot::Range{1e-4 * static_cast<double>(largest), static_cast<double>(largest)};
  }

  /// The matrix of that number.
  std::vector<float> part(const figures::ArrayData& data, std::size_t number) const {
    const auto n_cells = static_cast<std::ptrdiff_t>(blocks.size() * pages.size());
    const auto first = data.values.begin() + static_cast<std::ptrdiff_t>(number) * n_cells;
    return {first, first + n_cells};
  }

  std::vector<double> blocks;
  std::vector<double> pages;
  Index layer = 0;
  std::size_t slot = 0;
  std::vector<float> values;
  plot::ColourAxis colour = figures::log_colours("Attention per page");
};

plot::Figure make_coverage_pages(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const figures::ArrayData mass(result, "map_mass");
  const LayerAttention attention(result, mass, input.options);
  const auto& [blocks, pages, layer, slot, attended, attention_colour] = attention;
  plot::ColourAxis colour = attention_colour;
  const Part shown_part = part_of(input.options.metric);
  const std::string_view array = shown_part == Part::selected ? "map_selected" : "map_kept";

  plot::Figure figure;
  std::string sentence;
  figure.panels.push_back(
      map_panel(attended, blocks, pages, "attention", colour, result, sentence));
  std::vector<std::string> shown;
  std::size_t n_pairs = 0;
  if (result.find(array) != nullptr) {
    const figures::ArrayData kept(result, array);
    if (shown_part == Part::selected) {
      figure.panels.back().colour->show_bar = true;
      colour = share_colours();
    }
    const std::vector<std::string> names = pair_names(result, kept, mass);
    n_pairs = names.size();
    const auto of_pair = [&](std::size_t p) {
      return attention.part(kept, attention.slot * names.size() + p);
    };
    if (!input.options.against.empty()) {
      const auto [first, other] = compared(input.options, names, result.name());
      plot::Figure difference =
          make_difference(of_pair(first), of_pair(other), blocks, pages,
                          fmt::format("{} less {}", figures::method_label(names[first]),
                                      figures::method_label(names[other])),
                          shown_part, result);
      difference.caption.insert(
          difference.caption.begin(),
          fmt::format("Layer {}: mean over measured rows and heads, by page of keys.", layer));
      return difference;
    }
    std::vector<std::string> known = names;
    for (const std::string& name : names) known.emplace_back(selector_of_label(name));
    const figures::Wanted wanted(input.options.selector, known);
    const bool are_chosen = !input.options.selector.empty();
    for (std::size_t p = 0; p < names.size(); ++p) {
      const std::string& name = names[p];
      if (!wanted.has(std::string(selector_of_label(name))) && !wanted.has(name)) continue;
      if (!are_chosen && shown.size() == 3) break;
      shown.push_back(name);
      std::vector<float> values = of_pair(p);
      for (std::size_t i = 0; shown_part == Part::lost && i < values.size(); ++i)
        values[i] = attended[i] < values[i] ? 0.0F : attended[i] - values[i];
      // nothing is not little: it has no colour
      if (shown_part == Part::kept) std::replace(values.begin(), values.end(), 0.0F, kNanF);
      figure.panels.push_back(
          map_panel(values, blocks, pages, figures::method_label(name), colour, result, sentence));
    }
    if (are_chosen && shown.empty())
      throw ConfigError("selector: {} holds none of {}", result.name(), input.options.selector);
  }
  if (!input.options.against.empty())
    throw ConfigError("{}: holds no method, so none is less than another", result.name());
  figure.panels.back().colour->show_bar = true;
  figures::set_in_rows(figure, figure.panels.size(), 4);
  figure.share_y = true;
  figure.caption.push_back(fmt::format(
      "Layer {}: mean over measured rows and heads of the attention in a page of keys; panels of "
      "methods show the {}. Colours of attention end four decades below the largest page.",
      layer,
      shown_part == Part::kept   ? "part that the method keeps"
      : shown_part == Part::lost ? "part that it loses"
                                 : "share of the visible keys that the method selects"));
  if (n_pairs > shown.size() && input.options.selector.empty())
    figure.caption.push_back(
        fmt::format("Shown: the first {} of {} methods and budgets.", shown.size(), n_pairs));
  if (!sentence.empty()) figure.caption.push_back(sentence);
  return figure;
}

}  // namespace

FigureKind figure_coverage_pages() {
  return {
      .name = "coverage-pages",
      .shows = "attention by query block and page in one layer, and what methods keep of it",
      .needs = "a coverage analysis",
      .command =
          "kvscope analyze coverage trace.h5 --selector quoka,quest --budget 128 --out coverage.h5",
      .kinds = {"coverage"},
      .options = {"metric", "layers", "selector", "against"},
      .make = make_coverage_pages,
  };
}

}  // namespace kvscope
