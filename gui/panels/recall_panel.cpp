// Recall against cost: curves of the ticked methods along keys, bytes, FLOPs or budgets, and their
// numbers at the sliders' budget.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/figures/result_view.hpp"
#include "analysis/plot/scale.hpp"
#include "core/base/json.hpp"
#include "core/trace/result.hpp"
#include "gui/model/methods/recall_view.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/method_list.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/queue_picture.hpp"
#include "gui/panels/recall_numbers.hpp"
#include "gui/panels/result_parts.hpp"
#include "gui/panels/switch_row.hpp"

namespace kvscope::gui {

namespace {

class RecallPanel final : public TracePanel<RecallOptions> {
 public:
  PanelInfo info() const override {
    return {
        "recall", "Recall against cost",
        "What the ticked methods keep at a ladder of budgets, along the keys, bytes or FLOPs that "
        "this takes. A click sets the budget, and on a curve the method.",
        extent()};
  }

  void controls(PanelContext& context) override {
    const Look& look = context.look;
    if (!is_wide_) draw_methods_button(context);
    switch_list(switches_, switches_.metric, look.px(138));
    if (is_wide_) switch_label("along");
    switch_list(switches_, switches_.along, look.px(128));
    landmark("along");
    switch_list(switches_, switches_.scope, look.px(88));
  }

  void draw_trace(PanelContext& context) override {
    update_question(context);
    const ImVec2 room = ImGui::GetContentRegionAvail();
    is_wide_ = room.x >= context.look.px(580);
    if (is_wide_) {
      draw_choices(context, {context.look.px(216), room.y});
      ImGui::SameLine();
    }
    begin_part("recall", {0, 0});
    draw_result(context);
    ImGui::EndChild();
  }

  std::optional<plot::Figure> figure() const override {
    const auto shown = shown_ ? figure_.current() : std::nullopt;
    if (!shown) return shown;
    return with_budget_rule(*shown, *shown_, question_.parameters.budget);
  }

  std::string unfinished() const override {
    const bool lacks_some = picture_.get() && !picture_->unfinished.empty();
    return lacks_some ? picture_->unfinished : TracePanel::unfinished();
  }

  /// "METHOD@BUDGET": the points of the curves.
  Places landmarks() const override {
    Places places;
    if (!shown_ || shown_->figure.panels.empty()) return places;
    const auto& marks = shown_->figure.panels.front().marks;
    for (std::size_t m = 0; m < marks.size(); ++m) {
      const auto* line = std::get_if<plot::Line>(&marks[m]);
      for (std::size_t i = 0; line != nullptr && i < line->x.size(); ++i) {
        if (shown_->mark_methods[m].empty()) continue;
        const double budget = shown_->mark_budgets[m][i];
        places.add(
            fmt::format("{}@{}", shown_->mark_methods[m], std::isnan(budget) ? line->x[i] : budget),
            figure_.place(0, line->x[i], line->y[i]));
      }
    }
    return places;
  }

 private:
  Extent extent() const {
    return switches_.scope == RecallScope::head    ? Extent::head
           : switches_.scope == RecallScope::layer ? Extent::layer
                                                   : Extent::trace;
  }

  /// The tables of all opened sweeps.
  struct Sweeps {
    std::vector<OpenedSweep> tables;
    std::size_t bytes() const {
      std::size_t bytes = sizeof *this;
      for (const OpenedSweep& sweep : tables)
        bytes += sweep.table->n_rows() * sweep.table->columns().size() * sizeof(double);
      return bytes;
    }
  };

  void forget() override {
    plan_.clear();
    picture_.forget();
    shown_.reset();
  }

  // ---- what is asked ----

  std::shared_ptr<const Document> second_of(const Session& session) const override {
    const auto& ticked = session.ticked();
    const bool is_used = std::ranges::any_of(
        ticked, [&](const MethodSpec& method) { return session.draft_for(method) != nullptr; });
    return is_used ? session.second() : nullptr;
  }

  /// Question, list of methods and items to compute, anew when something was selected or switched.
  void update_question(const PanelContext& context) {
    const Session& session = context.session;
    if (!has_changed(session)) return;
    const auto document = session.document();
    const TraceInfo& info = document->info();
    const Phase phase = switches_.phase == RecallPhase::of_query  ? session.phase()
                        : switches_.phase == RecallPhase::prefill ? Phase::prefill
                                                                  : Phase::decode;
    RecallQuestion question{
        .trace = document->name(),
        .content_hash = info.content_hash,
        .layer = session.selection().layer,
        .q_head = session.selection().q_head,
        .layers = info.layers,
        .n_tokens = info.n_tokens,
        .n_queries = phase == Phase::prefill ? info.n_prompt : info.n_tokens - info.n_prompt,
        .phase = phase,
        .selector = session.selection().selector,
        .parameters = session.parameters(),
        .options = switches_};
    list_ = method_items(session.ticked(), question.parameters, question.phase,
                         session.second() != nullptr);
    for (const MethodItem& item : list_) {
      if (item.is_ticked) question.methods.push_back(item);
    }
    tones_ = recall_tones(question.methods);
    plan_ = plan_recall(question);
    picture_.items.clear();
    for (const RecallItem& item : plan_) {
      const MethodItem& method = question.methods[item.method];
      const auto draft = session.draft_for(method.spec);
      picture_.items.push_back(
          {documents_key(*document, draft.get()) + item.request.key(),
           {fmt::format("{}: {}", method.name, layer_words(item.request.layers))},
           on_traces(document, draft, item.request, method_rows)});
    }
    question_ = std::move(question);
  }

  /// Tables of the sweeps that are open, as far as they are read.
  void update_sweeps(PanelContext& context) {
    std::string key = "recall-sweeps";
    std::vector<std::shared_ptr<const ResultView>> results;
    for (const auto& result : context.session.results()) {
      if (!result->find("rows/mass_mean") || !result->find("rows/budget")) continue;
      key += "/" + result_key(result);
      results.push_back(result);
    }
    n_sweeps_ = results.size();
    if (results.empty() || !switches_.opened) {
      sweeps_.reset();
      return;
    }
    const auto view =
        ask(context, sweeps_slot_, key, {"Reading opened sweeps", Lane::quick, /*urgent=*/true},
            [results](JobContext&) {
              Sweeps sweeps;
              for (const auto& result : results) {
                sweeps.tables.push_back({file_name(result), result->info().trace_hashes,
                                         std::make_shared<const Table>(rows_of(*result)),
                                         number_at(result->info().config, "chunk")});
              }
              return sweeps;
            });
    if (!view.fresh) return;
    sweeps_ = view.value;
    sweeps_key_ = key;
  }

  // ---- what is drawn ----

  void draw_methods_button(PanelContext& context) {
    if (ImGui::Button("Methods")) ImGui::OpenPopup("methods");
    if (ImGui::BeginPopup("methods")) {
      if (context.session.document()) {
        update_question(context);
        draw_choices(context, {context.look.px(230), context.look.px(360)});
      }
      ImGui::EndPopup();
    }
    next_switch();
  }

  void draw_choices(PanelContext& context, ImVec2 size) {
    const Look& look = context.look;
    ImGui::BeginChild("choices", size, false, ImGuiWindowFlags_NavFlattened);
    const float n_lines = n_sweeps_ > 0 ? 6.0f : 5.0f;
    const float below = n_lines * ImGui::GetFrameHeightWithSpacing() + look.px(8);
    ImGui::BeginChild("list", {0, std::max(look.px(60), size.y - below)}, false,
                      ImGuiWindowFlags_NavFlattened);
    method_field(context, field_);
    method_list(context, list_, tones_, field_.typed);
    ImGui::EndChild();
    ImGui::Separator();
    const auto name = [&](const char* words) {
      ImGui::AlignTextToFramePadding();
      ImGui::TextDisabled("%s", words);
      ImGui::SameLine(look.px(52));
    };
    name("phase");
    switch_list(switches_, switches_.phase, -1.0f);
    name("bands");
    switch_list(switches_, switches_.band, -1.0f);
    name("log");
    log_switch("x", switches_.x);
    ImGui::SameLine();
    log_switch("y", switches_.y);
    name("target");
    draw_target();
    if (n_sweeps_ > 0) {
      switch_box(switches_, switches_.opened, "opened sweeps");
      landmark("opened sweeps");
    }
    ImGui::EndChild();
  }

  void draw_target() {
    ImGui::SetNextItemWidth(-1.0f);
    const double low = 0.0;
    const double high = 1.0;
    ImGui::SliderScalar("##target", ImGuiDataType_Double, &switches_.target, &low, &high, "%.2f",
                        ImGuiSliderFlags_AlwaysClamp);
    landmark("target");
    help_tooltip(field_at(switches_, switches_.target).help);
  }

  static void log_switch(const char* name, AxisScale& scale) {
    bool on = scale == AxisScale::log;
    if (check_box(name, &on)) scale = on ? AxisScale::log : AxisScale::linear;
    help_tooltip("Logarithmic axis.");
  }

  /// What the curves are of, and what is not there, above the box that says what is computed.
  void draw_notes(const PanelContext& context) const {
    if (!picture_.get() || picture_->figure.panels.empty()) return;
    const bool is_whole = picture_->unfinished.empty();
    one_line(is_whole ? context.look.muted : context.look.warning,
             is_whole ? picture_->of : picture_->of + "; " + picture_->unfinished);
    if (!picture_->notes.empty())
      one_line(context.look.warning, fmt::format("{}", fmt::join(picture_->notes, " ")));
  }

  void draw_result(PanelContext& context) {
    update_sweeps(context);
    draw_notes(context);
    const bool has_picture = picture_.update(
        context, "Curves", sources_ + question_.key(), sweeps_ ? sweeps_key_ : "",
        [&](const auto& rows) {
          return [question = question_, plan = plan_, rows,
                  opened = sweeps_ ? sweeps_->tables : std::vector<OpenedSweep>()](JobContext&) {
            return recall_picture(question, plan, rows, opened);
          };
        });
    busy_ = busy_ || picture_.is_busy();
    if (!has_picture) return;
    draw_plot(context);
    if (!has_table_) return;
    ImGui::PushStyleColor(ImGuiCol_Text, packed(is_busy() ? context.look.muted : context.look.ink));
    draw_recall_numbers(context, *picture_, switches_, shows_failing_);
    ImGui::PopStyleColor();
  }

  void draw_plot(PanelContext& context) {
    ImVec2 size = ImGui::GetContentRegionAvail();
    has_table_ = !picture_->numbers.empty() &&
                 size.y > recall_numbers_height(*picture_) + context.look.px(160);
    if (has_table_) size.y -= recall_numbers_height(*picture_) + ImGui::GetStyle().ItemSpacing.y;
    if (shown_ != picture_.get()) {
      figure_.renew();
      context.requests.redraw = true;  // draw_notes() said it of the one before
    }
    shown_ = picture_.get();
    show_figure(context, figure_, shown_->figure, size);
    const auto budget = static_cast<double>(context.session.parameters().budget);
    if (const auto at = reference_place(budget))
      mark_budget(context, *at, budget, context.look.accent);
    mark_selected(context);
    if (const auto& hit = figure_.hit()) follow(context, *hit);
  }

  /// Any height at which the axes have a place.
  double some_height() const {
    for (const plot::Mark& mark : picture_->figure.panels.front().marks) {
      if (const auto* line = std::get_if<plot::Line>(&mark)) return line->y.front();
      if (const auto* rule = std::get_if<plot::Rule>(&mark)) return rule->at;
    }
    return 1.0;
  }

  /// Where a budget stands on the first axis, by the reference curve.
  std::optional<double> reference_place(double budget) const {
    if (picture_->along == RecallAlong::budget) return budget;
    return picture_->reference ? place_of_budget(*picture_, *picture_->reference, budget)
                               : std::nullopt;
  }

  /// `line`: how many lines of text its label stands above the axis, so that two have room.
  void mark_budget(const PanelContext& context, double place, double budget, plot::Colour colour,
                   int line = 0) {
    const auto frame = figure_.frame(0);
    const auto at = figure_.place(0, place, some_height());
    if (!frame || !at || at->x < frame->low.x || at->x > frame->high.x) return;
    ImDrawList& list = *ImGui::GetWindowDrawList();
    const float x = std::floor(at->x) + 0.5f;
    list.AddLine({x, frame->low.y}, {x, frame->high.y}, packed(colour), context.look.px(1.5f));
    const std::string words = picture_->along == RecallAlong::budget
                                  ? fmt::format("{}", budget)
                                  : fmt::format("budget {}", budget);
    const ImVec2 text = ImGui::CalcTextSize(words.c_str());
    const float pad = context.look.px(3);
    const bool fits_right = x + text.x + 2 * pad < frame->high.x;
    const ImVec2 from{fits_right ? x + pad : x - pad - text.x,
                      frame->high.y - pad - text.y * static_cast<float>(line + 1)};
    list.AddRectFilled({from.x - 1, from.y}, {from.x + text.x + 1, from.y + text.y},
                       packed(plot::with_alpha(context.look.surface, 0.8)));
    list.AddText(from, packed(colour), words.c_str());
  }

  /// Rings around the methods' points at the current budget, a strong one around the selected
  /// method's.
  void mark_selected(const PanelContext& context) {
    const auto budget = static_cast<double>(context.session.parameters().budget);
    const auto& marks = picture_->figure.panels.front().marks;
    AccentMarks accent(context, figure_, 0);
    AccentMarks ink(context, figure_, 0, context.look.ink);
    for (std::size_t m = 0; m < marks.size(); ++m) {
      const auto* line = std::get_if<plot::Line>(&marks[m]);
      if (line == nullptr || picture_->mark_methods[m].empty()) continue;
      for (std::size_t i = 0; i < line->x.size(); ++i) {
        if (pointed_of(m, i).meets(pointed())) ink.dot(line->x[i], line->y[i]);
      }
      const bool is_selected =
          picture_->mark_methods[m] == context.session.selection().selector.text();
      if (!is_selected && picture_->along == RecallAlong::budget) continue;
      for (std::size_t i = 0; i < line->x.size(); ++i) {
        if (picture_->mark_budgets[m][i] != budget && line->x.size() > 1) continue;
        if (is_selected) {
          accent.ring(line->x[i], line->y[i]);
        } else if (const auto at = figure_.place(0, line->x[i], line->y[i])) {
          const ImU32 colour = packed(plot::with_alpha(context.look.muted, 0.7));
          ImGui::GetWindowDrawList()->AddCircle(*at, context.look.px(5.5f), colour, 0,
                                                context.look.px(1.0f));
        }
      }
    }
  }

  void follow(PanelContext& context, const FigureHit& hit) {
    const double x = hit.point ? hit.point_x : hit.x;
    const RecallPlace place = recall_place(*picture_, question_.n_tokens, x, hit.mark);
    if (hit.point && !place.method.empty()) {
      point_tooltip(place.method, *hit.mark, *hit.point);
    } else if (place.budget) {
      const auto budget = static_cast<double>(*place.budget);
      if (const auto at = reference_place(budget))
        mark_budget(context, *at, budget, plot::with_alpha(context.look.muted, 0.5),
                    /*line=*/1);
    }
    if (!hit.clicked) return;
    Session& session = context.session;
    if (place.budget) {
      session.set_parameters("recall click", [&](Parameters& p) { p.budget = *place.budget; });
    }
    if (!place.method.empty()) {
      session.select("recall click", [&](Selection& s) { s.selector = place.method; });
    }
  }

  void point_tooltip(const std::string& method, std::size_t mark, std::size_t point) const {
    const auto* line = std::get_if<plot::Line>(&picture_->figure.panels.front().marks[mark]);
    if (line == nullptr || point >= line->x.size()) return;
    const auto budget = budget_of(method, question_.parameters);
    const bool takes_share = budget && budget->kind != Budget::Kind::tokens;
    HoverLines lines = {{"method", method}};
    if (takes_share) lines.emplace_back("share", fmt::format("p = {}", budget->value));
    const double tokens = picture_->mark_budgets[mark][point];
    if (!std::isnan(tokens)) lines.emplace_back("budget", fmt::format("{} tokens", tokens));
    const bool is_nominal = picture_->along == RecallAlong::budget;
    if (is_nominal && takes_share) {
      lines.emplace_back("keys kept", fmt::format("{:.1f} (mean)", line->x[point]));
    } else if (picture_->along == RecallAlong::bytes) {
      lines.emplace_back("bytes",
                         plot::tick_text(std::round(line->x[point]), plot::TickFormat::bytes));
    } else if (!is_nominal) {
      lines.emplace_back(std::string(enum_name(picture_->along)),
                         fmt::format("{:.5g} (mean)", line->x[point]));
    }
    lines.emplace_back(std::string(enum_name(question_.options.metric)),
                       fmt::format("{:.6g}", line->y[point]));
    if (!line->low.empty() && line->low[point] < line->high[point]) {
      lines.emplace_back(std::string(enum_name(question_.options.band)),
                         fmt::format("{:.6g} to {:.6g}", line->low[point], line->high[point]));
    }
    detail_tooltip(lines, pointed_of(mark, point));
  }

  /// What a point of a curve stands for.
  Pointed pointed_of(std::size_t mark, std::size_t point) const {
    Pointed thing{.method = picture_->mark_methods[mark]};
    const double tokens = picture_->mark_budgets[mark][point];
    if (!std::isnan(tokens)) thing.budget = tokens;
    return thing;
  }

  bool is_wide_ = true;
  bool has_table_ = false;
  bool shows_failing_ = false;
  MethodField field_;
  std::size_t n_sweeps_ = 0;
  AsyncValue<Sweeps> sweeps_slot_;
  std::shared_ptr<const Sweeps> sweeps_;
  std::string sweeps_key_;  // of these

  RecallQuestion question_;
  std::vector<MethodItem> list_;
  std::vector<plot::Tone> tones_;  // of the ticked ones
  std::vector<RecallItem> plan_;
  QueuePicture<MethodRows, RecallPicture> picture_;
  std::shared_ptr<const RecallPicture> shown_;
};

}  // namespace

std::unique_ptr<Panel> make_recall_panel() {
  return std::make_unique<RecallPanel>();
}

}  // namespace kvscope::gui
