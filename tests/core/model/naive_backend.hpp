// A second backend: plain loops in double over rows, a store with a layout of its own. It shows
// that the layer diagram needs nothing of the lane backend, and is a reference for it.
#pragma once

#include "core/model/backend.hpp"

namespace kvscope::test {

/// Computes what LayerPlan can say, experts excepted (ConfigError).
std::unique_ptr<Backend> make_naive_backend(const ModelConfig& config, const ModelWeights& weights);

}  // namespace kvscope::test
