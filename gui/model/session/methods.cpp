#include "gui/model/session/methods.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvscope::gui {

MethodSpec spec_of(MethodSpec method, const Parameters& parameters) {
  if (!method.is_plain()) return method;
  method.fill("n-queries", parameters.n_queries);
  method.fill("page-size", parameters.page_size);
  return method;
}

std::optional<Budget> budget_of(const MethodSpec& method, const Parameters& parameters) {
  const SelectorCaps& caps = method.caps();
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

}  // namespace kvscope::gui
