// S_q against the largest attention weight of the selected head, with the queries that QuoKA keeps
// of the chunk, and the correlation of both in every head of the layer.
#include "analysis/kinds/query_selection.hpp"
#include "gui/panels/analysis_panel.hpp"

namespace kvscope::gui {

namespace {

class QuerySelectionPanel final : public AnalysisPanel<QuerySelectionOptions> {
 public:
  QuerySelectionPanel()
      : AnalysisPanel(
            {"query-selection", "Query selection",
             "QuoKA's score S_q of every query against the largest weight of its attention row; "
             "small squares: the queries that QuoKA keeps of the chunk. Click a point to go to its "
             "token, a cell to go to its head."},
            {.figure = "query-scores",
             .metrics = {"prompt", "chunk"},
             .rows = "log_max_weight",
             .query = "pos",
             .scope = AnalysisScope::heads,
             .renamed = {{"span", "metric"}},
             .first_alone = true,
             .words = {"*/s_q", "max_weight", "max_key", "breadth"}},
            [](const TraceSource& trace, const TraceSource*, const QuerySelectionOptions& options,
               const AnalysisRun& run) { analyze_query_selection(trace, options, run); }) {}

 private:
  QuerySelectionOptions asked(const Session& session) const override {
    QuerySelectionOptions options = switches_.analysis;
    options.chunk = std::max<Index>(2, session.parameters().chunk);
    return options;
  }
  bool is_shared(std::string_view name) const override { return name == "chunk"; }

  /// The queries of the selected one's chunk that are farthest from its mean; none unless all were
  /// measured.
  std::vector<Index> kept_of_chunk(const Session& session) const {
    const TraceInfo& info = document_->info();
    const Index chunk = asked(session).chunk;
    const Index begin = session.selection().query / chunk * chunk;
    const Index end = std::min(begin + chunk, info.n_prompt);
    std::vector<std::pair<double, Index>> scores;
    const auto [first, last] = value_->rows();
    for (std::size_t row = first; row < last; ++row) {
      const Index query = value_->query_of(row).value();
      if (query >= begin && query < end) scores.emplace_back(-value_->at("chunk/s_q", row), query);
    }
    if (static_cast<Index>(scores.size()) < end - begin) return {};
    std::ranges::sort(scores);
    const auto n = static_cast<std::size_t>(session.parameters().n_queries);
    std::vector<Index> kept;
    for (std::size_t i = 0; i < std::min(n, scores.size()); ++i) kept.push_back(scores[i].second);
    return kept;
  }

  std::string remark() const override {
    const auto [first, last] = value_->rows();
    const Index n_tokens = document_->info().n_tokens;
    const auto n_measured = static_cast<Index>(last - first);
    if (n_measured >= n_tokens) return {};
    return fmt::format("; {} of {} queries are measured, so QuoKA's are not marked", n_measured,
                       n_tokens);
  }

  void draw_over(PanelContext& context) override {
    for (const Index query : kept_of_chunk(context.session)) {
      for (const MarkPlace& place : places_of(query))
        AccentMarks(context, figure_, place.panel).dot(place.x, place.y);
    }
    AnalysisPanel::draw_over(context);
  }
};

}  // namespace

std::unique_ptr<Panel> make_query_selection_panel() {
  return std::make_unique<QuerySelectionPanel>();
}

}  // namespace kvscope::gui
