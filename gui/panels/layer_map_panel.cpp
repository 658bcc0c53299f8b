// SpecAttn's layer map: how far each layer of the second trace, the draft, is from each layer of
// the selected one, the verifier.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "gui/model/bounds/layer_map_view.hpp"
#include "gui/model/session/json_fields.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

struct LayerMapSwitches {
  LayerMapMetric metric = LayerMapMetric::kl;
  RowChoice row_choice = RowChoice::spaced;
  Index rows = 256;
  Smoothing smoothing = Smoothing::when_zero;
  bool drop_sink = false;
  TokenMatch token_match = TokenMatch::exact;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"metric",
                "KL(verifier || draft), total variation, or Pinsker's floor on the "
                "verifier's mass on the draft's nucleus"},
          self.metric);
    visit(Field{"row-choice", "query rows compared: evenly spaced ones, or all"}, self.row_choice);
    visit(Field{"rows", "how many evenly spaced query rows are compared"}.at_least(1), self.rows);
    visit(Field{"smoothing",
                "when a small number is added to a row so that no key has zero "
                "attention: when_zero, always or never"},
          self.smoothing);
    visit(Field{"drop-sink", "leave out key 0, the attention sink, and renormalise both rows"},
          self.drop_sink);
    visit(Field{"token-match",
                "both traces must hold the same tokens (exact), or their common "
                "beginning is compared (common_prefix)"},
          self.token_match);
  }
};

class LayerMapPanel final : public Panel {
 public:
  PanelInfo info() const override {
    return {"layer-map", "Layer map",
            "How far the draft's layers are from the verifier's over the same tokens, with the "
            "order-keeping map boxed. Click a cell to select its verifier layer."};
  }

  void controls(PanelContext& context) override {
    segmented("metric", switches_.metric);
    help_tooltip(field_help<LayerMapSwitches>("metric"));
    ImGui::SameLine();
    choose_rows(context);
    ImGui::SameLine();
    choose_smoothing(context);
    ImGui::SameLine();
    ImGui::Checkbox("drop sink", &switches_.drop_sink);
    help_tooltip(field_help<LayerMapSwitches>("drop-sink"));
    if (!context.session.second()) return;
    ImGui::SameLine();
    if (ImGui::Button("Swap")) swap_traces(context.session);
    help_tooltip(fmt::format("Verifier: {}. Draft: {}. Exchanges the two.",
                             context.session.document()->name(), context.session.second()->name()));
  }

  void draw(PanelContext& context) override {
    waiting_ = false;
    shows_map_ = false;
    if (needs_trace(context) || lacks_second(context)) return;
    const auto verifier = context.session.document();
    const auto draft = context.session.second();
    if (draw_obstacle(context, *verifier, *draft)) return;
    if (verifier->key() + draft->key() != documents_key_) slot_.clear();
    documents_key_ = verifier->key() + draft->key();
    suggest_swap(context, *verifier, *draft);
    const auto view = ask(context, verifier, draft);
    waiting_ = view.is_pending();
    if (!async_place(context, slot_, view)) return;
    update_figure(view.value);
    shows_map_ = true;
    show_figure(context);
    draw_selected(context);
    if (const auto& hit = view_->hit(); hit && hit->row && hit->col) {
      if (const LayerMapCell* cell = map_->cell(*hit->row, *hit->col)) {
        explain(*cell);
        if (hit->clicked) choose_cell(context, *cell);
      }
    }
    draw_numbers(context);
  }

  std::optional<plot::Figure> figure() const override {
    if (!view_ || !shows_map_) return std::nullopt;
    return view_->current_figure();
  }
  std::optional<std::string> csv() const override {
    if (!map_ || !shows_map_) return std::nullopt;
    return layer_map_csv(*map_);
  }
  std::optional<ImVec2> place(std::size_t panel, double x, double y) const override {
    return view_ && shows_map_ ? view_->place(panel, x, y) : std::nullopt;
  }
  nlohmann::ordered_json options() const override { return fields_to_json(switches_); }
  void set_options(const nlohmann::ordered_json& options) override {
    LayerMapSwitches switches = switches_;
    fields_from_json(options, switches);
    check_fields(switches);
    switches_ = switches;
  }
  bool is_busy() const override { return waiting_; }

 private:
  // ---- switches ----

  void choose_rows(PanelContext& context) {
    static const std::vector<std::string> kNames = {"64 rows", "256 rows", "1024 rows", "all rows"};
    std::string chosen = switches_.row_choice == RowChoice::all
                             ? kNames.back()
                             : fmt::format("{} rows", switches_.rows);
    if (choose("##rows", chosen, kNames, context.look.px(98))) {
      switches_.row_choice = chosen == kNames.back() ? RowChoice::all : RowChoice::spaced;
      if (switches_.row_choice == RowChoice::spaced) switches_.rows = std::stoll(chosen);
    }
    help_tooltip(field_help<LayerMapSwitches>("rows"));
  }

  void choose_smoothing(PanelContext& context) {
    static const std::vector<std::string> kNames = {"smooth zeros", "smooth all", "no smoothing"};
    std::string chosen = kNames[static_cast<std::size_t>(switches_.smoothing)];
    if (choose("##smoothing", chosen, kNames, context.look.px(132))) {
      switches_.smoothing =
          static_cast<Smoothing>(std::find(kNames.begin(), kNames.end(), chosen) - kNames.begin());
    }
    help_tooltip(field_help<LayerMapSwitches>("smoothing"));
  }

  // ---- the two traces ----

  /// Says what a draft is for, and offers the other open traces as one.
  bool lacks_second(PanelContext& context) {
    const auto others = other_traces(context.session);
    if (others.empty()) {
      return needs_second(context,
                          "SpecAttn's map pairs the layers of a verifier with those of its draft");
    }
    if (context.session.second()) return false;
    ImGui::TextUnformatted("Which trace is the draft of the selected one?");
    for (const Index other : others) {
      const auto& document = context.session.documents()[static_cast<std::size_t>(other)];
      if (ImGui::Button(fmt::format("{}##{}", document->name(), other).c_str())) {
        context.session.set_second(other);
      }
    }
    return true;
  }

  /// True if the traces cannot be compared, which was said.
  bool draw_obstacle(PanelContext& context, const Document& verifier, const Document& draft) {
    const std::string key = verifier.key() + draft.key() + fields_to_json(switches_).dump();
    if (key != obstacle_key_) {
      obstacle_key_ = key;
      obstacle_ = layer_map_obstacle(verifier.source(), draft.source(), options_of(context));
    }
    if (!obstacle_) return false;
    empty_place(context, "These traces cannot be compared", obstacle_->sentence);
    if (obstacle_->prefix_helps) {
      const char* label = "Compare what they share";
      const float width = ImGui::CalcTextSize(label).x + 2 * ImGui::GetStyle().FramePadding.x;
      ImGui::SetCursorPosX(0.5f * (ImGui::GetWindowWidth() - width));
      if (ImGui::Button(label)) switches_.token_match = TokenMatch::common_prefix;
    }
    return true;
  }

  void suggest_swap(PanelContext& context, const Document& verifier, const Document& draft) {
    const std::size_t n_verifier = verifier.info().layers.size();
    const std::size_t n_draft = draft.info().layers.size();
    if (n_draft <= n_verifier) return;
    ImGui::PushStyleColor(ImGuiCol_Text, packed(context.look.warning));
    ImGui::TextWrapped("%s", fmt::format("The draft is the smaller model, but {} has {} layers and "
                                         "{} has {}.",
                                         draft.name(), n_draft, verifier.name(), n_verifier)
                                 .c_str());
    ImGui::PopStyleColor();
    if (ImGui::SmallButton(fmt::format("Take {} as the draft", verifier.name()).c_str())) {
      swap_traces(context.session);
    }
  }

  // ---- what is asked for, and its figure ----

  LayerMapOptions options_of(const PanelContext& context) const {
    LayerMapOptions options;
    options.row_choice = switches_.row_choice;
    options.rows = switches_.rows;
    options.smoothing = switches_.smoothing;
    options.drop_sink = switches_.drop_sink;
    options.token_match = switches_.token_match;
    options.dense_layers = context.session.parameters().dense_layers;
    options.nucleus = context.session.parameters().nucleus;
    return options;
  }

  AsyncView<LayerMap> ask(PanelContext& context, const std::shared_ptr<const Document>& verifier,
                          const std::shared_ptr<const Document>& draft) {
    const LayerMapOptions options = options_of(context);
    return slot_.ask(
        context.session.bench(),
        fmt::format("{}{}layer-map/{}", verifier->key(), draft->key(),
                    fields_to_json(options).dump()),
        {fmt::format("Layer map of {} and {}", verifier->name(), draft->name()), Lane::heavy},
        [=](JobContext& job) {
          return layer_map(verifier->source(), draft->source(), options, job);
        });
  }

  void update_figure(const std::shared_ptr<const LayerMap>& map) {
    if (map == map_ && drawn_metric_ == switches_.metric) return;
    map_ = map;
    drawn_metric_ = switches_.metric;
    figure_ = layer_map_figure(*map_, switches_.metric);
    ++version_;
  }

  void show_figure(PanelContext& context) {
    if (!view_) view_.emplace(context.fonts, context.textures);
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const float below = accent_words_height(cell_words(context)) +
                        accent_words_height(sum_words()) + context.look.px(2);
    view_->show(figure_, version_, {room.x, std::max(context.look.px(60), room.y - below)},
                {context.look.ground, context.look.surface, {}});
  }

  /// The column of the selected layer, and the cell that was clicked in it.
  void draw_selected(PanelContext& context) {
    const auto& layers = map_->verifier_layers;
    const Index selected = context.session.selection().layer;
    const auto at = std::find(layers.begin(), layers.end(), selected);
    if (at == layers.end()) return;
    const auto x = static_cast<double>(at - layers.begin());
    AccentMarks marks(context, *view_, 0);
    marks.frame({x, x + 1.0}, {0.0, static_cast<double>(map_->draft_layers.size())}, 4.0f);
  }

  void choose_cell(PanelContext& context, const LayerMapCell& cell) {
    draft_layer_ = cell.draft_layer;
    context.session.select("layer map click", [&](Selection& s) { s.layer = cell.verifier_layer; });
  }

  // ---- words ----

  static std::string standing_of(const LayerMapCell& cell) {
    if (cell.in_monotone && cell.is_least) return "in the map, and least of its column";
    if (cell.in_monotone) return "in the map";
    return cell.is_least ? "least of its column, not in the map" : "not in the map";
  }

  void explain(const LayerMapCell& cell) const {
    detail_tooltip({{"verifier", fmt::format("{}, layer {}", map_->verifier, cell.verifier_layer)},
                    {"draft", fmt::format("{}, layer {}", map_->draft, cell.draft_layer)},
                    {"KL", fmt::format("{:.6g} nats", cell.kl)},
                    {"KL, smoothed", fmt::format("{:.6g} nats", cell.kl_smoothed)},
                    {"total variation", fmt::format("{:.6g}", cell.total_variation)},
                    {"Pinsker floor", fmt::format("{:.6g}", cell.pinsker_floor)},
                    {"", standing_of(cell)}});
  }

  /// The clicked cell of the selected layer, or the one that the map gives it.
  const LayerMapCell* cell_in_focus(Index verifier_layer) const {
    for (const LayerMapCell& cell : map_->cells) {
      if (cell.verifier_layer == verifier_layer && cell.draft_layer == draft_layer_) return &cell;
    }
    return map_->mapped(verifier_layer);
  }

  std::string cell_words(const PanelContext& context) const {
    const Index layer = context.session.selection().layer;
    const LayerMapCell* cell = cell_in_focus(layer);
    if (cell == nullptr) return fmt::format("verifier layer {} stays dense", layer);
    return fmt::format(
        "verifier layer {}, draft layer {}: KL {:.4g} nats, total variation {:.4g}, floor {:.4g}; "
        "{}",
        layer, cell->draft_layer, cell->kl, cell->total_variation, cell->pinsker_floor,
        standing_of(*cell));
  }

  std::string sum_words() const {
    return fmt::format(
        "sum of KL: {:.4g} nats along the map, {:.4g} along the least of each column; {} rows of "
        "{} tokens",
        map_->monotone_cost, map_->argmax_cost, map_->n_rows, map_->n_tokens);
  }

  void draw_numbers(PanelContext& context) {
    accent_words(context, cell_words(context));
    ImGui::PushStyleColor(ImGuiCol_Text, packed(context.look.muted));
    ImGui::TextWrapped("%s", sum_words().c_str());
    ImGui::PopStyleColor();
    help_tooltip(
        fmt::format("{} rows of layers were smoothed. Smoothing all of them would change a "
                    "cell by {:.2g} nats at most.",
                    map_->n_smoothed, map_->smoothing_change));
  }

  LayerMapSwitches switches_;
  AsyncValue<LayerMap> slot_;
  bool waiting_ = false;
  bool shows_map_ = false;  // in the last frame

  // what is shown
  std::string documents_key_;
  std::shared_ptr<const LayerMap> map_;
  std::optional<LayerMapObstacle> obstacle_;
  std::string obstacle_key_;
  std::optional<Index> draft_layer_;  // of the cell that was clicked last
  LayerMapMetric drawn_metric_ = LayerMapMetric::kl;
  plot::Figure figure_;
  std::uint64_t version_ = 0;
  std::optional<FigureView> view_;
};

}  // namespace

std::unique_ptr<Panel> make_layer_map_panel() {
  return std::make_unique<LayerMapPanel>();
}

}  // namespace kvscope::gui
