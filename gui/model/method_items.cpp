#include "gui/model/method_items.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace kvscope::gui {

namespace {

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Title and idea of a method, or of the method that a preset or specification is one of.
void describe(MethodItem& item) {
  const std::string base = item.name.substr(0, item.name.find_first_of(":+@"));
  for (const SelectorEntry& entry : selector_registry().entries()) {
    const auto preset = entry.presets.find(item.name);
    if (entry.name != base && preset == entry.presets.end()) continue;
    item.title = entry.title;
    item.idea = entry.idea;
    if (preset == entry.presets.end()) return;
    std::vector<std::string> assignments;
    for (const auto& [option, value] : preset->second) {
      assignments.push_back(fmt::format("{}={}", option, value));
    }
    item.title += fmt::format(" ({})", fmt::join(assignments, ", "));
    return;
  }
}

}  // namespace

std::vector<MethodItem> method_items(const std::vector<std::string>& ticked,
                                     const Parameters& parameters, Phase phase, bool has_draft) {
  std::vector<std::string> others = method_names();
  std::stable_partition(others.begin(), others.end(),
                        [](const std::string& name) { return name.starts_with("oracle"); });
  std::vector<std::string> names = ticked;
  for (const std::string& name : others) {
    if (!contains(ticked, name)) names.push_back(name);
  }
  std::vector<MethodItem> items;
  for (const std::string& name : names) {
    MethodItem item;
    item.name = name;
    item.is_ticked = contains(ticked, name);
    try {
      item.spec = spec_of(name, parameters);
      item.obstacle = obstacle(name, phase, has_draft);
      // what the sliders say may be more than the method takes
      if (item.obstacle.empty()) selector_registry().make(item.spec);
    } catch (const Error& e) {
      item.obstacle = e.what();
    }
    describe(item);
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace kvscope::gui
