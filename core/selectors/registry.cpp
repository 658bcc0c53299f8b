#include "core/selectors/registry.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/selectors/stack.hpp"

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
  if (split_stages(spec).size() > 1) return make_stack(*this, spec);
  if (const std::size_t at = spec.find('@'); at != std::string_view::npos) {
    throw ConfigError(fmt::format("selector {}: only the lower stages of a stack (NAME@BUDGET+NAME) carry a budget", spec));
  }
  const std::size_t colon = spec.find(':');
  const std::string_view name = spec.substr(0, colon);
  SelectorOptions assignments;
  const SelectorEntry* entry = nullptr;
  for (const SelectorEntry& candidate : entries_) {
    const auto preset = candidate.presets.find(std::string(name));
    if (preset == candidate.presets.end()) continue;
    entry = &candidate;
    assignments = preset->second;
  }
  if (entry == nullptr) entry = &find(name);
  std::string_view rest = colon == std::string_view::npos ? std::string_view{} : spec.substr(colon + 1);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      throw ConfigError(fmt::format("selector {}: expected option=value, found \"{}\"", name, item));
    }
    assignments[std::string(item.substr(0, equals))] = std::string(item.substr(equals + 1));
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  return entry->make(assignments);
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
