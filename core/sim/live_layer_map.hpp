// SpecAttn's layer map, measured on two running models over one calibration text.
#pragma once

#include <span>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/model/transformer.hpp"

namespace kvscope {

/// Mean KL divergence (verifier || draft) in nats between the head-mean attention rows of each pair
/// of layers, over every `stride`-th position of the text from 16 on: [n_draft, n_ver], f64. The
/// same numbers as those of `analyze layer-map` on recordings of the text, where the rows are the
/// same. Throws ConfigError for texts of less than 32 tokens.
Tensor<double> measure_layer_divergences(const Transformer& verifier, const Transformer& draft,
                                         std::span<const TokenId> text, Index stride,
                                         ThreadPool& pool);

/// The non-decreasing map from verifier layers to draft layers of least total divergence.
std::vector<Index> measure_layer_map(const Transformer& verifier, const Transformer& draft,
                                     std::span<const TokenId> text, Index stride, ThreadPool& pool);

}  // namespace kvscope
