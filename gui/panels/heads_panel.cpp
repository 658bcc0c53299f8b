// The head atlas: a small attention map and a number of every layer and head of the selected trace.
#include <fmt/format.h>

#include "gui/model/session/json_fields.hpp"
#include "gui/model/traces/head_atlas_view.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

struct HeadsSwitches {
  AtlasNumber number = AtlasNumber::distance;
  AtlasSort sort = AtlasSort::layers;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(
        Field{
            "number",
            "the number of each head: how far back it looks (tokens), entropy (nats), its share of "
            "the first tokens, of the nearest keys, of tokens that followed an earlier occurrence "
            "of the current one (retrieval), or what the selected method loses of it"},
        self.number);
    visit(Field{"sort", "heads by layer, or the largest number first"}, self.sort);
  }
};

class HeadsPanel final : public Panel {
 public:
  PanelInfo info() const override {
    return {
        "heads", "Head atlas",
        "Which heads do what: a small attention map and a number of every layer and query head. "
        "Click one to select it."};
  }

  void controls(PanelContext& context) override {
    choose("##number", switches_.number, context.look.px(110));
    help_tooltip(field_help<HeadsSwitches>("number"));
    ImGui::SameLine();
    segmented("sort", switches_.sort);
    help_tooltip(field_help<HeadsSwitches>("sort"));
  }

  void draw(PanelContext& context) override {
    waiting_ = false;
    shows_atlas_ = false;
    if (needs_trace(context)) return;
    const auto document = context.session.document();
    if (document->key() != document_key_) slot_.clear();
    document_key_ = document->key();
    const auto view = ask(context, document);
    waiting_ = view.is_pending();
    if (!async_place(context, slot_, view)) return;
    if (switches_.number == AtlasNumber::lost_mass && !has_loss(*view.value)) {
      empty_place(context, "The selected method is not measured in prefill",
                  "Choose another method in the side bar, or another number.");
      return;
    }
    update_picture(view.value);
    shows_atlas_ = true;
    show_picture(context);
  }

  std::optional<plot::Figure> figure() const override {
    if (!view_ || !shows_atlas_) return std::nullopt;
    return view_->current_figure();
  }
  std::optional<std::string> csv() const override {
    if (!atlas_ || !shows_atlas_) return std::nullopt;
    return head_atlas_csv(*atlas_);
  }
  nlohmann::ordered_json options() const override { return fields_to_json(switches_); }
  void set_options(const nlohmann::ordered_json& options) override {
    HeadsSwitches switches = switches_;
    fields_from_json(options, switches);
    check_fields(switches);
    switches_ = switches;
  }
  std::vector<std::pair<std::string, ImVec2>> landmarks() const override {
    std::vector<std::pair<std::string, ImVec2>> places;
    if (!view_ || !shows_atlas_) return places;
    for (const AtlasPlace& place : picture_.places) {
      if (const auto at = view_->place(0, place.x + 0.5, place.y + 0.5))
        places.emplace_back(fmt::format("layer {} head {}", place.layer, place.q_head), *at);
    }
    return places;
  }
  bool is_busy() const override { return waiting_; }

 private:
  static bool has_loss(const HeadAtlas& atlas) {
    return !atlas.result.summary()["methods"].empty();
  }

  /// What is measured besides the maps: the loss under the selected method, where prefill has it.
  HeadsOptions options_of(const PanelContext& context) const {
    const Parameters& parameters = context.session.parameters();
    const MethodSpec& method = context.session.selection().selector;
    HeadsOptions options;
    options.rows = 256;
    options.selector.clear();
    if (switches_.number != AtlasNumber::lost_mass) return options;
    const SelectorCaps& caps = method.caps();
    if (!caps.is_defined(Phase::prefill) || caps.needs_draft) return options;
    options.selector = method.text();
    options.budget = fmt::format("tokens={}", parameters.budget);
    options.chunk = parameters.chunk;
    options.dense_layers = parameters.dense_layers;
    return options;
  }

  AsyncView<HeadAtlas> ask(PanelContext& context, const std::shared_ptr<const Document>& document) {
    const HeadsOptions options = options_of(context);
    return slot_.ask(
        context.session.bench(),
        fmt::format("{}heads/{}", document->key(), fields_to_json(options).dump()),
        {fmt::format("Heads of {}", document->name()), Lane::heavy},
        [=](JobContext& job) { return head_atlas_of(document->source(), options, job); });
  }

  void update_picture(const std::shared_ptr<const HeadAtlas>& atlas) {
    const AtlasChoice choice{switches_.number, switches_.sort};
    if (atlas == atlas_ && choice == drawn_) return;
    atlas_ = atlas;
    drawn_ = choice;
    picture_ = draw_atlas(*atlas_, drawn_);
    ++version_;
  }

  void show_picture(PanelContext& context) {
    if (!view_) view_.emplace(context.fonts, context.textures);
    view_->show(picture_.figure, version_, ImGui::GetContentRegionAvail(),
                {context.look.ground, context.look.surface, {}});
    const Selection& selection = context.session.selection();
    if (const AtlasPlace* place = picture_.of(selection.layer, selection.q_head)) {
      AccentMarks marks(context, *view_, 0);
      marks.frame({place->x, place->x + 1.0}, {place->y, place->y + 1.0}, 1.0f);
    }
    const auto& hit = view_->hit();
    const AtlasPlace* place = hit ? picture_.at(hit->x, hit->y) : nullptr;
    if (place == nullptr) return;
    detail_tooltip(head_lines(*atlas_, place->layer, place->q_head));
    if (!hit->clicked) return;
    context.session.select("head atlas click", [&](Selection& s) {
      s.layer = place->layer;
      s.q_head = place->q_head;
    });
  }

  HeadsSwitches switches_;
  AsyncValue<HeadAtlas> slot_;
  bool waiting_ = false;
  bool shows_atlas_ = false;  // in the last frame

  // what is shown
  std::string document_key_;
  std::shared_ptr<const HeadAtlas> atlas_;
  AtlasChoice drawn_;
  AtlasPicture picture_;
  std::uint64_t version_ = 0;
  std::optional<FigureView> view_;
};

}  // namespace

std::unique_ptr<Panel> make_heads_panel() {
  return std::make_unique<HeadsPanel>();
}

}  // namespace kvscope::gui
