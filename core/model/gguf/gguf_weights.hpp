// The tensors of a GGUF model under the hub's names, and its metadata as the hub's config.json.
#pragma once

#include <string>

#include "core/model/config.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/model/weights.hpp"

namespace kvscope {

/// What config.json of the same model would say: parse_model_config reads it. Throws FormatError or
/// ConfigError.
std::string hub_config(const GgufCheckpoint& checkpoint);

/// Every tensor by the hub's name, with its rows in the order of the file (WeightEntry::order);
/// stacked experts one by one. Tensors without a name at the hub keep theirs. Throws FormatError.
WeightEntries hub_weights(const GgufCheckpoint& checkpoint);

/// "F32, F16, ... or MXFP4", for messages.
std::string readable_gguf_types();

}  // namespace kvscope
