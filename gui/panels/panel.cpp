#include "gui/panels/panel.hpp"

#include "notebooks_export/figure_csv.hpp"

namespace kvscope::gui {

std::optional<std::string> Panel::csv() const {
  const auto shown = figure();
  if (!shown) return std::nullopt;
  return figure_csv(*shown);
}

}  // namespace kvscope::gui
