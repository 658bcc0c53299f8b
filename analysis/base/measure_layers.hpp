// The loop of an analysis over the layers of a trace: measured or known, written, summarised.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

#include "analysis/base/layer_arrays.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

/// For each layer in turn: clears the arrays, has `measure` fill them where nobody else has
/// (LayerArrays::load), writes them. Returns the entries of a summary's "layers": "layer", then
/// what `summarize` adds from the arrays. Both get the slot and the layer's number.
nlohmann::ordered_json measure_layers(
    std::string_view analysis, std::span<const Index> layers, LayerArrays& arrays,
    const ProgressFn& progress, const std::function<void(Index slot, Index layer)>& measure,
    const std::function<void(Index slot, Index layer, nlohmann::ordered_json& entry)>& summarize);

}  // namespace kvscope
