#include "gui/panels/panel_base.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "notebooks_export/figure_csv.hpp"

namespace kvscope::gui {

FigureStyle panel_style(const PanelContext& context) {
  return {.ground = context.look.ground, .paper = context.look.surface};
}

void take_brush(PanelContext& context, Brush brush) {
  context.session.set_brush(std::move(brush));
  const Brush& taken = context.session.brush();
  context.requests.flash =
      taken.empty() ? "nothing is in the lasso" : taken.words() + " (Esc lets go)";
}

void PanelFigure::show(PanelContext& context, const plot::Figure& figure, ImVec2 size,
                       const FigureStyle& style) {
  if (!view_) view_.emplace(context.fonts, context.textures);
  view_->show(figure, version_, size, style);
  if (view_->is_rough()) context.requests.redraw = true;
  is_shown_ = true;
}

void PanelFigure::show_above(PanelContext& context, const plot::Figure& figure, float below,
                             bool takes_lasso) {
  ImVec2 size = ImGui::GetContentRegionAvail();
  if (below > 0.0f) size.y = std::max(context.look.px(60), size.y - below);
  FigureStyle style = panel_style(context);
  style.takes_lasso = takes_lasso;
  show(context, figure, size, style);
}

std::optional<plot::Figure> PanelFigure::current() const {
  if (!is_shown_) return std::nullopt;
  return view_->current_figure();
}

nlohmann::ordered_json Panel::options() const {
  return nlohmann::ordered_json::object();
}

std::optional<std::string> Panel::csv() const {
  const auto shown = figure();
  if (!shown) return std::nullopt;
  return figure_csv(*shown);
}

}  // namespace kvscope::gui
