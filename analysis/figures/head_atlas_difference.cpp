#include "analysis/figures/head_atlas_difference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>

#include "analysis/figures/maps.hpp"
#include "analysis/plot/rich_text.hpp"
#include "core/attention/monotone_map.hpp"
#include "core/base/error.hpp"
#include "core/tensor/tensor.hpp"
#include "core/trace/result.hpp"

namespace kvscope::figures {

namespace {

/// The small maps of a result, pooled to at most kMostCells a side, every row a distribution.
struct Maps {
  explicit Maps(const ResultView& result)
      : n_layers(static_cast<Index>(result.read("layer").size())),
        n_heads(static_cast<Index>(result.read("q_head").size())),
        blocks(result.read("query_block")) {
    const ArrayData maps(result, "map");
    const auto cells = static_cast<Index>(blocks.size());
    maps.require_shape({n_layers, n_heads, cells, cells});
    const Index step = std::max<Index>(1, (cells + kMostCells - 1) / kMostCells);
    side = (cells + step - 1) / step;
    values.resize(static_cast<std::size_t>(n_layers * n_heads * side * side));
    std::size_t at = 0;
    for (Index head = 0; head < n_layers * n_heads; ++head) {
      const auto begin = static_cast<std::size_t>(head * side * side);
      for (Index q = 0; q < cells; ++q) {
        for (Index k = 0; k < cells; ++k) {
          const double value = maps.values[at++];
          const auto cell = static_cast<std::size_t>(q / step * side + k / step);
          if (!std::isnan(value)) values[begin + cell] += value;  // NaN: not measured
        }
      }
    }
    for (auto row = values.begin(); row != values.end(); row += side) {
      const double sum = std::accumulate(row, row + side, 0.0);
      if (sum > 0.0) std::for_each(row, row + side, [&](double& value) { value /= sum; });
    }
  }
  std::span<const double> of(Index layer, Index head) const {
    const auto size = static_cast<std::size_t>(side * side);
    return std::span<const double>(values).subspan(
        static_cast<std::size_t>(layer * n_heads + head) * size, size);
  }

  static constexpr Index kMostCells = 16;
  Index n_layers, n_heads;
  std::vector<double> blocks;  // first positions
  Index side = 0;
  std::vector<double> values;  // [layers, heads, side, side]
};

/// Total variation of the rows, summed: how far apart two heads look.
double distance_between(std::span<const double> a, std::span<const double> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return 0.5 * sum;
}

/// The head of a layer of `second` that looks most like a head of `first`.
std::pair<double, Index> nearest(const Maps& first, const Maps& second, Index layer, Index head,
                                 Index other_layer) {
  std::pair best{std::numeric_limits<double>::infinity(), Index{0}};
  for (Index h = 0; h < second.n_heads; ++h) {
    const double d = distance_between(first.of(layer, head), second.of(other_layer, h));
    if (d < best.first) best = {d, h};
  }
  return best;
}

/// Layers by the non-decreasing map of least distance (SpecAttn's, with heads' maps for
/// divergences), then in each the most similar head.
std::vector<std::size_t> match_by_maps(const ResultView& a, const ResultView& b) {
  const Maps first(a);
  const Maps second(b);
  if (first.blocks != second.blocks) {
    throw ConfigError(
        "heads of {} and {} cannot be matched by their maps, whose blocks differ: analyse both "
        "over as many tokens with the same --cells",
        a.name(), b.name());
  }
  Tensor<double> cost({second.n_layers, first.n_layers});
  for (Index other = 0; other < second.n_layers; ++other) {
    for (Index layer = 0; layer < first.n_layers; ++layer) {
      double sum = 0.0;
      for (Index head = 0; head < first.n_heads; ++head)
        sum += nearest(first, second, layer, head, other).first;
      cost(other, layer) = sum;
    }
  }
  const LayerAssignment layers = monotone_layer_map(cost.view());
  std::vector<std::size_t> partner;
  for (Index layer = 0; layer < first.n_layers; ++layer) {
    const Index other = layers.draft_of[static_cast<std::size_t>(layer)];
    for (Index head = 0; head < first.n_heads; ++head) {
      partner.push_back(static_cast<std::size_t>(
          other * second.n_heads + nearest(first, second, layer, head, other).second));
    }
  }
  return partner;
}

std::string short_name(const ResultView& result) {
  return plot::verbatim(std::filesystem::path(result.name()).filename().string());
}

HeadMatch match_of(const FigureInput& input) {
  const ResultView& a = *input.results[0];
  const ResultView& b = *input.results[1];
  const std::string& wanted = input.options.match;
  const bool is_same = a.read("layer") == b.read("layer") && a.read("q_head") == b.read("q_head");
  if (wanted == "maps" || (wanted.empty() && !is_same)) return HeadMatch::maps;
  if (!wanted.empty() && wanted != "place")
    throw ConfigError("match: expected place or maps, found \"{}\"", wanted);
  if (is_same) return HeadMatch::place;
  throw ConfigError("match: {} and {} have other layers or heads; use maps", a.name(), b.name());
}

void refuse(const std::string& field, const char* why) {
  throw ConfigError("{}: {}", field, why);
}

}  // namespace

std::optional<HeadDifference> head_difference(const FigureInput& input) {
  const FigureOptions& options = input.options;
  const bool has_second = input.results.size() > 1;
  if (has_second && input.results[1]->info().kind != "heads") return std::nullopt;  // an overlap
  if (!has_second && options.against.empty()) {
    if (!options.match.empty()) refuse("match", "there is one result; name a second one");
    return std::nullopt;
  }
  const std::string metric = !options.metric.empty()    ? options.metric
                             : !options.against.empty() ? "lost_mass"
                                                        : "distance";
  if (metric != "lost_mass" && !options.against.empty())
    refuse("against", "methods differ by lost_mass alone; leave out the metric");
  if (!has_second && !options.match.empty())
    refuse("match", "two methods of one result have the same heads; leave it out");

  const ResultView& a = *input.results[0];
  const ResultView& b = *input.results[has_second ? 1 : 0];
  HeadDifference out;
  out.numbers = read_head_numbers(a, metric, options.selector);
  const HeadNumbers other =
      read_head_numbers(b, metric, options.against.empty() ? options.selector : options.against,
                        options.against.empty() ? "selector" : "against");
  const std::size_t n = out.numbers.values.size();
  if (has_second) out.match = match_of(input);
  if (out.match == HeadMatch::maps) {
    out.partner = match_by_maps(a, b);
  } else {
    for (std::size_t head = 0; head < n; ++head) out.partner.push_back(head);
  }
  for (std::size_t head = 0; head < n; ++head)
    out.numbers.values[head] -= other.values.at(out.partner.at(head));
  out.numbers.is_difference = true;

  const std::string what = out.numbers.label;
  constexpr std::string_view kLost = "Lost under ";
  std::string what_other = other.label;  // inside a sentence
  if (what_other.starts_with("Lost")) what_other[0] = 'l';
  if (!has_second) {
    out.numbers.label = fmt::format("{} − {}", what, other.label.substr(kLost.size()));
    out.sentence = fmt::format("{}, minus {}", what, what_other);
  } else {
    const std::string minus =
        what == other.label ? what : fmt::format("{} − {}", what, other.label);
    out.numbers.label = fmt::format("{}: {} − {}", minus, short_name(a), short_name(b));
    out.sentence = what == other.label
                       ? fmt::format("{}, in {} minus {}", what, short_name(a), short_name(b))
                       : fmt::format("{} in {}, minus {} in {}", what, short_name(a), what_other,
                                     short_name(b));
  }
  out.sentence += out.match == HeadMatch::place
                      ? ", head by head."
                      : ", each with the head whose small map is most alike; layers by the "
                        "non-decreasing map of least distance.";
  return out;
}

std::string head_words(const ResultView& result, std::size_t slot) {
  const auto heads = result.read("q_head");
  return fmt::format("{}.{}", result.read("layer").at(slot / heads.size()),
                     heads[slot % heads.size()]);
}

}  // namespace kvscope::figures
