// Quest's page bounds of the selected head against the truth, page by page of every step.
#include "analysis/kinds/quest_bounds.hpp"
#include "gui/panels/analysis_panel.hpp"

namespace kvscope::gui {

namespace {

class QuestBoundsPanel final : public AnalysisPanel<QuestOptions> {
 public:
  QuestBoundsPanel()
      : AnalysisPanel(
            {"quest-bounds", "Quest bounds",
             "Upper bound of each page on q·k against its true maximum, for the selected head. "
             "Click a point to go to its query and page."},
            {.figure = "quest-bounds",
             .metrics = {"eval", "kernel"},
             .rows = "bound",
             .query = "step_pos",
             .scope = AnalysisScope::group,
             .renamed = {{"program", "metric"}, {"steps", "step_source"}},
             .first_alone = true,
             .words = {"*/pages", "*/mass", "*/recall", "best_rank"}},
            [](const TraceSource& trace, const TraceSource*, const QuestOptions& options,
               const AnalysisRun& run) { analyze_quest(trace, options, run); }) {}

 private:
  QuestOptions asked(const Session& session) const override {
    QuestOptions options = switches_.analysis;
    options.page_size = session.parameters().page_size;
    options.budget = session.parameters().budget;
    options.dense_layers = 0;
    options.store_pages = true;
    return options;
  }
  bool is_shared(std::string_view name) const override {
    return name == "page-size" || name == "budget" || name == "dense-layers" ||
           name == "store-pages";
  }
  AnalysisCard card_for(const QuestOptions& options) const override {
    AnalysisCard card = AnalysisPanel::card_for(options);
    card.page_size = options.page_size;
    return card;
  }
};

}  // namespace

std::unique_ptr<Panel> make_quest_bounds_panel() {
  return std::make_unique<QuestBoundsPanel>();
}

}  // namespace kvscope::gui
