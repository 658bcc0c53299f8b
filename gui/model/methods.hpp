// Methods as the sliders set them: which specification and budget a selector's name stands for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/selectors/registry.hpp"
#include "gui/model/selection.hpp"

namespace kvscope::gui {

/// "quoka" with the sliders' values for the options it has: "quoka:n-queries=16". A name that holds
/// options or a stack already ("quest:page-size=32", "a+b") is left as it is.
std::string spec_of(const std::string& selector, const Parameters& parameters);

/// The budget of a method: tokens where it takes tokens, else the mass p; empty if it takes none.
std::optional<Budget> budget_of(const std::string& selector, const Parameters& parameters);

/// The phase in which a query at this position runs: prefill in the prompt, decode after it.
Phase phase_of(const TraceInfo& info, Index query);

/// Why the method cannot answer here, as a sentence; empty if it can. It may need a draft trace, or
/// not be defined for the phase.
std::string obstacle(const std::string& selector, Phase phase, bool has_draft);

/// All methods that one can pick, presets included, in the registry's order.
std::vector<std::string> method_names();

}  // namespace kvscope::gui
