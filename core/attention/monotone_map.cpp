#include "core/attention/monotone_map.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

void check_cost(TensorView<const double> cost) {
  if (cost.rank() != 2 || cost.dim(0) < 1 || cost.dim(1) < 1) {
    throw ShapeError("layer map: expected costs [n_draft, n_ver], found shape {}",
                     to_string(cost.shape()));
  }
  for (Index i = 0; i < cost.dim(0); ++i) {
    for (Index j = 0; j < cost.dim(1); ++j) {
      if (std::isnan(cost(i, j))) {
        throw ConfigError(
            "layer map: the cost of draft layer {} for verifier layer {} is not a number", i, j);
      }
    }
  }
}

}  // namespace

LayerAssignment monotone_layer_map(TensorView<const double> cost) {
  check_cost(cost);
  const Index n_draft = cost.dim(0);
  const Index n_ver = cost.dim(1);
  std::vector<double> total(static_cast<std::size_t>(n_draft));
  Tensor<Index> origin({n_ver, n_draft});  // best row of the previous column
  for (Index i = 0; i < n_draft; ++i) total[static_cast<std::size_t>(i)] = cost(i, 0);
  for (Index j = 1; j < n_ver; ++j) {
    double best = total[0];
    Index arg = 0;
    for (Index i = 0; i < n_draft; ++i) {
      double& cell = total[static_cast<std::size_t>(i)];
      if (cell < best) {
        best = cell;
        arg = i;
      }
      cell = best + cost(i, j);
      origin(j, i) = arg;
    }
  }

  LayerAssignment map;
  map.draft_of.resize(static_cast<std::size_t>(n_ver));
  Index row = 0;
  for (Index i = 1; i < n_draft; ++i) {
    if (total[static_cast<std::size_t>(i)] < total[static_cast<std::size_t>(row)]) row = i;
  }
  map.cost = total[static_cast<std::size_t>(row)];
  for (Index j = n_ver - 1; j >= 0; --j) {
    map.draft_of[static_cast<std::size_t>(j)] = row;
    if (j > 0) row = origin(j, row);
  }
  return map;
}

LayerAssignment unconstrained_layer_map(TensorView<const double> cost) {
  check_cost(cost);
  LayerAssignment map;
  for (Index j = 0; j < cost.dim(1); ++j) {
    Index row = 0;
    for (Index i = 1; i < cost.dim(0); ++i) {
      if (cost(i, j) < cost(row, j)) row = i;
    }
    map.draft_of.push_back(row);
    map.cost += cost(row, j);
  }
  return map;
}

std::string layer_map_text(std::span<const Index> draft_of) {
  return fmt::format("{}", fmt::join(draft_of, "/"));
}

DraftMap::DraftMap(std::string_view text, std::string_view also)
    : is_proportional_(text == "proportional") {
  if (is_proportional_ || text == "identity") return;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    Index draft_layer = 0;
    const auto [next, error] = std::from_chars(at, end, draft_layer);
    const bool is_number =
        error == std::errc{} && draft_layer >= 0 && (next == end || *next == '/');
    if (!is_number) {
      throw ConfigError(
          "layer-map: expected {}identity, proportional or draft layers as 0/0/1/2, found \"{}\"",
          also, text);
    }
    draft_of_.push_back(draft_layer);
    if (next == end) return;
    at = next + 1;
  }
}

Index DraftMap::draft_of(Index layer, Index n_ver, Index n_draft) const {
  if (is_proportional_) return std::min(n_draft - 1, layer * n_draft / std::max<Index>(n_ver, 1));
  if (!draft_of_.empty() && layer >= static_cast<Index>(draft_of_.size())) {
    throw ConfigError("specattn: layer-map names {} verifier layers, but the model has layer {}",
                      draft_of_.size(), layer);
  }
  const Index draft_layer = draft_of_.empty() ? layer : draft_of_[static_cast<std::size_t>(layer)];
  if (draft_layer >= n_draft) {
    throw ConfigError(
        "specattn: layer-map sends layer {} to draft layer {}, but the draft has {} layers; "
        "expected proportional or the map that the layer map analysis finds",
        layer, draft_layer, n_draft);
  }
  return draft_layer;
}

}  // namespace kvscope
