#include "core/trace/side.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

constexpr Index kMostIndexNumber = Index{1} << 20;  // products of three stay far from overflow

void require_index(bool ok, std::string_view what, std::string_view expected, Index found) {
  if (!ok) throw ConfigError("indexer: {}: expected {}, found {}", what, expected, found);
}

}  // namespace

bool IndexShape::has_layer(Index layer) const {
  return std::binary_search(layers.begin(), layers.end(), layer);
}

void check_index_shape(const IndexShape& index, const std::vector<Index>& recorded) {
  if (index == IndexShape{}) return;
  require_index(!index.layers.empty(), "layers that have one", "at least one", 0);
  for (std::size_t i = 0; i < index.layers.size(); ++i) {
    const Index layer = index.layers[i];
    require_index(i == 0 || index.layers[i - 1] < layer, "layers", "ascending ones", layer);
    require_index(std::binary_search(recorded.begin(), recorded.end(), layer), "layers",
                  "recorded ones", layer);
  }
  const auto count = [](Index value, std::string_view what) {
    require_index(value >= 1 && value <= kMostIndexNumber, what,
                  fmt::format("1 to {}", kMostIndexNumber), value);
  };
  count(index.n_heads, "index heads");
  count(index.n_key_heads, "index key heads");
  count(index.width, "channels");
  count(index.block, "tokens of a chosen block");
  require_index(index.n_heads % index.n_key_heads == 0, "index heads",
                fmt::format("a multiple of the {} index key heads", index.n_key_heads),
                index.n_heads);
  require_index(index.n_selected >= 0 && index.n_selected <= kMostIndexNumber, "chosen blocks",
                fmt::format("0 to {}", kMostIndexNumber), index.n_selected);
  const bool fits = index.n_selected == 0 ? index.n_lists == 0
                                          : index.n_lists == 1 || index.n_lists == index.n_heads;
  require_index(fits, "lists of chosen blocks",
                index.n_selected == 0 ? "none" : "1 or one per index head", index.n_lists);
}

}  // namespace kvscope
