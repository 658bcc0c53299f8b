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
/// As the recording's config.json says; null where it has none, or one of a family that is not
/// computed here.
Rotations rotations_of(const TraceInfo& info);

}  // namespace kvscope
