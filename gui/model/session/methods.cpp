#include "gui/model/session/methods.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/selectors/method_family.hpp"
#include "core/selectors/registry.hpp"
#include "gui/model/session/find_words.hpp"

namespace kvscope::gui {

namespace {

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
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

/// A source with its year, from the number of an arXiv paper; others as they are.
std::string paper_and_year(const std::string& source) {
  const std::size_t at = source.find("arXiv ");
  if (at == std::string::npos) return source;
  // YYMM.NNNNN: since 2007 the number begins with the year. One paper is enough for a line.
  const std::size_t number = at + 6;
  const std::size_t end = std::min(source.find_first_not_of("0123456789.", number), source.size());
  if (end < number + 4) return source;
  return fmt::format("{}, 20{}", source.substr(at, end - at), source.substr(number, 2));
}

}  // namespace

MethodSpec spec_of(MethodSpec method, const Parameters& parameters) {
  if (!method.is_plain()) return method;
  method.fill("n-queries", parameters.n_queries);
  method.fill("page-size", parameters.page_size);
  return method;
}

std::optional<Budget> budget_of(const MethodSpec& method, const Parameters& parameters) {
  const SelectorCaps& caps = method.caps();
  const auto takes = [&](Budget::Kind kind) {
    return std::ranges::find(caps.budgets, kind) != caps.budgets.end();
  };
  if (takes(Budget::Kind::tokens)) {
    return Budget{Budget::Kind::tokens, static_cast<double>(parameters.budget)};
  }
  if (takes(Budget::Kind::mass)) return Budget{Budget::Kind::mass, parameters.nucleus};
  return std::nullopt;
}

Phase phase_of(const TraceInfo& info, Index query) {
  return query < info.n_prompt ? Phase::prefill : Phase::decode;
}

std::string obstacle(const MethodSpec& method, Phase phase, bool has_draft) {
  const SelectorCaps& caps = method.caps();
  if (phase == Phase::prefill && !caps.prefill) {
    return fmt::format(
        "{} is not defined for prefill: choose a decoded position, or another method.", method);
  }
  if (phase == Phase::decode && !caps.decode) {
    return fmt::format(
        "{} is not defined for decode steps: choose a position in the prompt, or another method.",
        method);
  }
  if (caps.needs_draft && !has_draft) {
    return fmt::format(
        "{} needs the draft model's trace of the same tokens: open it, and name it as the second "
        "trace.",
        method);
  }
  return {};
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const SelectorEntry& entry : selector_registry().entries()) {
    names.push_back(entry.name);
    for (const auto& [preset, assignments] : entry.presets) names.push_back(preset);
  }
  return names;
}

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
    MethodItem item{.name = name, .is_ticked = contains(ticked, name)};
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

std::vector<MethodGroup> method_groups(std::string_view typed,
                                       const std::vector<std::string>& recent) {
  const std::vector<std::string> words = lower_words(typed);
  MethodGroup known{"chosen before", {}};
  known.methods.resize(words.empty() ? recent.size() : 0);
  std::vector<MethodGroup> groups;
  for (std::size_t f = 0; f < EnumNames<MethodFamily>::value.size(); ++f) {
    const auto family = static_cast<MethodFamily>(f);
    MethodGroup group{std::string(title_of(family)), {}};
    for (const SelectorEntry& entry : selector_registry().entries()) {
      if (entry.family != family) continue;
      std::vector<std::string> names = {entry.name};
      for (const auto& [preset, assignments] : entry.presets) names.push_back(preset);
      for (const std::string& name : names) {
        const MethodLine line{name, entry.title, entry.idea, paper_and_year(entry.source)};
        const std::string about = lowered(
            fmt::format("{} {} {} {} {}", name, line.title, line.idea, line.paper, group.heading));
        if (!holds_all(about, words)) continue;
        group.methods.push_back(line);
        const auto before = std::ranges::find(recent, name);
        if (words.empty() && before != recent.end())
          known.methods[static_cast<std::size_t>(before - recent.begin())] = line;
      }
    }
    // A name says more than an idea: typed "quest", quest comes before what is compared with it.
    std::stable_partition(group.methods.begin(), group.methods.end(), [&](const MethodLine& line) {
      return holds_all(lowered(line.name), words);
    });
    if (!group.methods.empty()) groups.push_back(std::move(group));
  }
  std::stable_partition(groups.begin(), groups.end(), [&](const MethodGroup& group) {
    return holds_all(lowered(group.methods.front().name), words);
  });
  std::erase_if(known.methods, [](const MethodLine& line) { return line.name.empty(); });
  if (!known.methods.empty()) groups.insert(groups.begin(), std::move(known));
  return groups;
}

}  // namespace kvscope::gui
