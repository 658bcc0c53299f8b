#include "gui/model/session/method_items.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace kvscope::gui {

namespace {

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Title and idea of the method, of a stack's first one.
void describe(MethodItem& item) {
  if (item.spec.empty()) return;
  const MethodSpec::Stage& stage = item.spec.stages().front();
  item.title = stage.method->title;
  item.idea = stage.method->idea;
  const auto preset = stage.method->presets.find(stage.name);
  if (preset == stage.method->presets.end()) return;
  std::vector<std::string> assignments;
  for (const auto& [option, value] : preset->second) {
    assignments.push_back(fmt::format("{}={}", option, value));
  }
  const auto wrapper = stage.method->preset_wrappers.find(stage.name);
  if (wrapper != stage.method->preset_wrappers.end()) assignments.push_back("+" + wrapper->second);
  item.title += fmt::format(" ({})", fmt::join(assignments, ", "));
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
      item.spec = name;
      item.obstacle = obstacle(item.spec, phase, has_draft);
      item.spec = spec_of(item.spec, parameters);
    } catch (const Error& e) {  // no such method, or the sliders say more than it takes
      if (item.obstacle.empty()) item.obstacle = e.what();
    }
    describe(item);
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace kvscope::gui
