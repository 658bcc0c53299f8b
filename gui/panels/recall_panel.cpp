// Recall against budget: curves of the ticked methods, and their numbers at the sliders' budget.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/plot/scale.hpp"
#include "gui/model/json_fields.hpp"
#include "gui/model/recall_view.hpp"
#include "gui/model/slot_queue.hpp"
#include "gui/panels/method_list.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"
#include "gui/render/figure_view.hpp"

namespace kvscope::gui {

namespace {

/// A number in the table: four digits that mean something.
std::string number_text(double value) {
  if (std::isnan(value)) return "-";
  if (value != 0.0 && std::abs(value) < 1e-3) return fmt::format("{:.2e}", value);
  return std::abs(value) < 100.0 ? fmt::format("{:.4f}", value) : fmt::format("{:.1f}", value);
}

class RecallPanel final : public Panel {
 public:
  PanelInfo info() const override {
    return {
        "recall", "Recall against budget",
        "What the ticked methods keep at a ladder of budgets. A click sets the budget, and on a "
        "curve the method."};
  }

  void controls(PanelContext& context) override {
    const Look& look = context.look;
    choose("##metric", options_.metric, look.px(138));
    help_tooltip("What is measured against dense attention, as the mean over heads.");
    ImGui::SameLine();
    choose("##scope", options_.scope, look.px(88));
    help_tooltip("The selected head, all heads of its layer, or all recorded layers.");
    if (is_wide_) return;
    ImGui::SameLine();
    if (ImGui::Button("Methods")) ImGui::OpenPopup("methods");
    if (ImGui::BeginPopup("methods")) {
      if (context.session.document()) {
        update_question(context);
        draw_choices(context, {look.px(230), look.px(360)});
      }
      ImGui::EndPopup();
    }
  }

  void draw(PanelContext& context) override {
    is_busy_ = false;
    if (needs_trace(context)) return;
    update_question(context);
    const ImVec2 room = ImGui::GetContentRegionAvail();
    is_wide_ = room.x >= context.look.px(580);
    if (is_wide_) {
      draw_choices(context, {context.look.px(216), room.y});
      ImGui::SameLine();
    }
    ImGui::BeginChild("recall", {0, 0}, false, ImGuiWindowFlags_NoScrollbar);
    draw_result(context);
    ImGui::EndChild();
  }

  std::optional<plot::Figure> figure() const override {
    if (!picture_ || picture_->figure.panels.empty()) return std::nullopt;
    const bool is_drawn = view_ && shown_ == picture_;
    return with_budget_rule(is_drawn ? view_->current_figure() : picture_->figure,
                            question_.parameters.budget);
  }

  nlohmann::ordered_json options() const override { return fields_to_json(options_); }
  void set_options(const nlohmann::ordered_json& options) override {
    fields_from_json(options, options_);
  }
  /// "METHOD@BUDGET": the points of the curves.
  std::vector<std::pair<std::string, ImVec2>> landmarks() const override {
    std::vector<std::pair<std::string, ImVec2>> places;
    if (!view_ || !shown_ || shown_->figure.panels.empty()) return places;
    const auto& marks = shown_->figure.panels.front().marks;
    for (std::size_t m = 0; m < marks.size(); ++m) {
      const auto* line = std::get_if<plot::Line>(&marks[m]);
      for (std::size_t i = 0; line != nullptr && i < line->x.size(); ++i) {
        if (const auto at = view_->place(0, line->x[i], line->y[i])) {
          places.emplace_back(fmt::format("{}@{}", shown_->mark_methods[m], line->x[i]), *at);
        }
      }
    }
    return places;
  }
  bool is_busy() const override { return is_busy_; }

 private:
  /// What a picture is made of; shared with the job that makes it.
  struct Inputs {
    RecallQuestion question;
    std::vector<RecallItem> items;
    std::vector<std::shared_ptr<const MethodRows>> rows;
  };

  // ---- what is asked ----

  /// Question, list of methods and items to compute, anew when something was selected or switched.
  void update_question(const PanelContext& context) {
    const Session& session = context.session;
    if (revision_ == session.revision() && asked_options_ == options_) return;
    revision_ = session.revision();
    asked_options_ = options_;
    const auto document = session.document();
    const auto draft = session.second();
    const TraceInfo& info = document->info();
    RecallQuestion question;
    question.trace = document->name();
    question.layer = session.selection().layer;
    question.q_head = session.selection().q_head;
    question.layers = info.layers;
    question.n_tokens = info.n_tokens;
    question.phase = options_.phase == RecallPhase::of_query  ? session.phase()
                     : options_.phase == RecallPhase::prefill ? Phase::prefill
                                                              : Phase::decode;
    question.selector = session.selection().selector;
    question.parameters = session.parameters();
    question.options = options_;
    list_ = method_items(session.ticked(), question.parameters, question.phase, draft != nullptr);
    for (const MethodItem& item : list_) {
      if (item.is_ticked) question.methods.push_back(item);
    }
    tones_ = recall_tones(question.methods);
    plan_ = plan_recall(question);
    document_key_ = document->key();
    items_.clear();
    for (const RecallItem& item : plan_) {
      const MethodItem& method = question.methods[item.method];
      const auto its_draft = method.spec.caps().needs_draft ? draft : nullptr;
      QueueItem<MethodRows> next;
      next.key = document->key() + (its_draft ? its_draft->key() : "") + item.request.key();
      next.request.title = fmt::format("{}: {}", method.name, layer_words(item.request.layers));
      next.compute = [document, its_draft, request = item.request](JobContext& job) {
        return method_rows(document->source(), its_draft ? &its_draft->source() : nullptr, request,
                           job);
      };
      items_.push_back(std::move(next));
    }
    question_ = std::move(question);
  }

  /// The picture of what is there; a new one is begun when rows come or the question changes, but
  /// never so often that none is finished.
  void update_picture(const PanelContext& context, const QueueView<MethodRows>& view) {
    const Workbench bench = context.session.bench();
    if (view.n_known > 0 || items_.empty()) {
      const std::string question = document_key_ + question_.key();
      const std::string wanted = fmt::format("{}/{}", question, known_mask(view));
      const bool may_change = question != picture_question_ || picture_is_over_;
      if (wanted != picture_key_ && may_change) {
        picture_key_ = wanted;
        picture_question_ = question;
        inputs_ = std::make_shared<const Inputs>(Inputs{question_, plan_, view.values});
      }
      is_picture_wanted_ = wanted == picture_key_;
    } else {
      is_picture_wanted_ = true;  // nothing new to draw
    }
    if (!inputs_) return;
    const auto made =
        slot_.ask(bench, picture_key_, {"Curves", Lane::quick, /*urgent=*/true},
                  [inputs = inputs_](JobContext&) {
                    return recall_picture(inputs->question, inputs->items, inputs->rows);
                  });
    picture_is_over_ = !made.is_pending();
    if (made.value && made.value != picture_) {
      picture_ = made.value;
      ++version_;
    }
    is_busy_ = is_busy_ || !made.fresh || !is_picture_wanted_;
    if (made.failed()) is_busy_ = false;
  }

  static std::string known_mask(const QueueView<MethodRows>& view) {
    if (view.is_complete()) return "all";
    std::string mask;
    for (const auto& value : view.values) mask += value ? '1' : '0';
    return mask;
  }

  // ---- what is drawn ----

  void draw_choices(PanelContext& context, ImVec2 size) {
    const Look& look = context.look;
    ImGui::BeginChild("choices", size, false);
    const float below = 4 * ImGui::GetFrameHeightWithSpacing() + look.px(8);
    ImGui::BeginChild("list", {0, std::max(look.px(60), size.y - below)}, false);
    method_list(context, list_, tones_);
    ImGui::EndChild();
    ImGui::Separator();
    const auto line = [&](const char* name, const char* id, auto& value, std::string_view help) {
      ImGui::AlignTextToFramePadding();
      ImGui::TextDisabled("%s", name);
      ImGui::SameLine(look.px(52));
      choose(id, value, -1.0f);
      help_tooltip(help);
    };
    line("phase", "##phase", options_.phase,
         "Prefill chunks, decode steps, or the phase of the selected query.");
    line("bands", "##band", options_.band,
         "Over heads: 95 % interval of the mean (ci), median and middle half, smallest to largest, "
         "or no bands.");
    ImGui::AlignTextToFramePadding();
    ImGui::TextDisabled("log");
    ImGui::SameLine(look.px(52));
    log_switch("x", options_.x);
    ImGui::SameLine();
    log_switch("y", options_.y);
    ImGui::EndChild();
  }

  static void log_switch(const char* name, AxisScale& scale) {
    bool on = scale == AxisScale::log;
    if (ImGui::Checkbox(name, &on)) scale = on ? AxisScale::log : AxisScale::linear;
    help_tooltip("Logarithmic axis.");
  }

  void draw_result(PanelContext& context) {
    const auto view = queue_.ask(context.session.bench(), items_);
    is_busy_ = view.is_busy();
    update_picture(context, view);
    const bool has_picture = picture_ && !picture_->figure.panels.empty();
    if (!has_picture && view.is_busy()) {
      act(job_place(context, view.status, /*has_value=*/false, /*fresh=*/false));
      return;
    }
    if (!view.is_complete() && (has_picture || view.n_known == 0)) {
      JobStatus status = view.status;
      if (view.is_busy() && items_.size() > 1) {
        status.title += fmt::format(" ({} of {})", view.n_known + 1, items_.size());
      }
      act(job_place(context, status, has_picture, /*fresh=*/false));
      if (!has_picture) return;
    }
    if (!has_picture) {
      if (picture_) empty_place(context, "Nothing to compare", picture_->sentence);
      return;
    }
    draw_plot(context);
    draw_numbers(context);
  }

  void act(SlotAction action) {
    if (action == SlotAction::cancel) queue_.cancel();
    if (action == SlotAction::retry) queue_.retry();
  }

  float numbers_height() const {
    const auto n = static_cast<float>(std::min<std::size_t>(picture_->numbers.size(), 8));
    return (n + 1.0f) * (ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y) + 2.0f;
  }

  void draw_plot(PanelContext& context) {
    if (!view_) view_.emplace(context.fonts, context.textures);
    ImVec2 size = ImGui::GetContentRegionAvail();
    has_table_ = !picture_->numbers.empty() && size.y > numbers_height() + context.look.px(190);
    if (has_table_) size.y -= numbers_height() + ImGui::GetStyle().ItemSpacing.y;
    FigureStyle style;
    style.ground = context.look.ground;
    style.paper = context.look.surface;
    view_->show(picture_->figure, version_, size, style);
    shown_ = picture_;
    mark_budget(context, static_cast<double>(context.session.parameters().budget),
                context.look.accent);
    mark_selected(context);
    if (const auto& hit = view_->hit()) follow(context, *hit);
  }

  /// Any height at which the axes have a place.
  double some_height() const {
    for (const plot::Mark& mark : picture_->figure.panels.front().marks) {
      if (const auto* line = std::get_if<plot::Line>(&mark)) return line->y.front();
      if (const auto* rule = std::get_if<plot::Rule>(&mark)) return rule->at;
    }
    return 1.0;
  }

  void mark_budget(const PanelContext& context, double budget, plot::Colour colour) {
    const auto frame = view_->frame(0);
    const auto at = view_->place(0, budget, some_height());
    if (!frame || !at || at->x < frame->low.x || at->x > frame->high.x) return;
    ImDrawList& list = *ImGui::GetWindowDrawList();
    const float x = std::floor(at->x) + 0.5f;
    list.AddLine({x, frame->low.y}, {x, frame->high.y}, packed(colour), context.look.px(1.5f));
    const std::string words = fmt::format("{}", budget);
    const ImVec2 text = ImGui::CalcTextSize(words.c_str());
    const float pad = context.look.px(3);
    const bool fits_right = x + text.x + 2 * pad < frame->high.x;
    const ImVec2 from{fits_right ? x + pad : x - pad - text.x, frame->high.y - text.y - pad};
    list.AddRectFilled({from.x - 1, from.y}, {from.x + text.x + 1, from.y + text.y},
                       packed(plot::with_alpha(context.look.surface, 0.8)));
    list.AddText(from, packed(colour), words.c_str());
  }

  /// A ring around the selected method's point at the current budget.
  void mark_selected(const PanelContext& context) {
    const auto budget = static_cast<double>(context.session.parameters().budget);
    const auto& marks = picture_->figure.panels.front().marks;
    const auto frame = view_->frame(0);
    for (std::size_t m = 0; m < marks.size() && frame; ++m) {
      const auto* line = std::get_if<plot::Line>(&marks[m]);
      if (line == nullptr || picture_->mark_methods[m] != context.session.selection().selector) {
        continue;
      }
      for (std::size_t i = 0; i < line->x.size(); ++i) {
        if (line->x[i] != budget && line->x.size() > 1) continue;
        const auto at = view_->place(0, line->x[i], line->y[i]);
        if (!at || at->x < frame->low.x || at->x > frame->high.x || at->y < frame->low.y ||
            at->y > frame->high.y) {
          continue;
        }
        ImGui::GetWindowDrawList()->AddCircle(*at, context.look.px(7), packed(context.look.accent),
                                              0, context.look.px(2));
      }
    }
  }

  void follow(PanelContext& context, const FigureHit& hit) {
    const double x = hit.point ? hit.point_x : hit.x;
    const RecallPlace place = recall_place(*picture_, question_.n_tokens, x, hit.mark);
    if (hit.point && !place.method.empty()) {
      point_tooltip(place.method, *hit.mark, *hit.point);
    } else if (place.budget) {
      mark_budget(context, static_cast<double>(*place.budget),
                  plot::with_alpha(context.look.muted, 0.5));
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
    std::vector<std::pair<std::string, std::string>> lines = {{"method", method}};
    if (takes_share) {
      lines.emplace_back("share", fmt::format("p = {}", budget->value));
      lines.emplace_back("keys kept", fmt::format("{:.1f} (mean)", line->x[point]));
    } else {
      lines.emplace_back("budget", fmt::format("{} tokens", line->x[point]));
    }
    lines.emplace_back(std::string(enum_name(question_.options.metric)),
                       fmt::format("{:.6g}", line->y[point]));
    if (!line->low.empty() && line->low[point] < line->high[point]) {
      lines.emplace_back(std::string(enum_name(question_.options.band)),
                         fmt::format("{:.6g} to {:.6g}", line->low[point], line->high[point]));
    }
    detail_tooltip(lines);
  }

  void draw_numbers(PanelContext& context) {
    if (!has_table_) return;
    constexpr int kColumns = 8;
    constexpr ImGuiTableFlags kFlags = ImGuiTableFlags_RowBg | ImGuiTableFlags_BordersInnerH |
                                       ImGuiTableFlags_ScrollY | ImGuiTableFlags_SizingStretchProp;
    if (!ImGui::BeginTable("numbers", kColumns, kFlags, {0, numbers_height()})) return;
    static constexpr const char* kNames[kColumns] = {"method", "budget", "keys",  "mass",
                                                     "top-10", "top-k",  "error", "bytes"};
    static constexpr const char* kHelp[kColumns] = {
        "A click selects the method.",
        "What the method is told.",
        "Keys that a query attends to, mean over measured rows and heads.",
        "Attention mass on the kept keys.",
        "Share of the ten largest weights that is kept.",
        "Share of the k largest weights that is kept, k = the budget.",
        "Distance of the output from the dense one, |y - o|.",
        "Bytes read per query head and call: scoring, and keys and values of what is kept."};
    ImGui::TableSetupScrollFreeze(0, 1);
    static constexpr float kWeights[kColumns] = {1.7f, 1.1f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.2f};
    for (int c = 0; c < kColumns; ++c) {
      ImGui::TableSetupColumn(kNames[c], ImGuiTableColumnFlags_WidthStretch, kWeights[c]);
    }
    ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
    for (int c = 0; c < kColumns; ++c) {
      ImGui::TableSetColumnIndex(c);
      ImGui::TextDisabled("%s", kNames[c]);
      help_tooltip(kHelp[c]);
    }
    for (const RecallNumbers& line : picture_->numbers) {
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      const bool is_selected = line.name == context.session.selection().selector;
      if (is_selected) ImGui::PushStyleColor(ImGuiCol_Text, packed(context.look.accent));
      if (ImGui::Selectable(line.name.c_str(), false, ImGuiSelectableFlags_SpanAllColumns)) {
        context.session.select("recall table", [&](Selection& s) { s.selector = line.name; });
      }
      if (is_selected) ImGui::PopStyleColor();
      for (const std::string& text :
           {line.budget.empty() ? std::string("-") : line.budget, number_text(line.kept),
            number_text(line.mass), number_text(line.recall10), number_text(line.recallk),
            number_text(line.output_error),
            plot::tick_text(std::round(line.bytes), plot::TickFormat::bytes)}) {
        ImGui::TableNextColumn();
        ImGui::TextUnformatted(text.c_str());
      }
    }
    ImGui::EndTable();
  }

  RecallOptions options_;
  bool is_wide_ = true;
  bool has_table_ = false;
  bool is_busy_ = false;

  std::optional<std::uint64_t> revision_;
  std::optional<RecallOptions> asked_options_;
  RecallQuestion question_;
  std::string document_key_;
  std::vector<MethodItem> list_;
  std::vector<plot::Tone> tones_;  // of the ticked ones
  std::vector<RecallItem> plan_;
  std::vector<QueueItem<MethodRows>> items_;
  SlotQueue<MethodRows> queue_;

  std::shared_ptr<const Inputs> inputs_;
  std::string picture_key_;
  std::string picture_question_;
  bool picture_is_over_ = true;
  bool is_picture_wanted_ = true;
  Slot<RecallPicture> slot_;
  std::shared_ptr<const RecallPicture> picture_;
  std::shared_ptr<const RecallPicture> shown_;
  std::uint64_t version_ = 0;
  std::optional<FigureView> view_;
};

}  // namespace

std::unique_ptr<Panel> make_recall_panel() {
  return std::make_unique<RecallPanel>();
}

}  // namespace kvscope::gui
