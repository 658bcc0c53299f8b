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
/// By the recording's numbers, or, before schema version 1.3, as its config.json says; null where
/// there is none, or one of a family that is not computed here (its pairs may lie otherwise).
Rotations rotations_of(const TraceInfo& info);

}  // namespace kvscope
