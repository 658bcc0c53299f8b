// The head atlas: a small attention map and a number of every layer and head of the selected trace.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gui/model/traces/head_atlas_view.hpp"
#include "gui/model/traces/tour_facts.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/switch_row.hpp"

namespace kvscope::gui {

namespace {

class HeadsPanel final : public FigurePanel<HeadAtlas, AtlasChoice> {
 public:
  PanelInfo info() const override {
    return {
        "heads", "Head atlas",
        "Which heads do what: a small attention map and a number of every layer and query head. "
        "Click one to select it.",
        Extent::trace};
  }

  void controls(PanelContext& context) override {
    switch_list(switches_, switches_.number, context.look.px(110));
    switch_buttons(switches_, switches_.sort);
  }

  std::optional<std::string> csv() const override {
    if (!figure_.is_shown()) return std::nullopt;
    return head_atlas_csv(*value_);
  }
  Places landmarks() const override {
    Places places;
    if (!figure_.is_shown()) return places;
    for (const AtlasPlace& place : picture_.places) {
      places.add(fmt::format("layer {} head {}", place.layer, place.q_head),
                 figure_->place(0, place.x + 0.5, place.y + 0.5));
    }
    return places;
  }

 private:
  static bool has_loss(const HeadAtlas& atlas) {
    return !atlas.result.summary()["methods"].empty();
  }

  /// What is measured besides the maps: the loss under the selected method, where prefill has it.
  HeadsOptions options_of(const PanelContext& context) const {
    const Parameters& parameters = context.session.parameters();
    const MethodSpec& method = context.session.selection().selector;
    HeadsOptions options = plain_atlas_options();
    if (switches_.number != AtlasNumber::lost_mass) return options;
    const SelectorCaps& caps = method.caps();
    if (!caps.is_defined(Phase::prefill) || caps.needs_draft) return options;
    options.selector = method.text();
    options.budget = fmt::format("tokens={}", parameters.budget);
    options.chunk = parameters.chunk;
    options.dense_layers = parameters.dense_layers;
    return options;
  }

  std::optional<Question> question(PanelContext& context) override {
    const HeadsOptions options = options_of(context);
    return Question{head_atlas_key(options),
                    {fmt::format("Heads of {}", document_->name()), Lane::heavy},
                    on_trace(document_, options, head_atlas_of)};
  }

  bool lacks_figure(PanelContext& context) override {
    if (switches_.number != AtlasNumber::lost_mass || has_loss(*value_)) return false;
    empty_place(context, "The selected method is not measured in prefill",
                "Choose another method in the side bar, or another number.");
    return true;
  }

  const plot::Figure& make_picture() override {
    picture_ = draw_atlas(*value_, switches_);
    return picture_.figure;
  }

  void draw_over(PanelContext& context) override {
    const Selection& selection = context.session.selection();
    const AtlasPlace* place = picture_.of(selection.layer, selection.q_head);
    if (place == nullptr) return;
    AccentMarks(context, *figure_, 0)
        .frame({place->x, place->x + 1.0}, {place->y, place->y + 1.0}, 1.0f);
  }

  void follow(PanelContext& context, const FigureHit& hit) override {
    const AtlasPlace* place = picture_.at(hit.x, hit.y);
    if (place == nullptr) return;
    detail_tooltip(head_lines(*value_, place->layer, place->q_head));
    if (!hit.clicked) return;
    context.session.select_head("head atlas click", place->layer, place->q_head);
  }

  AtlasPicture picture_;
};

}  // namespace

std::unique_ptr<Panel> make_heads_panel() {
  return std::make_unique<HeadsPanel>();
}

}  // namespace kvscope::gui
