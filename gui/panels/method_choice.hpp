// A drop-down of all methods: under their families' headings, with paper and year, found by typing.
#pragma once

#include <string>
#include <vector>

#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// What the drop-downs of a window remember.
struct MethodChoice {
  std::string typed;                // into the field above the list
  std::vector<std::string> recent;  // chosen before, the last one first
};

/// True if another method was chosen. `name`: of the landmark; the field's is "find NAME".
bool choose_method(PanelContext& context, MethodChoice& choice, const char* name,
                   std::string& chosen);

}  // namespace kvscope::gui
