// What every head keeps under the selected method: layer x head.
#include "analysis/figures/result_view.hpp"
#include "analysis/sweep/sweep_table.hpp"
#include "core/base/json.hpp"
#include "core/trace/result.hpp"
#include "gui/model/methods/method_rows.hpp"
#include "gui/model/methods/recall_parts.hpp"
#include "gui/model/session/methods.hpp"
#include "gui/panels/analysis_panel.hpp"

namespace kvscope::gui {

namespace {

constexpr float kAroundCell = -1.0f;  // points: the frame stands around the cell

struct CoverageSwitches {
  bool lock_colours = option(lock_colours, "lock-colours", false,
                             "colours keep their meaning when layer, method or budget change, so "
                             "that pictures can be compared");
  double heads_low = option(heads_low, "heads-low", 0.0, "locked colours of the heads: low end");
  double heads_high = option(heads_high, "heads-high", 0.0,
                             "locked colours of the heads: high end; without any, those shown");
  // What the session says.
  std::string method = option(method, "method", "", "");
  std::string budget = option(budget, "budget", "", "");
  bool decodes = option(decodes, "decodes", false, "");
  Index chunk = option(chunk, "chunk", 128, "");
  Index dense_layers = option(dense_layers, "dense-layers", 0, "");
  bool operator==(const CoverageSwitches&) const = default;
};

void measure_heads(const TraceSource& trace, const TraceSource* draft,
                   const CoverageSwitches& options, const AnalysisRun& run) {
  const TraceInfo& info = trace.info();
  MethodRowsRequest request{.layers = info.layers,
                            .phase = options.decodes ? Phase::decode : Phase::prefill,
                            .chunk = options.chunk,
                            .spec = options.method,
                            .dense_layers = options.dense_layers,
                            .rows_per_chunk = display_rows_per_chunk(info.n_tokens)};
  if (!options.budget.empty()) request.budgets = {Budget::parse(options.budget)};
  JobContext job{run.pool, run.stop, run.progress};
  const MethodRows measured = method_rows(trace, draft, request, job);
  std::vector<const SweepRow*> rows;
  for (const SweepRow& row : measured.rows) rows.push_back(&row);
  ResultInfo result;
  result.kind = "sweep";
  result.config = {{"title", fmt::format("{}{}, {}", options.budget.empty() ? "" : " ",
                                         options.budget, enum_name(request.phase))},
                   {"measured", measured_sentence(request.phase, options.chunk, info.n_tokens)}};
  table_to_result(table_of(rows, file_name_of(trace)), result, run.output);
}

class CoveragePanel final : public AnalysisPanel<CoverageSwitches> {
 public:
  CoveragePanel()
      : AnalysisPanel(
            {"coverage", "Coverage",
             "What the selected method keeps of the attention, by layer and head. A click goes "
             "there.",
             Extent::trace},
            {.figure = "coverage-heads",
             .metrics = {"mass", "mass_min", "recall10", "recallk", "output_error",
                         "output_error_rel", "kept"},
             .rows = "rows/mass_mean",
             .scope = AnalysisScope::trace,
             .lists_figure = true},
            measure_heads) {}

  /// Sessions of before call the metrics otherwise.
  void set_options(const nlohmann::ordered_json& options) override {
    nlohmann::ordered_json now = options;
    const bool has_metric = now.contains("metric") && now["metric"].is_string();
    const auto before =
        enum_from_name<RecallMetric>(has_metric ? now["metric"].get<std::string>() : "");
    if (before) now["metric"] = sweep_column(*before);
    AnalysisPanel::set_options(now);
  }

 private:
  std::shared_ptr<const Document> second_of(const Session& session) const override {
    if (switches_.of_second) return nullptr;  // which may be the draft itself
    return session.draft_for(session.selection().selector);
  }

  MethodItem method_of(const Session& session, Phase phase) const {
    return method_items({session.selection().selector.text()}, session.parameters(), phase,
                        second_ != nullptr)
        .front();  // ticked ones come first
  }
  Phase phase_in(const Session& session) const {
    const TraceInfo& info = main_of(session)->info();
    return phase_of(info, std::min(session.selection().query, info.n_tokens - 1));
  }

  CoverageSwitches asked(const Session& session) const override {
    const Parameters& parameters = session.parameters();
    CoverageSwitches options;  // colours ask for nothing
    const Phase phase = phase_in(session);
    const MethodSpec method = method_of(session, phase).spec;
    options.method = method.text();
    if (const auto budget = budget_of(method, parameters)) options.budget = budget->to_string();
    options.decodes = phase == Phase::decode;
    options.chunk = parameters.chunk;
    options.dense_layers = parameters.dense_layers;
    return options;
  }
  bool is_shared(std::string_view name) const override {
    return name != "lock-colours" && !name.starts_with("heads-");
  }

  std::optional<Question> question(PanelContext& context) override {
    const MethodItem method = method_of(context.session, phase_in(context.session));
    if (method.obstacle.empty()) return AnalysisPanel::question(context);
    empty_place(context, fmt::format("{} does not answer here", method.name), method.obstacle);
    return std::nullopt;
  }

  plot::Figure make_picture() override {
    plot::Figure figure = AnalysisPanel::make_picture();
    CoverageSwitches& own = switches_.analysis;
    const nlohmann::ordered_json& made = value_->config();  // the session may be ahead of it
    std::string& title = figure.panels.front().title;
    title.insert(std::min(title.find('\n'), title.size()), kvscope::text_at(made, "title"));
    figure.caption.push_back(kvscope::text_at(made, "measured"));
    std::optional<plot::Range>& colours = figure.panels.front().colour->axis.range;
    if (!own.lock_colours) {
      own.heads_low = own.heads_high = 0.0;
    } else if (own.heads_low < own.heads_high) {
      colours = plot::Range{own.heads_low, own.heads_high};
    } else if (colours) {
      own.heads_low = colours->low;
      own.heads_high = colours->high;
    }
    return figure;
  }

  void draw_over(PanelContext& context) override {
    const auto cell_of = [&info = document_->info()](Index layer, Index q_head) {
      std::optional<std::pair<plot::Range, plot::Range>> cell;
      if (!info.has_layer(layer) || !info.has_q_head(q_head)) return cell;
      const auto row = static_cast<double>(info.layer_slot(layer));
      const auto col = static_cast<double>(info.q_slot(q_head));
      cell = {{col, col + 1.0}, {row, row + 1.0}};
      return cell;
    };
    frame_heads(context, figure_, cell_of, kAroundCell);
  }
};

}  // namespace

std::unique_ptr<Panel> make_coverage_panel() {
  return std::make_unique<CoveragePanel>();
}

}  // namespace kvscope::gui
