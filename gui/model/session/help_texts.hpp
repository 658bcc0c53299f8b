// What each panel shows, in words and formulas, with the place in the paper: the one table of such
// texts. The help that unfolds above a panel's picture shows them.
#pragma once

#include <span>
#include <string_view>

namespace kvscope::gui {

struct HelpText {
  std::string_view title;
  std::string_view formula;  // lines of Unicode; may be empty
  std::string_view words;
  std::string_view source;  // paper and number; empty: our own definition
};

/// By the panel's name; empty if there are none.
std::span<const HelpText> help_texts(std::string_view panel);

}  // namespace kvscope::gui
