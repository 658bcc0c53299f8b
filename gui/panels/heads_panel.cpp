// The head atlas: a small attention map and a number of every layer and head of the selected trace.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gui/model/session/methods.hpp"
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
    static const std::vector<std::string> kNumbers = {
        "distance (tokens)",  "entropy (nats)", "share of first tokens",
        "share of near keys", "retrieval",      "attention lost"};
    static const std::vector<std::string> kCouple = {
        "attention lost", "keys in common", "kept by the first alone", "kept by the other alone"};
    if (compares_methods()) {
      switch_list(switches_, switches_.couple, context.look.px(150), kCouple);
    } else {
      switch_list(switches_, switches_.number, context.look.px(150), kNumbers);
    }
    switch_buttons(switches_, switches_.sort);
    switch_label("difference of");
    static const std::vector<std::string> kOf = {"nothing", "two methods", "two traces"};
    switch_list(switches_, switches_.difference, context.look.px(116), kOf);
  }

  std::optional<std::string> csv() const override {
    if (!figure_.is_shown()) return std::nullopt;
    return head_atlas_csv(*value_, difference());
  }
  Places landmarks() const override {
    Places places;
    if (!figure_.is_shown()) return places;
    for (const AtlasPlace& place : atlas_.places) {
      places.add(fmt::format("layer {} head {}", place.layer, place.q_head),
                 figure_.place(0, place.x + 0.5, place.y + 0.5));
    }
    return places;
  }

 private:
  bool compares_methods() const { return switches_.difference == AtlasDifference::methods; }
  const figures::HeadDifference* difference() const {
    return atlas_.difference ? &*atlas_.difference : nullptr;
  }
  bool compares_traces() const { return switches_.difference == AtlasDifference::traces; }

  std::shared_ptr<const Document> second_of(const Session& session) const override {
    return compares_traces() ? session.second() : nullptr;
  }

  /// What is measured besides the maps: the loss under the selected method, and under the one it is
  /// compared with, where prefill has it; of the two, their keys.
  AtlasRequest request_of(const PanelContext& context) const {
    const Parameters& parameters = context.session.parameters();
    const Selection& selected = context.session.selection();
    HeadsOptions options = plain_atlas_options();
    if (switches_.number != AtlasNumber::lost_mass && !compares_methods()) return options;
    std::vector<std::string> methods;
    const auto add = [&](const MethodSpec& method) {
      const SelectorCaps& caps = method.caps();
      if (caps.is_defined(Phase::prefill) && !caps.needs_draft)
        methods.push_back(spec_of(method, parameters).text());
    };
    add(selected.selector);
    if (compares_methods() && selected.other != selected.selector) add(selected.other);
    if (methods.empty()) return options;
    options.selector = fmt::format("{}", fmt::join(methods, ","));
    options.budget = fmt::format("tokens={}", parameters.budget);
    options.chunk = parameters.chunk;
    options.dense_layers = parameters.dense_layers;
    return {options, methods.size() > 1 && switches_.couple != AtlasCouple::lost};
  }

  std::optional<Question> question(PanelContext& context) override {
    const AtlasRequest request = request_of(context);
    Question asked{head_atlas_key(request),
                   {fmt::format("Heads of {}", document_->name()), Lane::heavy},
                   on_traces(document_, second_, request, head_atlases_of)};
    if (request.heads.selector.empty()) {  // the loss of a method needs its whole replay
      asked.rough_key = head_atlas_key(rough_atlas_options());
      asked.compute_rough =
          on_traces(document_, second_, AtlasRequest(rough_atlas_options()), head_atlases_of);
    }
    return asked;
  }

  bool lacks_figure(PanelContext& context) override {
    const std::size_t n_methods = value_->methods().size();
    if (compares_methods() && n_methods < 2) {
      empty_place(context, "There are no two methods to compare in prefill",
                  "Choose two different ones in the side bar: the method, and \"against\".");
      return true;
    }
    if (compares_traces() && !value_->second) {
      empty_place(context, "There is no second trace to compare with",
                  "Open one (Ctrl+O), or choose it in the side bar.");
      return true;
    }
    if (switches_.number != AtlasNumber::lost_mass || n_methods > 0) return false;
    empty_place(context, "The selected method is not measured in prefill",
                "Choose another method in the side bar, or another number.");
    return true;
  }

  plot::Figure make_picture() override {
    atlas_ = draw_atlas(*value_, switches_);
    return std::move(atlas_.figure);
  }

  void draw_over(PanelContext& context) override {
    const auto cell_of = [&](Index layer, Index q_head) {
      std::optional<std::pair<plot::Range, plot::Range>> cell;
      const AtlasPlace* place = atlas_.of(layer, q_head);
      if (place != nullptr) cell = {{place->x, place->x + 1.0}, {place->y, place->y + 1.0}};
      return cell;
    };
    frame_heads(context, figure_, cell_of, 1.0f);
  }

  void follow(PanelContext& context, const FigureHit& hit) override {
    const AtlasPlace* place = atlas_.at(hit.x, hit.y);
    if (place == nullptr) return;
    detail_tooltip(head_lines(*value_, place->layer, place->q_head, difference()),
                   Pointed::at_head(place->layer, place->q_head));
    if (!hit.clicked) return;
    context.session.select_head("head atlas click", place->layer, place->q_head);
  }

  AtlasPicture atlas_;  // without its figure
};

}  // namespace

std::unique_ptr<Panel> make_heads_panel() {
  return std::make_unique<HeadsPanel>();
}

}  // namespace kvscope::gui
