// SpecAttn's layer map: how far each layer of the second trace, the draft, is from each layer of
// the selected one, the verifier.
#include "analysis/kinds/layer_map.hpp"
#include "gui/panels/analysis_panel.hpp"

namespace kvscope::gui {

namespace {

constexpr float kAround = -1.0f;  // points: the frame stands around the cells

class LayerMapPanel final : public AnalysisPanel<LayerMapOptions> {
 public:
  LayerMapPanel()
      : AnalysisPanel(
            {"layer-map", "Layer map",
             "How far the draft's layers are from the verifier's over the same tokens, with the "
             "order-keeping map boxed. Click a cell to select its verifier layer.",
             Extent::trace},
            {.figure = "layer-map",
             .metrics = {"kl", "kl_smoothed", "total_variation", "pinsker_floor"},
             .rows = "kl",
             .scope = AnalysisScope::pair},
            [](const TraceSource& verifier, const TraceSource* draft,
               const LayerMapOptions& options,
               const AnalysisRun& run) { analyze_layer_map(verifier, *draft, options, run); }) {}

  void controls(PanelContext& context) override {
    AnalysisPanel::controls(context);
    const auto draft = context.session.second_index();
    if (!draft) return;
    next_switch();
    if (ImGui::Button("Swap")) {
      const Index verifier = context.session.selection().trace;
      context.session.select("swap traces", [&](Selection& s) { s.trace = *draft; });
      context.session.set_second(verifier);
    }
    help_tooltip("Exchanges verifier and draft.");
  }

 private:
  std::shared_ptr<const Document> second_of(const Session& session) const override {
    return session.second();
  }
  LayerMapOptions asked(const Session& session) const override {
    LayerMapOptions options = switches_.analysis;
    options.dense_layers = session.parameters().dense_layers;
    options.nucleus = session.parameters().nucleus;
    return options;
  }
  bool is_shared(std::string_view name) const override {
    return name == "dense-layers" || name == "nucleus";
  }

  std::optional<Question> question(PanelContext& context) override {
    if (context.session.second()) return AnalysisPanel::question(context);
    empty_place(context, "A second trace is needed",
                "SpecAttn's map pairs the layers of a verifier with its draft's. Open the other "
                "trace, and choose it as the second one at the left.");
    return std::nullopt;
  }

  /// The columns of the axes: layers by their numbers.
  std::optional<Index> layer_at(Index column) const {
    const auto& layers = document_->info().layers;
    const auto at = static_cast<std::size_t>(column);
    return at < layers.size() ? std::optional(layers[at]) : std::nullopt;
  }

  void draw_over(PanelContext& context) override {
    const auto& layers = document_->info().layers;
    const auto frame = [&](Index layer, plot::Colour colour) {
      const auto at = std::ranges::find(layers, layer);
      if (at == layers.end()) return;
      const auto x = static_cast<double>(at - layers.begin());
      const auto n_draft = static_cast<double>(second_->info().layers.size());
      AccentMarks(context, figure_, 0, colour).frame({x, x + 1.0}, {0.0, n_draft}, kAround);
    };
    if (pointed().layer) frame(*pointed().layer, context.look.ink);
    frame(context.session.selection().layer, context.look.accent);
  }

  void follow(PanelContext& context, const FigureHit& hit) override {
    AnalysisPanel::follow(context, hit);
    const auto layer = hit.clicked && hit.col ? layer_at(*hit.col) : std::nullopt;
    if (const auto here = hit.col ? layer_at(*hit.col) : std::nullopt) point_at({.layer = here});
    if (layer) context.session.select("layer map click", [&](Selection& s) { s.layer = *layer; });
  }
};

}  // namespace

std::unique_ptr<Panel> make_layer_map_panel() {
  return std::make_unique<LayerMapPanel>();
}

}  // namespace kvscope::gui
