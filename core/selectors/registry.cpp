#include "core/selectors/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/base/error.hpp"
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

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    std::vector<std::size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i + 1;
      for (std::size_t j = 0; j < candidate.size(); ++j) {
        const std::size_t substituted = diagonal + (word[i] == candidate[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

namespace {

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest_name(word, candidates);
  return near.empty() ? fmt::format("known: {}", fmt::join(candidates, ", ")) : fmt::format("did you mean {}?", near);
}

}  // namespace

const SelectorEntry& SelectorRegistry::find(std::string_view name) const {
  std::vector<std::string> names;
  for (const SelectorEntry& entry : entries_) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
    for (const auto& [preset, assignments] : entry.presets) names.push_back(preset);
  }
  throw ConfigError(fmt::format("unknown selector {}: {}", name, did_you_mean(name, names)));
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
      throw ConfigError(fmt::format("selector {} has no option {}: {}", method, name, did_you_mean(name, known)));
    }
  }
  throw ConfigError(fmt::format("selector {}: options do not fit", method));
}

}  // namespace kvscope
