// Which layers of a model attend, to what, and with which heads, by its config.json alone: of
// architectures that the runtime does not compute too, hybrids with layers that do not attend
// (linear attention, state spaces, convolutions) and layers of two shapes among them.
#pragma once

#include <string>

#include "analysis/cost/method_cost.hpp"

namespace kvscope {

struct AnyShape {
  std::string text;    // config.json
  ModelConfig config;  // of the layers that attend, as if the model had no others
  CostModel model;     // its weights are those of all layers; model.layers says if estimated
};

/// Throws FormatError for a file without layers, heads or widths, ConfigError for layers whose cost
/// does not follow from these: keys stored as one latent vector (MLA), or no layer that attends.
AnyShape any_shape(std::string config_text, const std::string& where, const std::string& name,
                   double weight_bits);

}  // namespace kvscope
