// SpecAttn's layer map: how far each layer of the second trace, the draft, is from each layer of
// the selected one, the verifier.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/fields_json.hpp"
#include "gui/model/bounds/layer_map_view.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/switch_row.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

struct LayerMapSwitches {
  LayerMapMetric metric = option(
      metric, "metric", LayerMapMetric::kl,
      "KL(verifier || draft), total variation, or Pinsker's floor on the verifier's mass on the "
      "draft's nucleus");
  RowChoice row_choice = option(row_choice, "row-choice", RowChoice::spaced,
                                "query rows compared: evenly spaced ones, or all");
  Index rows =
      option(rows, "rows", 256, "how many evenly spaced query rows are compared", at_least(1));
  Smoothing smoothing = option(
      smoothing, "smoothing", Smoothing::when_zero,
      "when a small number is added to a row so that no key has zero attention: when_zero, always "
      "or never");
  bool drop_sink = option(drop_sink, "drop-sink", false,
                          "leave out key 0, the attention sink, and renormalise both rows");
  TokenMatch token_match =
      option(token_match, "token-match", TokenMatch::exact,
             "both traces must hold the same tokens (exact), or their common beginning is compared "
             "(common_prefix)");
  bool operator==(const LayerMapSwitches&) const = default;
};

class LayerMapPanel final : public FigurePanel<LayerMap, LayerMapSwitches> {
 public:
  PanelInfo info() const override {
    return {"layer-map", "Layer map",
            "How far the draft's layers are from the verifier's over the same tokens, with the "
            "order-keeping map boxed. Click a cell to select its verifier layer.",
            Extent::trace};
  }

  void controls(PanelContext& context) override {
    switch_buttons(switches_, switches_.metric);
    choose_rows(context);
    switch_list(switches_, switches_.smoothing, context.look.px(132),
                {"smooth zeros", "smooth all", "no smoothing"});
    switch_box(switches_, switches_.drop_sink, "drop sink");
    if (!context.session.second()) return;
    next_switch();
    if (ImGui::Button("Swap")) swap_traces(context.session);
    help_tooltip(fmt::format("Verifier: {}. Draft: {}. Exchanges the two.",
                             context.session.document()->name(), context.session.second()->name()));
  }

  std::optional<std::string> csv() const override {
    if (!figure_.is_shown()) return std::nullopt;
    return layer_map_csv(*value_);
  }

 private:
  // ---- switches ----

  void choose_rows(PanelContext& context) {
    static const std::vector<std::string> kNames = {"64 rows", "256 rows", "1024 rows", "all rows"};
    std::string chosen = switches_.row_choice == RowChoice::all
                             ? kNames.back()
                             : fmt::format("{} rows", switches_.rows);
    next_switch();
    if (choose("##rows", chosen, kNames, context.look.px(98))) {
      switches_.row_choice = chosen == kNames.back() ? RowChoice::all : RowChoice::spaced;
      if (switches_.row_choice == RowChoice::spaced) switches_.rows = std::stoll(chosen);
    }
    help_tooltip(field_at(switches_, switches_.rows).help);
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
    const std::string key = documents_key(verifier, &draft) + fields_to_json(switches_).dump();
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
    coloured_words(
        context.look.warning,
        fmt::format("The draft is the smaller model, but {} has {} layers and {} has {}.",
                    draft.name(), n_draft, verifier.name(), n_verifier));
    if (ImGui::SmallButton(fmt::format("Take {} as the draft", verifier.name()).c_str())) {
      swap_traces(context.session);
    }
  }

  // ---- what is asked for, and its figure ----

  LayerMapOptions options_of(const PanelContext& context) const {
    return {.row_choice = switches_.row_choice,
            .rows = switches_.rows,
            .smoothing = switches_.smoothing,
            .drop_sink = switches_.drop_sink,
            .dense_layers = context.session.parameters().dense_layers,
            .nucleus = context.session.parameters().nucleus,
            .token_match = switches_.token_match};
  }

  std::shared_ptr<const Document> second_of(const Session& session) const override {
    return session.second();
  }

  std::optional<Question> question(PanelContext& context) override {
    if (lacks_second(context)) return std::nullopt;
    const auto verifier = document_;
    const auto draft = context.session.second();
    if (draw_obstacle(context, *verifier, *draft)) return std::nullopt;
    suggest_swap(context, *verifier, *draft);
    const LayerMapOptions options = options_of(context);
    return Question{"layer-map/" + fields_to_json(options).dump(),
                    {fmt::format("Layer map of {} and {}", verifier->name(), draft->name())},
                    [=](JobContext& job) {
                      return layer_map(verifier->source(), draft->source(), options, job);
                    }};
  }

  plot::Figure make_picture() override { return layer_map_figure(*value_, switches_.metric); }

  float height_below(PanelContext& context) override {
    return accent_words_height(cell_words(context)) + accent_words_height(sum_words()) +
           context.look.px(2);
  }

  /// The column of the selected layer, and the cell that was clicked in it.
  void draw_over(PanelContext& context) override {
    const auto& layers = value_->verifier_layers;
    const Index selected = context.session.selection().layer;
    const auto at = std::ranges::find(layers, selected);
    if (at == layers.end()) return;
    const auto x = static_cast<double>(at - layers.begin());
    AccentMarks marks(context, *figure_, 0);
    marks.frame({x, x + 1.0}, {0.0, static_cast<double>(value_->draft_layers.size())}, 4.0f);
  }

  void follow(PanelContext& context, const FigureHit& hit) override {
    const LayerMapCell* cell = hit.row && hit.col ? value_->cell(*hit.row, *hit.col) : nullptr;
    if (cell == nullptr) return;
    explain(*cell);
    if (!hit.clicked) return;
    draft_layer_ = cell->draft_layer;
    context.session.select("layer map click",
                           [&](Selection& s) { s.layer = cell->verifier_layer; });
  }

  // ---- words ----

  static std::string standing_of(const LayerMapCell& cell) {
    if (cell.in_monotone && cell.is_least) return "in the map, and least of its column";
    if (cell.in_monotone) return "in the map";
    return cell.is_least ? "least of its column, not in the map" : "not in the map";
  }

  void explain(const LayerMapCell& cell) const {
    detail_tooltip(
        {{"verifier", fmt::format("{}, layer {}", value_->verifier, cell.verifier_layer)},
         {"draft", fmt::format("{}, layer {}", value_->draft, cell.draft_layer)},
         {"KL", fmt::format("{:.6g} nats", cell.kl)},
         {"KL, smoothed", fmt::format("{:.6g} nats", cell.kl_smoothed)},
         {"total variation", fmt::format("{:.6g}", cell.total_variation)},
         {"Pinsker floor", fmt::format("{:.6g}", cell.pinsker_floor)},
         {"", standing_of(cell)}});
  }

  /// The clicked cell of the selected layer, or the one that the map gives it.
  const LayerMapCell* cell_in_focus(Index verifier_layer) const {
    for (const LayerMapCell& cell : value_->cells) {
      if (cell.verifier_layer == verifier_layer && cell.draft_layer == draft_layer_) return &cell;
    }
    return value_->mapped(verifier_layer);
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
        value_->total("monotone_cost"), value_->total("argmax_cost"), value_->total("rows"),
        value_->total("tokens"));
  }

  void draw_below(PanelContext& context) override {
    accent_words(context, cell_words(context));
    ImGui::PushStyleColor(ImGuiCol_Text, packed(context.look.muted));
    wrapped_words(sum_words());
    ImGui::PopStyleColor();
    help_tooltip(fmt::format(
        "{} rows of layers were smoothed. Smoothing all of them would change a "
        "cell by {:.2g} nats at most.",
        value_->total("smoothed_layer_rows"), value_->total("largest_change_by_smoothing")));
  }

  std::optional<LayerMapObstacle> obstacle_;
  std::string obstacle_key_;
  std::optional<Index> draft_layer_;  // of the cell that was clicked last
};

}  // namespace

std::unique_ptr<Panel> make_layer_map_panel() {
  return std::make_unique<LayerMapPanel>();
}

}  // namespace kvscope::gui
