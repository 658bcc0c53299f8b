// SpecAttn's layer map, measured on two running models over one calibration text.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/model/transformer.hpp"

namespace kvscope {

/// The non-decreasing map from verifier layers to draft layers of least total KL divergence
/// (verifier || draft) between head-averaged attention rows, averaged over every `stride`-th
/// position from 16 on, in f64: analysis/layer_map with its defaults, without traces. Throws
/// ConfigError for texts of less than 32 tokens.
std::vector<Index> measure_layer_map(const Transformer& verifier, const Transformer& draft,
                                     std::span<const TokenId> text, Index stride, ThreadPool& pool);

/// "0/0/1/2": the spelling of specattn's option layer-map.
std::string layer_map_text(std::span<const Index> draft_of);

}  // namespace kvscope
