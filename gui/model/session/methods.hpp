// Methods as the sliders set them: which options and budget a method gets from them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/selectors/method_spec.hpp"
#include "gui/model/session/selection.hpp"

namespace kvscope::gui {

/// "quoka" with the sliders' values for the options it has: "quoka:n-queries=16". A preset, and
/// what holds options or is a stack already ("quest:page-size=32", "a+b"), is left as it is. Throws
/// ConfigError for values that the method does not take.
MethodSpec spec_of(MethodSpec method, const Parameters& parameters);

/// The budget of a method: tokens where it takes tokens, else the mass p; empty if it takes none.
std::optional<Budget> budget_of(const MethodSpec& method, const Parameters& parameters);

/// The phase in which a query at this position runs: prefill in the prompt, decode after it.
Phase phase_of(const TraceInfo& info, Index query);

/// Why the method cannot answer here, as a sentence; empty if it can. It may need a draft trace, or
/// not be defined for the phase.
std::string obstacle(const MethodSpec& method, Phase phase, bool has_draft);

/// All methods that one can pick, presets included, in the registry's order.
std::vector<std::string> method_names();

}  // namespace kvscope::gui
