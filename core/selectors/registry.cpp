#include "core/selectors/registry.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope {

void register_all_selectors(SelectorRegistry& registry);  // the table that CMake writes

const SelectorRegistry& selector_registry() {
  static const SelectorRegistry registry = [] {
    SelectorRegistry all;
    register_all_selectors(all);
    return all;
  }();
  return registry;
}

namespace {

/// "did you mean quest?", or what there is.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  const int most_edits = std::max(2, static_cast<int>(word.size()) / 2);  // names are unlike words
  const std::optional<std::string> near = nearest(word, candidates, most_edits);
  return near ? fmt::format("did you mean {}?", *near)
              : fmt::format("known: {}", fmt::join(candidates, ", "));
}

}  // namespace

const SelectorEntry& SelectorRegistry::find(std::string_view name) const {
  std::vector<std::string> names;
  for (const SelectorEntry& entry : entries_) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
    for (const auto& [preset, assignments] : entry.presets) names.push_back(preset);
  }
  throw ConfigError(fmt::format("unknown selector {}: {}", name, suggestion(name, names)));
}

std::unique_ptr<Selector> SelectorRegistry::make(std::string_view spec) const {
  return MethodSpec::parse(*this, spec).make();
}

void SelectorRegistry::throw_unknown(const std::string& method, const std::vector<std::string>& known,
                                     const SelectorOptions& assignments) {
  for (const auto& [name, value] : assignments) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw ConfigError(fmt::format("selector {} has no option {}: {}", method, name, suggestion(name, known)));
    }
  }
  throw ConfigError(fmt::format("selector {}: options do not fit", method));
}

}  // namespace kvscope
