// The attention map of one head, and beside it what QuoKA's selected queries made it keep: QuoKA's
// figure 2a.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

plot::Panel map_panel(plot::HeatMap map, std::string title, plot::Range range) {
  plot::ColourAxis colour = figures::log_colours("Attention weight");
  colour.axis.range = range;
  plot::Panel panel = figures::attention_panel(std::move(map), std::move(title), std::move(colour));
  panel.aspect = 1.0;
  panel.x.range = panel.y.range = std::get<plot::HeatMap>(panel.marks[0]).x;
  panel.colour->masked_label = "not visible, or not kept";
  return panel;
}

/// QuoKA's choice for one head: the keys that each chunk keeps, and the queries that chose them.
struct Choice {
  std::vector<double> chunk_begin;
  std::vector<std::vector<bool>> kept;  // [chunk][key]
  std::vector<double> queries;          // positions
};

Choice read_choice(const ResultView& quoka, Index layer, Index head, Index n_tokens) {
  if (const Json* const all = list_at(quoka.summary(), "layers")) {
    for (const Json& one : *all) {
      if (number_at(one, "layer") == static_cast<double>(layer) && one.value("dense", false))
        throw ConfigError(
            "{}: QuoKA leaves layer {} dense and chooses no keys there: draw the map of another "
            "layer, or the map alone",
            quoka.name(), layer);
    }
  }
  const auto layers = quoka.read("layer");
  const auto heads = quoka.read("q_head");
  const auto kv_heads = quoka.read("kv_head");
  const Index l = figures::slot_of(layers, layer, "layer", quoka.name());
  const Index h = figures::slot_of(heads, head, "query head", quoka.name());
  const Index kv = h * static_cast<Index>(kv_heads.size()) / static_cast<Index>(heads.size());
  const figures::ArrayData selected(quoka, "selected/positions");
  const figures::ArrayData chosen(quoka, "selected_queries");
  const auto offsets = quoka.read("selected/offsets");
  const auto available = quoka.read("available");
  Choice choice{.chunk_begin = quoka.read("chunk_begin")};
  if (offsets.size() != choice.chunk_begin.size() + 1 ||
      available.size() != choice.chunk_begin.size()) {
    throw FormatError("{}: {} offsets and {} sizes for {} chunks", quoka.name(), offsets.size(),
                      available.size(), choice.chunk_begin.size());
  }
  for (std::size_t c = 0; c < choice.chunk_begin.size(); ++c) {
    std::vector<bool> kept(static_cast<std::size_t>(n_tokens), false);
    for (auto e = static_cast<Index>(offsets[c]); e < static_cast<Index>(offsets[c + 1]); ++e) {
      const double pos = selected(l, kv, e);
      if (pos >= 0.0 && pos < static_cast<double>(n_tokens))
        kept[static_cast<std::size_t>(pos)] = true;
    }
    // the chunk's own keys are attended densely
    for (double key = std::max(0.0, choice.chunk_begin[c]);
         key < std::min(available[c], static_cast<double>(n_tokens)); key += 1.0) {
      kept[static_cast<std::size_t>(key)] = true;
    }
    choice.kept.push_back(std::move(kept));
    const bool is_chunk = available[c] - choice.chunk_begin[c] > 1.0;
    for (Index s = 0; is_chunk && s < chosen.spec.shape[3]; ++s) {
      const double pos = chosen(l, h, static_cast<Index>(c), s);
      if (pos >= 0.0) choice.queries.push_back(pos);
    }
  }
  return choice;
}

/// The chunk that a query belongs to; -1 before the first.
Index chunk_of(const Choice& choice, double query) {
  const auto after = std::ranges::upper_bound(choice.chunk_begin, query);
  return after - choice.chunk_begin.begin() - 1;
}

/// Between stars, as a share of the map's height, and how many stand side by side at most.
constexpr double kStarStep = 0.012;
constexpr std::size_t kLanes = 8;

/// Share of the visible pairs of query and key that are kept.
double kept_share(const Choice& choice, Index n_tokens) {
  double n_kept = 0.0;
  for (std::size_t c = 0; c < choice.kept.size(); ++c) {
    const auto begin = static_cast<Index>(choice.chunk_begin[c]);
    const Index end =
        c + 1 < choice.kept.size() ? static_cast<Index>(choice.chunk_begin[c + 1]) : n_tokens;
    double n_before = 0.0;  // kept keys up to the query
    for (Index key = 0; key < std::min(end, n_tokens); ++key) {
      n_before += choice.kept[c][static_cast<std::size_t>(key)] ? 1.0 : 0.0;
      if (key >= begin) n_kept += n_before;
    }
  }
  const auto n = static_cast<double>(n_tokens);
  return n_kept / (n * (n + 1.0) / 2.0);
}

/// Hides cells so that as much of every row is drawn as its keys are kept: of cells of which a part
/// is kept, that part of them, evenly.
void hide_dropped(plot::HeatMap& map, const Choice& choice, Index block, Index n_tokens) {
  for (Index r = 0; r < map.n_rows; ++r) {
    const Index chunk = chunk_of(choice, static_cast<double>(r * block));
    if (chunk < 0) continue;
    const auto& keys = choice.kept[static_cast<std::size_t>(chunk)];
    double owed = 0.0;  // of a cell, not drawn so far
    for (Index c = 0; c < map.n_cols; ++c) {
      const Index end = std::min((c + 1) * block, n_tokens);
      if (end <= c * block) break;
      const auto n_kept = std::count(keys.begin() + c * block, keys.begin() + end, true);
      owed += static_cast<double>(n_kept) / static_cast<double>(end - c * block);
      if (n_kept > 0 && owed >= 0.5) {
        owed -= 1.0;
      } else {
        map.values[static_cast<std::size_t>(r * map.n_cols + c)] =
            std::numeric_limits<float>::quiet_NaN();
      }
    }
  }
}

/// Stars right of the diagonal, which stand clear of each other: where one would touch those before
/// it, it goes a step further to the right. Of more than find a place within kLanes steps the rest
/// is left out.
plot::Scatter query_marks(std::vector<double> queries, Index n_tokens) {
  const double step = kStarStep * static_cast<double>(n_tokens);
  plot::Scatter marks{.label = "selected queries", .tone = {plot::Role::highlight, 0}, .size = 0.5};
  std::ranges::sort(queries);
  std::array<double, kLanes> last;
  last.fill(-step);
  for (const double pos : queries) {
    const auto lane = std::ranges::find_if(last, [&](double other) { return pos - other >= step; });
    const double x = pos + step * static_cast<double>(lane - last.begin() + 1);
    if (lane == last.end() || x > static_cast<double>(n_tokens)) continue;
    *lane = pos;
    marks.add(x, pos);
  }
  return marks;
}

/// " (budget 256, chunks of 128)" of an analysis of QuoKA.
std::string budget_words(const Json& config) {
  const bool is_ratio = text_at(config, "budget_kind") == "ratio";
  const double budget = number_at(config, is_ratio ? "ratio" : "budget");
  if (std::isnan(budget)) return "";
  return fmt::format(" (budget {:g}{}, chunks of {:g})", is_ratio ? 100.0 * budget : budget,
                     is_ratio ? "% of the keys before" : "", number_at(config, "chunk"));
}

plot::Figure make_attention_map(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const figures::ArrayData weights(result, "map");
  const auto& summary = result.summary();
  const Index layer = summary.value("layer", Index{0});
  const Index head = summary.value("head", Index{0});
  const Index n_tokens = summary.value("tokens", Index{0});
  const Index block = summary.value("block", Index{1});
  if (weights.spec.shape.rank != 2 || block < 1 || n_tokens < 1 ||
      n_tokens > block * std::min(weights.spec.shape[0], weights.spec.shape[1])) {
    throw FormatError("{}: a map of shape {} for {} tokens in blocks of {}", result.name(),
                      to_string(weights.spec.shape), n_tokens, block);
  }
  plot::HeatMap map{.n_rows = weights.spec.shape[0],
                    .n_cols = weights.spec.shape[1],
                    .values = {weights.values.begin(), weights.values.end()},
                    .x = {0.0, static_cast<double>(weights.spec.shape[1] * block)},
                    .y = {0.0, static_cast<double>(weights.spec.shape[0] * block)}};
  const plot::Range range{1e-4, 1.0};

  plot::Figure figure;
  figure.legend = plot::LegendPlace::above;
  figure.caption.push_back(
      fmt::format("Layer {}, query head {}, {} tokens; weights below 10^-4 are drawn as 10^-4.",
                  layer, head, n_tokens));
  if (block > 1) {
    figure.caption.push_back(
        fmt::format("Each cell is the {} of {} x {} weights.",
                    summary.value("pooling", "max") == "max" ? "largest" : "mean", block, block));
  }
  plot::Panel all = map_panel(map, "all keys", range);
  if (input.results.size() < 2) {
    all.title.clear();
    all.colour->masked_label = "not visible";
    figure.panels.push_back(std::move(all));
    return figure;
  }

  const Choice choice = read_choice(*input.results[1], layer, head, n_tokens);
  plot::HeatMap kept = map;
  hide_dropped(kept, choice, block, n_tokens);
  plot::Scatter queries = query_marks(choice.queries, n_tokens);
  const std::size_t n_shown = queries.y.size();
  all.marks.emplace_back(std::move(queries));
  all.colour->show_bar = false;
  figure.panels.push_back(std::move(all));
  figure.panels.push_back(map_panel(std::move(kept), "kept by QuoKA", range));
  figure.columns = 2;
  figure.share_y = true;
  figure.span = plot::Span::full;
  figure.caption.push_back(fmt::format(
      "All keys: the representative queries of each chunk, right of the diagonal{}. Kept by "
      "QuoKA{}: {:.0f}% of the visible pairs of query and key, a chunk's own keys always{}.",
      n_shown < choice.queries.size()
          ? fmt::format(" ({} of {}, as many as have room)", n_shown, choice.queries.size())
          : "",
      budget_words(input.results[1]->info().config), 100.0 * kept_share(choice, n_tokens),
      block > 1 ? "; of cells that are kept in part, that part is drawn, for the chunk of their "
                  "first query"
                : ""));
  return figure;
}

}  // namespace

FigureKind figure_attention_map() {
  return {
      .name = "attention-map",
      .shows =
          "the attention map of one head, with QuoKA's selected queries and kept keys (QuoKA, "
          "figure 2a)",
      .needs =
          "an attention map, and an analysis of QuoKA on the same trace if its choice is to "
          "be shown",
      .command = "kvscope analyze attention-map trace.h5 --layers 2 --heads 6 --out attention.h5",
      .kinds = {"attention-map", "quoka?"},
      .make = make_attention_map,
  };
}

}  // namespace kvscope
