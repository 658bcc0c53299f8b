#include "analysis/figures/head_atlas.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/figures/head_atlas_difference.hpp"
#include "analysis/figures/head_measures.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"

namespace kvscope::figures {

namespace {

constexpr std::size_t kMostSorted = 64;    // heads of a sorted atlas
constexpr std::size_t kSortedColumns = 8;  // beside each other
constexpr std::size_t kNarrow = 4;         // columns that a text column has room for
constexpr std::size_t kBlockGap = 1;       // columns, with the names of layers
constexpr double kMostAspect = 1.4;        // height over width
constexpr std::size_t kMostBoxed = 5;

struct Atlas {
  std::vector<HeadTile> tiles;
  std::size_t n_columns = 0;
  std::size_t n_rows = 0;
  std::size_t n_all = 0;     // heads before a sorted atlas was cut
  std::size_t n_heads = 0;   // of a layer, in an atlas as in the model
  std::size_t n_blocks = 1;  // of layers, beside each other
  std::size_t left_of(std::size_t block) const { return block * (n_heads + kBlockGap); }
};

/// As in the model: heads to the right, layers upwards; many layers of few heads in as few blocks
/// beside each other as make a picture that is not much higher than wide.
Atlas grid_of(const std::vector<Index>& layers, const std::vector<Index>& heads) {
  Atlas atlas;
  atlas.n_heads = heads.size();
  const auto n_rows = [&](std::size_t blocks) { return (layers.size() + blocks - 1) / blocks; };
  const auto n_columns = [&](std::size_t blocks) { return atlas.left_of(blocks) - kBlockGap; };
  const auto is_high = [&](std::size_t blocks) {
    return static_cast<double>(n_rows(blocks)) >
           kMostAspect * static_cast<double>(n_columns(blocks));
  };
  while (is_high(atlas.n_blocks)) ++atlas.n_blocks;
  atlas.n_columns = n_columns(atlas.n_blocks);
  atlas.n_rows = n_rows(atlas.n_blocks);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    for (std::size_t h = 0; h < heads.size(); ++h) {
      atlas.tiles.push_back({static_cast<std::size_t>(layers[l]),
                             static_cast<std::size_t>(heads[h]),
                             atlas.left_of(l / atlas.n_rows) + h, l % atlas.n_rows});
    }
  }
  return atlas;
}

/// What heads are sorted by: the number, or how large a difference is; without one they come last.
double weight_of(const HeadNumbers& numbers, double value) {
  if (std::isnan(value)) return -std::numeric_limits<double>::infinity();
  return numbers.is_difference ? std::abs(value) : value;
}

/// The largest numbers first, in reading order.
void sort_atlas(Atlas& atlas, const HeadNumbers& numbers, std::size_t n_heads) {
  const auto value_of = [&](const HeadTile& tile) {
    return weight_of(numbers, numbers.values[tile.layer * n_heads + tile.head]);
  };
  std::stable_sort(atlas.tiles.begin(), atlas.tiles.end(),
                   [&](const HeadTile& a, const HeadTile& b) { return value_of(a) > value_of(b); });
  atlas.tiles.resize(std::min(atlas.tiles.size(), kMostSorted));
  atlas.n_columns = std::min(kSortedColumns, atlas.tiles.size());
  atlas.n_rows = (atlas.tiles.size() + atlas.n_columns - 1) / atlas.n_columns;
  for (std::size_t i = 0; i < atlas.tiles.size(); ++i) {
    atlas.tiles[i].column = i % atlas.n_columns;
    atlas.tiles[i].row = atlas.n_rows - 1 - i / atlas.n_columns;
  }
}

/// Tiles of one unit, each with a blank margin; cell(tile, q, k): its picture, the first query on
/// top.
template <class Cell>
plot::HeatMap picture_of(const Atlas& atlas, Index cells, Cell cell) {
  const Index gap = std::max<Index>(1, cells / 10);
  const Index step = cells + gap;
  plot::HeatMap map;
  map.n_rows = static_cast<Index>(atlas.n_rows) * step;
  map.n_cols = static_cast<Index>(atlas.n_columns) * step;
  map.x = {0.0, static_cast<double>(atlas.n_columns)};
  map.y = {0.0, static_cast<double>(atlas.n_rows)};
  map.show_masked = false;
  map.values.assign(static_cast<std::size_t>(map.n_rows * map.n_cols), kNanF);
  for (const HeadTile& tile : atlas.tiles) {
    const Index left = static_cast<Index>(tile.column) * step + gap / 2;
    const Index top = static_cast<Index>(tile.row + 1) * step - 1 - gap / 2;
    for (Index q = 0; q < cells; ++q) {
      for (Index k = 0; k < cells; ++k) {
        map.values[static_cast<std::size_t>((top - q) * map.n_cols + left + k)] =
            static_cast<float>(cell(tile, q, k));
      }
    }
  }
  return map;
}

plot::Boxes outlines(const std::vector<HeadTile>& tiles, plot::Tone tone, std::string label) {
  plot::Boxes boxes;
  boxes.tone = tone;
  boxes.label = std::move(label);
  for (const HeadTile& tile : tiles) {
    const auto x = static_cast<double>(tile.column);
    const auto y = static_cast<double>(tile.row);
    boxes.x.push_back({x + 0.02, x + 0.98});
    boxes.y.push_back({y + 0.02, y + 0.98});
  }
  return boxes;
}

/// Words at the top right of a tile, if it has room for them.
plot::Note tile_note(const Atlas& atlas, const HeadTile& tile, std::string text) {
  const auto n_columns = static_cast<double>(atlas.n_columns);
  const auto n_rows = static_cast<double>(atlas.n_rows);
  plot::Note note;
  note.text = std::move(text);
  note.x = (static_cast<double>(tile.column) + 0.93) / n_columns;
  note.y = 1.0 - (static_cast<double>(tile.row) + 0.96) / n_rows;
  note.align = plot::Note::Align::right;
  note.room_x = 0.9 / n_columns;
  note.room_y = 0.9 / n_rows;
  return note;
}

/// What the tiles show.
struct AtlasNumbers {
  HeadNumbers numbers;
  std::optional<HeadDifference> difference;
  std::string overlap;  // what the numbers of an overlap are, for a caption; empty: of no overlap
};

/// The place of a couple in the summary of an overlap, and whether it stands there the other way
/// round; empty names stand for any. Throws ConfigError with the couples that there are.
std::pair<std::size_t, bool> find_couple(const ResultView& overlap, const Json& couples,
                                         const std::string& first, const std::string& second) {
  const auto fits = [](const std::string& wanted, const std::string& there) {
    return wanted.empty() || wanted == there;
  };
  std::vector<std::string> names;
  for (std::size_t slot = 0; slot < couples.size(); ++slot) {
    const std::string a = text_at(couples[slot], "first");
    const std::string b = text_at(couples[slot], "second");
    if (fits(first, a) && fits(second, b)) return {slot, false};
    if (fits(first, b) && fits(second, a)) return {slot, true};
    names.push_back(fmt::format("{} and {}", a, b));
  }
  throw ConfigError("selector, against: {} compares no {} with {}; it has {}", overlap.name(),
                    first.empty() ? "method" : first, second.empty() ? "another" : second,
                    fmt::join(names, "; "));
}

/// Which keys two methods share in every head: numbers of `kvscope analyze overlap`, NaN where it
/// does not have the head. `metric` is jaccard (without one), shared_mass, first_mass or
/// second_mass; `selector` and `against` name the couple, in either order, else it is the first.
AtlasNumbers overlap_numbers(const ResultView& atlas, const ResultView& overlap,
                             const FigureOptions& options) {
  if (!options.match.empty())
    throw ConfigError("match: an overlap is of the same heads; leave it out");
  const Json* couples = list_at(overlap.summary(), "couples");
  if (couples == nullptr) throw FormatError("{}: the summary has no couples", overlap.name());
  const auto [slot, is_swapped] = find_couple(overlap, *couples, options.selector, options.against);
  const Json& names = (*couples)[slot];
  std::string first = method_label(text_at(names, "first"));
  std::string second = method_label(text_at(names, "second"));
  if (is_swapped) std::swap(first, second);
  const std::string metric = options.metric.empty() ? "jaccard" : options.metric;
  const std::vector<std::string> metrics = {"jaccard", "shared_mass", "first_mass", "second_mass"};
  const std::size_t what = metric_slot(metric, metrics);
  const std::string only = fmt::format("only {} keeps", what == 2 ? first : second);

  AtlasNumbers out{.numbers = {.name = metric, .is_share = true}};
  out.numbers.label = what == 0   ? "Keys in common"
                      : what == 1 ? "Attention on keys that both keep"
                                  : "Attention on keys that " + only;
  const std::string budget = text_at(names, "budget");
  out.overlap = fmt::format(
      "{} of {} and {}{}; keys before each call",
      what == 0 ? "keys that both keep, of the keys that one of them keeps,"
                : fmt::format("attention on keys that {},", what == 1 ? "both keep" : only),
      first, second, budget.empty() ? std::string() : " at " + method_label(budget));

  const ArrayData values(overlap, metrics[is_swapped && what > 1 ? 5 - what : what]);
  const auto its_layers = overlap.read("layer");
  const auto its_heads = overlap.read("q_head");
  values.require_shape({static_cast<Index>(its_layers.size()), static_cast<Index>(its_heads.size()),
                        static_cast<Index>(couples->size())});
  for (const double layer : atlas.read("layer")) {
    for (const double head : atlas.read("q_head")) {
      const auto l = std::ranges::find(its_layers, layer);
      const auto h = std::ranges::find(its_heads, head);
      out.numbers.values.push_back(
          l == its_layers.end() || h == its_heads.end()
              ? kNan
              : values(l - its_layers.begin(), h - its_heads.begin(), static_cast<Index>(slot)));
    }
  }
  return out;
}

/// The number of each head that is shown.
AtlasNumbers numbers_of(const FigureInput& input) {
  if (auto difference = head_difference(input)) return {difference->numbers, difference, ""};
  const ResultView& result = *input.results[0];
  const FigureOptions& options = input.options;
  if (input.results.size() > 1) return overlap_numbers(result, *input.results[1], options);
  AtlasNumbers out{read_head_numbers(result, options.metric.empty() ? "distance" : options.metric,
                                     options.selector),
                   std::nullopt, ""};
  const std::size_t n_heads = result.read("layer").size() * result.read("q_head").size();
  if (out.numbers.values.size() != n_heads)
    throw FormatError("{}: {} numbers for {} heads", result.name(), out.numbers.values.size(),
                      n_heads);
  return out;
}

Atlas make_atlas(const FigureInput& input, AtlasOrder order, const HeadNumbers& numbers) {
  const ResultView& result = *input.results[0];
  const auto heads = result.read("q_head");
  Atlas atlas =
      grid_of(slots_of(result.read("layer"), input.options.layers, "layers", result.name()),
              slots_of(heads, input.options.heads, "heads", result.name()));
  atlas.n_all = atlas.tiles.size();
  if (order == AtlasOrder::by_number) sort_atlas(atlas, numbers, heads.size());
  return atlas;
}

/// A label inside a sentence: its first letter is small.
std::string in_sentence(std::string label) {
  if (!label.empty() && label[0] >= 'A' && label[0] <= 'Z')
    label[0] = static_cast<char>(label[0] - 'A' + 'a');
  return label;
}

void draw_maps(plot::Panel& panel, const Atlas& atlas, const ResultView& result) {
  const ArrayData maps(result, "map");
  const Index cells = maps.spec.shape.rank == 4 ? maps.spec.shape[2] : 0;
  maps.require_shape({static_cast<Index>(result.read("layer").size()),
                      static_cast<Index>(result.read("q_head").size()), cells, cells});
  panel.colour = log_colours("Attention weight");
  panel.colour->axis.range = plot::Range{1e-4, 1.0};
  panel.marks.emplace_back(picture_of(atlas, cells, [&](const HeadTile& tile, Index q, Index k) {
    return maps(static_cast<Index>(tile.layer), static_cast<Index>(tile.head), q, k);
  }));
}

/// Tiles of one colour each, of differences zero in the middle.
void draw_numbers(plot::Panel& panel, const Atlas& atlas, const HeadNumbers& numbers,
                  std::size_t n_heads) {
  double widest = 0.0;
  for (const HeadTile& tile : atlas.tiles) {
    const double value = std::abs(numbers.values[tile.layer * n_heads + tile.head]);
    if (value > widest) widest = value;  // false for NaN
  }
  if (widest == 0.0) widest = 1.0;
  panel.colour = plot::ColourAxis{};
  if (numbers.is_difference) panel.colour->map = plot::ColourMap::diverging;
  panel.colour->axis.label = numbers.label;
  panel.colour->axis.range = plot::Range{numbers.is_difference ? -widest : 0.0, widest};
  constexpr Index kCells = 9;
  panel.marks.emplace_back(picture_of(atlas, kCells, [&](const HeadTile& tile, Index, Index) {
    return numbers.values[tile.layer * n_heads + tile.head];
  }));
}

/// Heads below each block; layers at the left of each, of the first on the axis.
void name_axes(plot::Panel& panel, const Atlas& atlas, std::span<const double> layers,
               std::span<const double> heads) {
  std::vector<double> first_layers;
  for (const HeadTile& tile : atlas.tiles) {
    if (tile.row == 0)
      panel.x.ticks.push_back(
          {static_cast<double>(tile.column) + 0.5, fmt::format("{}", heads[tile.head])});
    if (tile.column == 0) first_layers.push_back(layers[tile.layer]);
    const bool begins = tile.column % (atlas.n_heads + kBlockGap) == 0;
    if (!begins || tile.column == 0) continue;
    plot::Note name = tile_note(atlas, tile, fmt::format("{}", layers[tile.layer]));
    name.x = (static_cast<double>(tile.column) - 0.1) / static_cast<double>(atlas.n_columns);
    name.y = 1.0 - (static_cast<double>(tile.row) + 0.75) / static_cast<double>(atlas.n_rows);
    panel.marks.emplace_back(std::move(name));
  }
  panel.y.ticks = cell_ticks(first_layers);
}

std::string retrieval_words(const ResultView& result) {
  const std::string needle = result.summary().value("needle", "");
  return needle.empty() ? "Retrieval: weight on the tokens that followed an earlier occurrence of "
                          "the current token."
                        : fmt::format("Retrieval: weight on positions {}.", needle);
}

void add_cut(plot::Figure& figure, const Atlas& atlas) {
  if (atlas.tiles.size() < atlas.n_all)
    figure.caption.push_back(
        fmt::format("The first {} of {} heads.", atlas.tiles.size(), atlas.n_all));
}

/// The tiles of the largest numbers, where these are not all.
std::vector<HeadTile> largest_tiles(const Atlas& atlas, const HeadNumbers& numbers,
                                    std::size_t n_heads) {
  const auto value_of = [&](const HeadTile& tile) {
    return numbers.values[tile.layer * n_heads + tile.head];
  };
  std::vector<HeadTile> most;
  for (const HeadTile& tile : atlas.tiles) {
    if (!std::isnan(value_of(tile))) most.push_back(tile);
  }
  std::stable_sort(most.begin(), most.end(), [&](const HeadTile& a, const HeadTile& b) {
    return weight_of(numbers, value_of(a)) > weight_of(numbers, value_of(b));
  });
  most.resize(std::min(most.size(), kMostBoxed));
  if (most.size() == atlas.tiles.size()) most.clear();
  return most;
}

void add_captions(plot::Figure& figure, const ResultView& result, const AtlasNumbers& shown,
                  bool has_boxes) {
  if (!shown.overlap.empty()) {
    figure.caption.push_back("A tile is a head: " + shown.overlap + ".");
    return;
  }
  if (shown.difference) {
    figure.caption.push_back("A tile is a head: " + in_sentence(shown.difference->sentence));
  } else {
    const auto& summary = result.summary();
    figure.caption.push_back(fmt::format(
        "A small attention map per head over {} tokens: queries downwards, keys to the right, a "
        "cell is the {} of the measured weights of {} x {} tokens, weights below 10^-4 are drawn "
        "as 10^-4.",
        summary.value("tokens", 0), summary.value("pooling", "max") == "max" ? "largest" : "mean",
        summary.value("block", 0), summary.value("block", 0)));
    figure.caption.push_back(fmt::format("Numbers, where a tile has room for them{}: {}.",
                                         has_boxes ? ", and boxes of the largest" : "",
                                         in_sentence(shown.numbers.label)));
  }
  if (shown.numbers.name.starts_with("retrieval"))
    figure.caption.push_back(retrieval_words(result));
}

}  // namespace

std::vector<HeadTile> head_tiles(const FigureInput& input, AtlasOrder order) {
  return make_atlas(input, order, numbers_of(input).numbers).tiles;
}

plot::Figure head_atlas(const FigureInput& input, AtlasOrder order) {
  const ResultView& result = *input.results[0];
  const auto layers = result.read("layer");
  const auto heads = result.read("q_head");
  const AtlasNumbers shown = numbers_of(input);
  const HeadNumbers& numbers = shown.numbers;
  const std::optional<HeadDifference>& difference = shown.difference;
  const auto value_of = [&](const HeadTile& tile) {
    return numbers.values[tile.layer * heads.size() + tile.head];
  };
  const Atlas atlas = make_atlas(input, order, numbers);
  const bool is_sorted = order == AtlasOrder::by_number;
  const bool is_matched = difference && difference->match == HeadMatch::maps;

  plot::Panel panel;
  panel.grid = false;
  panel.aspect = static_cast<double>(atlas.n_rows) / static_cast<double>(atlas.n_columns);
  if (is_sorted) {
    std::string what = numbers.name;
    std::ranges::replace(what, '_', ' ');
    panel.x.label = fmt::format("Heads (layer.head) by {}{}, the largest {}first",
                                difference ? "the difference of " : "", what,
                                difference ? "(of either sign) " : "");
    if (is_matched) panel.x.label += "; in brackets that which it is compared with";
    if (atlas.tiles.size() < atlas.n_all)
      panel.x.label += fmt::format("; {} of {}", atlas.tiles.size(), atlas.n_all);
    panel.x.ticks = {{-1.0, ""}};  // outside: none
    panel.y.ticks = {{-1.0, ""}};
  } else {
    panel.x.label = "Query head";
    panel.y.label = "Layer";
  }
  const bool has_maps = !difference && shown.overlap.empty();
  if (!has_maps) {
    draw_numbers(panel, atlas, numbers, heads.size());
  } else {
    draw_maps(panel, atlas, result);
  }
  if (!is_sorted) name_axes(panel, atlas, layers, heads);
  for (const HeadTile& tile : atlas.tiles) {
    std::string words = numbers.words(value_of(tile));
    if (is_sorted && is_matched) {
      const std::size_t partner = difference->partner[tile.layer * heads.size() + tile.head];
      words = fmt::format("({}) {}", head_words(*input.results[1], partner), words);
    }
    // short, so that it stands where the map is empty
    if (is_sorted) words = fmt::format("{}.{}\n{}", layers[tile.layer], heads[tile.head], words);
    plot::Note note = tile_note(atlas, tile, std::move(words));
    if (has_maps) note.room_y *= 0.6;  // what is below is the map's
    if (has_maps && is_sorted) note.room_x *= 0.6;
    panel.marks.emplace_back(std::move(note));
  }

  panel.marks.emplace_back(outlines(atlas.tiles, {plot::Role::neutral, 0}, ""));
  const std::vector<HeadTile> most =
      is_sorted ? std::vector<HeadTile>() : largest_tiles(atlas, numbers, heads.size());
  if (!most.empty()) {
    panel.marks.emplace_back(outlines(
        most, {plot::Role::highlight, 0},
        difference ? fmt::format("the {} largest differences", most.size())
                   : fmt::format("the {} largest: {}", most.size(), in_sentence(numbers.label))));
  }
  plot::Figure figure;
  figure.span = atlas.n_columns <= kNarrow ? plot::Span::column : plot::Span::full;
  figure.legend = plot::LegendPlace::above;
  figure.panels.push_back(std::move(panel));
  add_captions(figure, result, shown, !most.empty());
  add_cut(figure, atlas);
  return figure;
}

FigureKind atlas_kind(std::string name, std::string shows, AtlasOrder order) {
  return {
      .name = std::move(name),
      .shows = std::move(shows),
      .needs =
          "an analysis of heads; of two, or with --against, it shows differences, and with an "
          "analysis of overlap which keys two methods share",
      .command = "kvscope analyze heads trace.h5 --out heads.h5",
      .kinds = {"heads", "heads|overlap?"},
      .options = {"metric", "selector", "against", "match", "layers", "heads"},
      .make = [order](const FigureInput& input) { return head_atlas(input, order); },
  };
}

}  // namespace kvscope::figures
