#include "core/sim/rotations.hpp"

#include "core/base/error.hpp"
#include "core/model/rope.hpp"

namespace kvscope {

Rotations rotations_of(const ModelConfig& config) {
  auto rotations = std::make_shared<std::vector<KeyRotation>>();
  for (std::size_t layer = 0; layer < config.has_rope.size(); ++layer) {
    KeyRotation& rotation = rotations->emplace_back();
    if (!config.has_rope[layer]) continue;
    const bool is_local = config.local_rope && config.window[layer];
    const RopeConfig& rope = is_local ? *config.local_rope : config.rope;
    const std::vector<float> frequencies = rope_frequencies(rope, config.rotary_dim);
    rotation.amplitude = rope.amplitude;
    rotation.frequencies.assign(frequencies.begin(), frequencies.end());
  }
  return rotations;
}

Rotations rotations_of(const TraceInfo& info) {
  if (info.model_config.empty()) return nullptr;
  try {
    return rotations_of(parse_model_config(info.model_config, "the recording's config.json"));
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace kvscope
