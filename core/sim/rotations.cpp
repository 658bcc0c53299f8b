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
  if (info.model_config.empty()) return nullptr;
  try {
    const Rotations said =
        rotations_of(parse_model_config(info.model_config, "the recording's config.json"));
    if (info.rope_frequencies.empty() || std::ssize(*said) != info.n_layers) return said;
    auto recorded = std::make_shared<std::vector<KeyRotation>>(*said);
    for (Index layer = 0; layer < info.n_layers; ++layer) {
      const auto at = static_cast<std::size_t>(layer);
      const auto frequencies = info.frequencies_of(layer);
      (*recorded)[at].frequencies.assign(frequencies.begin(), frequencies.end());
      (*recorded)[at].amplitude = info.rope_amplitudes[at];
    }
    return recorded;
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace kvscope
