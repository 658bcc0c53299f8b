// The methods that one can tick: what they are called and how they work, and why one may not answer
// here.
#pragma once

#include <string>
#include <vector>

#include "gui/model/session/methods.hpp"

namespace kvscope::gui {

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

}  // namespace kvscope::gui
