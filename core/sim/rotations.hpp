// How a model rotates its queries and keys, for methods that undo it (AttentionShape::rotations).
#pragma once

#include <memory>
#include <vector>

#include "core/model/config.hpp"
#include "core/selectors/key_rotation.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

using Rotations = std::shared_ptr<const std::vector<KeyRotation>>;

/// Of every layer.
Rotations rotations_of(const ModelConfig& config);
/// As the recording's numbers say, or, before schema version 1.3, its config.json; null where there
/// is neither, or a family that is not computed here.
Rotations rotations_of(const TraceInfo& info);

}  // namespace kvscope
