#include "core/sim/selector_spec.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/selectors/stack.hpp"

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
  if (!dense_layers) return spec;
  std::vector<std::string> stages = split_stages(spec);
  for (std::string& stage : stages) {
    const std::size_t at = std::min(stage.find('@'), stage.size());
    const std::string budget = stage.substr(at);
    const std::string method = stage.substr(0, at);
    const SelectorEntry* entry = entry_of(registry, method);
    if (entry == nullptr || method.find("dense-layers=") != std::string::npos) continue;
    const bool has_option =
        std::any_of(entry->options.begin(), entry->options.end(),
                    [](const auto& option) { return option.name == "dense-layers"; });
    if (!has_option) continue;
    stage = fmt::format("{}{}dense-layers={}{}", method,
                        method.find(':') == std::string::npos ? ':' : ',', *dense_layers, budget);
  }
  return fmt::format("{}", fmt::join(stages, "+"));
}

}  // namespace kvscope
