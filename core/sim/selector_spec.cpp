#include "core/sim/selector_spec.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvscope {

namespace {

/// The method behind a spec, which may name a preset; null if there is none.
const SelectorEntry* entry_of(const SelectorRegistry& registry, const std::string& spec) {
  const std::string name = spec.substr(0, spec.find(':'));
  for (const SelectorEntry& entry : registry.entries()) {
    if (entry.name == name || entry.presets.contains(name)) return &entry;
  }
  return nullptr;
}

}  // namespace

std::string with_dense_layers(const SelectorRegistry& registry, const std::string& spec,
                              std::optional<Index> dense_layers) {
  const SelectorEntry* entry = entry_of(registry, spec);
  if (!dense_layers || entry == nullptr || spec.find("dense-layers=") != std::string::npos) {
    return spec;
  }
  const bool has_option =
      std::any_of(entry->options.begin(), entry->options.end(),
                  [](const auto& option) { return option.name == "dense-layers"; });
  if (!has_option) return spec;
  return fmt::format("{}{}dense-layers={}", spec, spec.find(':') == std::string::npos ? ':' : ',',
                     *dense_layers);
}

}  // namespace kvscope
