#include "core/sim/rotations.hpp"

#include "core/base/error.hpp"

namespace kvscope {

Rotations rotations_of(const ModelConfig& config) {
  auto rotations = std::make_shared<std::vector<KeyRotation>>();
  for (std::size_t layer = 0; layer < config.has_rope.size(); ++layer) {
    KeyRotation& rotation = rotations->emplace_back();
    if (!config.has_rope[layer]) continue;
    const RopeConfig& rope = config.rope_of(static_cast<Index>(layer));
    rotation.amplitude = rope.amplitude;
    rotation.frequencies.assign(rope.frequencies.begin(), rope.frequencies.end());
  }
  return rotations;
}

Rotations rotations_of(const TraceInfo& info) {
  if (!info.rope_frequencies.empty()) {
    auto rotations = std::make_shared<std::vector<KeyRotation>>();
    for (Index layer = 0; layer < info.n_layers; ++layer) {
      const auto frequencies = info.frequencies_of(layer);
      rotations->push_back({.amplitude = info.rope_amplitudes[static_cast<std::size_t>(layer)],
                            .frequencies = {frequencies.begin(), frequencies.end()}});
    }
    return rotations;
  }
  if (info.model_config.empty()) return nullptr;
  try {
    return rotations_of(parse_model_config(info.model_config, "the recording's config.json"));
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace kvscope
