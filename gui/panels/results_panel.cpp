// Results of sweeps, analyses and simulations: as a table, as figures, and what the file says
// about itself.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/fields_json.hpp"
#include "core/trace/result.hpp"
#include "gui/panels/cell_table.hpp"
#include "gui/panels/result_parts.hpp"
#include "gui/panels/switch_row.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

enum class ResultShow { table, figure, about };

namespace {

struct ResultsOptions {
  std::string result = option(
      result, "result", "", "file name of the result that is shown");  // file name without folders
  ResultShow show =
      option(show, "show", ResultShow::table, "table, figure, or what the file says about itself");
  std::string source =
      option(source, "source", "rows", "rows, layers, or the array that is listed");
};

class ResultsPanel final : public AskingPanel {
 public:
  PanelInfo info() const override {
    return {"results", "Results",
            "Tables and figures of sweeps, analyses and simulations. Clicking a line goes to its "
            "layer, head, method and budget.",
            Extent::trace};
  }

  void controls(PanelContext& context) override {
    choose_result(context.session);
    if (!result_) return;
    if (segmented("show", options_.show)) is_figure_by_itself_ = false;
    next_switch();
    result_list(context);
  }

  void draw(PanelContext& context) override {
    busy_ = false;
    has_rows_ = false;
    choose_result(context.session);
    if (!result_) {
      empty_place(
          context, "No result is open",
          "Drop a result (.h5, .csv, .json) onto the window, or open one with Ctrl+O. kvscope "
          "sweep, analyze and simulate make them.");
      return;
    }
    if (options_.show == ResultShow::about) {
      if (const auto wanted = about_.draw(context, result_)) {
        set_source(*wanted);
        options_.show = ResultShow::table;
      }
      return;
    }
    if (options_.show == ResultShow::figure) {
      figures_.draw(context, result_);
      busy_ |= figures_.is_busy();
      // A table that lacks the columns of every figure opens as its lines.
      if (is_figure_by_itself_ && figures_.has_failed()) {
        if (!figures_.try_next()) options_.show = ResultShow::table;
        busy_ = true;
      }
      return;
    }
    if (sources_.empty()) {
      empty_place(context, "This result holds no numbers to list",
                  "About shows what the file says of itself.");
      return;
    }
    source_list(context);
    const auto rows = ask_rows(context);
    if (!rows) return;
    if (sources_.size() > 1) ImGui::SameLine();
    table_.draw(context, *rows, arrangement_);
  }

  std::optional<plot::Figure> figure() const override {
    return result_ && options_.show == ResultShow::figure ? figures_.figure() : std::nullopt;
  }

  std::optional<std::string> csv() const override {
    if (options_.show == ResultShow::table) return has_rows_ ? table_.csv() : std::nullopt;
    return Panel::csv();
  }

  nlohmann::ordered_json options() const override {
    auto json = fields_to_json(options_);
    json["figure"] = figures_.options();
    return json;
  }

  void set_options(const nlohmann::ordered_json& options) override {
    auto json = options;
    // as older sessions have it
    if (json.contains("show") && json["show"] == "plot") json["show"] = "table";
    fields_from_json(json, options_);
    if (json.contains("figure")) figures_.set_options(json["figure"]);
    wanted_ = options_.result;
    opens_as_figure_ = !json.contains("show");
    if (json.contains("show")) is_figure_by_itself_ = false;
  }

 private:
  void choose_result(const Session& session) {
    const auto& open = session.results();
    const bool is_new = open.size() > n_results_;
    n_results_ = open.size();
    ResultPtr next;
    ResultPtr wanted;
    for (const ResultPtr& result : open) {
      if (result == result_) next = result;
      if (!wanted_.empty() && file_name(result) == wanted_) wanted = result;
    }
    for (const ResultPtr& result : open) {  // the same file, opened again
      if (!next && result_ && file_name(result) == options_.result) next = result;
    }
    // A file that was just opened is what one wants to see, unless a session names another one of
    // those that come with it.
    if (wanted) {
      next = wanted;
      if (!session.is_opening()) wanted_.clear();
    } else if (!open.empty() && (is_new || !next)) {
      next = open.back();
      opens_as_figure_ = true;
    }
    if (next == result_) return;
    show_result(next);
    // The figure of a result says more than its lines, where there is one.
    is_figure_by_itself_ = next && std::exchange(opens_as_figure_, true);
    if (is_figure_by_itself_) options_.show = ResultShow::figure;
  }

  void show_result(const ResultPtr& result) {
    result_ = result;
    sources_.clear();
    arrangement_ = {};
    if (!result_) return;
    options_.result = file_name(result_);
    sources_ = table_sources(*result_);
    const bool has_source = std::ranges::any_of(
        sources_, [&](const TableSource& s) { return s.name == options_.source; });
    if (!has_source) options_.source = sources_.empty() ? "" : sources_.front().name;
  }

  void result_list(PanelContext& context) {
    ImGui::SetNextItemWidth(context.look.px(170));
    if (ImGui::BeginCombo("##result", file_name(result_).c_str(), ImGuiComboFlags_HeightLarge)) {
      for (const ResultPtr& result : context.session.results()) {
        const std::string label =
            fmt::format("{}  ({})##{}", file_name(result), result->info().kind, result_key(result));
        if (ImGui::Selectable(label.c_str(), result == result_) && result != result_) {
          wanted_.clear();
          show_result(result);
        }
        help_tooltip(result->name());
      }
      ImGui::EndCombo();
    }
    help_tooltip(result_->name());
    ImGui::SameLine();
    if (ImGui::Button("Close")) {
      const auto& open = context.session.results();
      const auto at = std::ranges::find(open, result_);
      wanted_.clear();
      if (at != open.end()) context.session.close_result(at - open.begin());
    }
    help_tooltip("Closes this result. The file stays.");
  }

  void source_list(PanelContext& context) {
    if (sources_.size() < 2) return;
    ImGui::SetNextItemWidth(context.look.px(190));
    if (ImGui::BeginCombo("##source", options_.source.c_str(), ImGuiComboFlags_HeightLarge)) {
      visible_lines(sources_.size(), [&](std::size_t i) {
        const TableSource& source = sources_[i];
        const std::string label =
            source.shape.empty() ? source.name : fmt::format("{}  [{}]", source.name, source.shape);
        if (ImGui::Selectable(label.c_str(), source.name == options_.source))
          set_source(source.name);
        help_tooltip(source.long_name);
      });
      ImGui::EndCombo();
    }
    help_tooltip("Which numbers of the file are listed.");
  }

  void set_source(std::string source) {
    if (source == options_.source) return;
    options_.source = std::move(source);
    arrangement_ = {};
  }

  /// Empty while the table is read or arranged; draws how far it is, or why it cannot be.
  std::optional<ResultRows> ask_rows(PanelContext& context) {
    has_rows_ = false;
    ResultRows rows;
    const std::string source_key = result_key(result_) + options_.source;
    const auto loaded = ask(context, loaded_, "table/" + source_key,
                            {fmt::format("Reading {} of {}", options_.source, file_name(result_)),
                             Lane::quick, /*urgent=*/true},
                            [result = result_, source = options_.source](JobContext&) {
                              return LoadedTable{load_table(*result, source)};
                            });
    // Another table's lines would be taken for this one's.
    if (!loaded.fresh) {
      report_job(context, loaded_, loaded.status, /*has_value=*/false, /*fresh=*/false);
      return std::nullopt;
    }
    rows.loaded = loaded.value;
    rows.key = fmt::format("{}/{}", source_key, arrangement_.key());
    const auto order =
        ask(context, order_, "order/" + rows.key, {"Sorting", Lane::quick, /*urgent=*/true},
            [table = loaded.value, arrangement = arrangement_](JobContext& job) {
              return arrange_rows(table->table, arrangement, job.stop);
            });
    if (order.fresh) {
      rows.order = order.value;
      last_ = rows;
    }
    // While another order is made, the last one of the same table is shown.
    has_rows_ = last_.loaded == loaded.value;
    return has_rows_ ? std::optional(last_) : std::nullopt;
  }

  ResultsOptions options_;
  ResultPtr result_;
  std::string wanted_;                // by a session or the side bar: shown as soon as it is open
  bool opens_as_figure_ = true;       // nobody has said how the next result is shown
  bool is_figure_by_itself_ = false;  // nobody asked for the one that is shown
  std::size_t n_results_ = 0;
  std::vector<TableSource> sources_;
  TableArrangement arrangement_;

  AsyncValue<LoadedTable> loaded_;
  AsyncValue<RowOrder> order_;
  ResultRows last_;
  ResultTable table_;
  ResultFigures figures_;
  ResultAbout about_;
  bool has_rows_ = false;
};

}  // namespace

std::unique_ptr<Panel> make_results_panel() {
  return std::make_unique<ResultsPanel>();
}

}  // namespace kvscope::gui
