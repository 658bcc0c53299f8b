#include "gui/model/methods.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvscope::gui {

namespace {

bool is_plain(const std::string& selector) {
  return selector.find_first_of(":+@") == std::string::npos;
}

/// The caps of whatever the specification makes.
SelectorCaps caps_of(const std::string& spec) {
  return selector_registry().make(spec)->caps();
}

}  // namespace

std::string spec_of(const std::string& selector, const Parameters& parameters) {
  if (!is_plain(selector)) return selector;
  for (const SelectorEntry& entry : selector_registry().entries()) {
    if (entry.name != selector) continue;
    std::string assignments;
    for (const SelectorOption& option : entry.options) {
      const auto set = [&](std::string_view name, Index value) {
        if (option.name != name) return;
        assignments += fmt::format("{}{}={}", assignments.empty() ? "" : ",", name, value);
      };
      set("n-queries", parameters.n_queries);
      set("page-size", parameters.page_size);
    }
    return assignments.empty() ? selector : selector + ":" + assignments;
  }
  return selector;  // a preset: it is what its name says
}

std::optional<Budget> budget_of(const std::string& selector, const Parameters& parameters) {
  const SelectorCaps caps = caps_of(selector);
  const auto takes = [&](Budget::Kind kind) {
    return std::find(caps.budgets.begin(), caps.budgets.end(), kind) != caps.budgets.end();
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

std::string obstacle(const std::string& selector, Phase phase, bool has_draft) {
  const SelectorCaps caps = caps_of(selector);
  if (phase == Phase::prefill && !caps.prefill) {
    return fmt::format(
        "{} is not defined for prefill: choose a decoded position, or another method.", selector);
  }
  if (phase == Phase::decode && !caps.decode) {
    return fmt::format(
        "{} is not defined for decode steps: choose a position in the prompt, or another method.",
        selector);
  }
  if (caps.needs_draft && !has_draft) {
    return fmt::format(
        "{} needs the draft model's trace of the same tokens: open it, and name it as the second "
        "trace.",
        selector);
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

}  // namespace kvscope::gui
