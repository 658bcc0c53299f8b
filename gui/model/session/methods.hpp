// Methods as the sliders set them: which options and budget a method gets from them. And those that
// one can tick: what they are called and how they work, and why one may not answer here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
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

struct MethodItem {
  std::string name;      // "quoka", as Session::ticked has it
  MethodSpec spec;       // with the sliders' values; empty if there is no such method
  std::string title;     // "QuoKA: query-oriented KV selection"
  std::string idea;      // one sentence
  std::string obstacle;  // why it is not defined here, as a sentence; empty if it is
  bool is_ticked = false;
};

/// The ticked ones in the order in which they were ticked, whether the registry knows them by that
/// name or not (a session file may name "quest:page-size=32"); then all others, oracles first.
std::vector<MethodItem> method_items(const std::vector<std::string>& ticked,
                                     const Parameters& parameters, Phase phase, bool has_draft);

/// A method in a list of all of them.
struct MethodLine {
  std::string name;
  std::string title;
  std::string idea;   // one sentence
  std::string paper;  // "arXiv 2406.10774, 2024"
};
struct MethodGroup {
  std::string heading;
  std::vector<MethodLine> methods;  // never empty
};
/// Those that hold every typed word in name, title, idea, paper or heading, in any case, under the
/// headings of their families. Without words, `recent` stand above them.
std::vector<MethodGroup> method_groups(std::string_view typed,
                                       const std::vector<std::string>& recent = {});

}  // namespace kvscope::gui
