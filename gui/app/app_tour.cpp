// The App's tour of six steps: when it begins, and where its steps point.
#include <nlohmann/json.hpp>
#include <optional>

#include "gui/app/app.hpp"

namespace kvscope::gui {

std::optional<Area> App::place_of(const std::string& target) const {
  if (const auto area = cells_.area_of(target)) return area;
  for (const Landmark& mark : landmarks_) {
    if (mark.name != target) continue;
    const float edge = look_.px(3);
    return Area{mark.low.x - edge, mark.low.y - edge, mark.high.x - mark.low.x + 2 * edge,
                mark.high.y - mark.low.y + 2 * edge};
  }
  return std::nullopt;
}

void App::draw_tour() {
  if (awaited_traces_ > 0 && !session_->is_opening()) {
    if (session_->documents().size() >= awaited_traces_) tour_.start();
    awaited_traces_ = 0;
  }
  if (!tour_.step()) {
    shown_step_ = tour_steps().size();
    return;
  }
  if (session_->documents().empty()) {
    tour_.leave();
    return;
  }
  if (shown_step_ != *tour_.step()) {
    shown_step_ = *tour_.step();
    const std::string layout = tour_steps()[shown_step_].layout;
    if (!layout.empty()) show_layout(layout);
    settings_.show_sidebar = true;
  }
  if (tour_.draw(look_, [this](const std::string& target) { return place_of(target); })) {
    requests_.redraw = true;
    if (!tour_.step()) settings_.tour_done = true;
  }
}

}  // namespace kvscope::gui
