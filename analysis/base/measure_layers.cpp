#include "analysis/base/measure_layers.hpp"

#include <nlohmann/json.hpp>

namespace kvscope {

nlohmann::ordered_json measure_layers(
    std::string_view analysis, std::span<const Index> layers, LayerArrays& arrays,
    const ProgressFn& progress, const std::function<void(Index slot, Index layer)>& measure,
    const std::function<void(Index slot, Index layer, nlohmann::ordered_json& entry)>& summarize) {
  nlohmann::ordered_json entries = nlohmann::ordered_json::array();
  for (Index slot = 0; slot < n_of(layers); ++slot) {
    const Index layer = layers[static_cast<std::size_t>(slot)];
    arrays.clear();
    if (!arrays.load(slot)) measure(slot, layer);
    arrays.write(slot);
    nlohmann::ordered_json entry = {{"layer", layer}};
    summarize(slot, layer, entry);
    entries.push_back(std::move(entry));
    if (progress) progress({std::string(analysis), slot + 1, n_of(layers), "layers"});
  }
  return entries;
}

}  // namespace kvscope
