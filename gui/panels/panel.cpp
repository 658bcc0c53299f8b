#include "gui/panels/panel.hpp"

#include <nlohmann/json.hpp>

#include "notebooks_export/figure_csv.hpp"

namespace kvscope::gui {

nlohmann::ordered_json Panel::options() const {
  return nlohmann::ordered_json::object();
}

std::optional<std::string> Panel::csv() const {
  const auto shown = figure();
  if (!shown) return std::nullopt;
  return figure_csv(*shown);
}

}  // namespace kvscope::gui
