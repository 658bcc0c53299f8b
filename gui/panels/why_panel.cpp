// Why was it dropped? One query and one key: what the selected method kept, at which rank the key
// lies, the cut-off, and the budget that would have kept it.
#include <fmt/format.h>
#include <imgui.h>

#include "core/base/number_text.hpp"
#include "gui/model/methods/why_view.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/cell_table.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/switch_row.hpp"

namespace kvscope::gui {

namespace {

struct WhySwitches {
  WhyAlong along =
      option(along, "along", WhyAlong::score,
             "by the method's score, or by the exact weight (methods without scores: always)");
  bool operator==(const WhySwitches&) const = default;
};

class WhyPanel final : public TracePanel<WhySwitches> {
 public:
  PanelInfo info() const override {
    return {"why", "Why was it dropped?",
            "What the selected method keeps for the selected query, and for a key its rank, the "
            "cut-off, its page or representative query, and the budget that would have kept it. "
            "Click a point or a line to choose another key."};
  }

  void controls(PanelContext& context) override {
    switch_buttons(switches_, switches_.along);
    next_switch(context.look.px(14));
    if (ImGui::Button("Copy as command") && look_ && document_) {
      const std::string words = why_command(*look_, key_, document_->path().string(),
                                            second_ ? second_->path().string() : std::string());
      ImGui::SetClipboardText(words.c_str());
    }
    landmark("copy as command");
    help_tooltip("The kvscope explain that prints these numbers, to the clipboard.");
  }

  void draw_trace(PanelContext& context) override {
    const std::string problem = why_obstacle(context.session);
    if (!problem.empty()) {
      forget();
      empty_place(context,
                  fmt::format("{} does not answer here", context.session.selection().selector),
                  problem);
      return;
    }
    const auto view = ask_look(context);
    if (!async_place(context, look_slot_, view)) {
      look_.reset();
      return;
    }
    is_stale_ = !view.fresh;
    update_outcome(view.value, context.session.selection().key);
    ask_budget(context);
    update_picture(context);
    draw_words(context);
    draw_parts(context);
  }

  std::optional<plot::Figure> figure() const override {
    auto figure = figure_.current();
    if (!figure || !look_ || !picture_) return std::nullopt;
    if (const auto place = why_place(outcome_, along())) {
      figure->panels.front().marks.emplace_back(plot::Scatter{.label = fmt::format("key {}", key_),
                                                              .tone = {plot::Role::highlight, 0},
                                                              .x = {place->x},
                                                              .y = {place->y},
                                                              .size = 2.2});
    }
    figure->caption.push_back(fmt::format("Key {}: {}", key_, outcome_sentence(*look_, outcome_)));
    return figure;
  }
  std::optional<std::string> csv() const override {
    if (!look_) return std::nullopt;
    return why_csv(*look_);
  }

  /// "key N": the points of the heaviest keys.
  Places landmarks() const override {
    Places places;
    if (!figure_.is_shown() || !picture_) return places;
    for (const KeyOutcome& outcome : picture_->heaviest) {
      if (const auto place = why_place(outcome, along()))
        places.add(fmt::format("key {}", outcome.key), figure_.place(0, place->x, place->y));
    }
    return places;
  }

 private:
  WhyAlong along() const {
    return look_ && has_ranking(*look_) ? switches_.along : WhyAlong::weight;
  }

  std::shared_ptr<const Document> second_of(const Session& session) const override {
    return session.draft_for(session.selection().selector);
  }

  void forget() override {
    look_slot_.clear();  // another trace's answer says nothing here
    look_.reset();
    picture_.reset();
  }

  // ---- what is asked for ----

  AsyncView<QueryLook> ask_look(PanelContext& context) {
    question_ = why_question(context.session);
    return ask(context, look_slot_, sources_ + question_.cache_key(),
               {fmt::format("{} asked about the query at {}", question_.selector, question_.query)},
               [document = document_, draft = second_, question = question_](JobContext& job) {
                 return look_at_query({document->source(), draft ? &draft->source() : nullptr},
                                      question, job.pool, job.stop);
               });
  }

  /// The key that is asked about and its outcome, which take passes over all keys: only when there
  /// is another answer, or another key is selected.
  void update_outcome(const std::shared_ptr<const QueryLook>& look, std::optional<Index> selected) {
    if (look == look_ && selected == selected_) return;
    look_ = look;
    selected_ = selected;
    key_ = asked_key(*look_, selected_);
    outcome_ = outcome_of(*look_, key_);
  }

  void ask_budget(PanelContext& context) {
    budget_.reset();
    if (is_stale_) return;
    if (outcome_.end != KeyEnd::dropped && outcome_.end != KeyEnd::kept) return;
    const auto view = ask(
        context, budget_slot_, fmt::format("{}{}/keeps/{}", sources_, question_.cache_key(), key_),
        {fmt::format("The budget that keeps key {}", key_)},
        [document = document_, draft = second_, question = question_, key = key_](JobContext& job) {
          return budget_that_keeps({document->source(), draft ? &draft->source() : nullptr},
                                   question, key, job.pool, job.stop);
        });
    if (view.fresh) budget_ = view.value;
  }

  void update_picture(PanelContext& context) {
    const auto view = ask(context, picture_slot_,
                          fmt::format("{}{}/why/{}", sources_, look_->question.cache_key(),
                                      enum_name(switches_.along)),
                          {"Ranks", Lane::quick, /*urgent=*/true},
                          [look = look_, along = switches_.along, trace = document_->name()](
                              JobContext&) { return why_picture(*look, along, trace); });
    if (!view.fresh || view.value == picture_) return;
    picture_ = view.value;
    figure_.renew();
  }

  // ---- words ----

  plot::Colour tone_of(const Look& look, KeyEnd end) const {
    return end == KeyEnd::dropped ? look.error : end == KeyEnd::unseen ? look.muted : look.accent;
  }

  void draw_words(PanelContext& context) {
    const Look& look = context.look;
    ImGui::PushStyleColor(ImGuiCol_Text, packed(tone_of(look, outcome_.end)));
    wrapped_words(
        fmt::format("{}: key {}", end_words(outcome_.end), token_words(*document_, key_)));
    ImGui::PopStyleColor();
    ImGui::PushStyleColor(ImGuiCol_Text, packed(look.muted));
    std::string which = context.session.selection().key ? std::string()
                        : outcome_.end == KeyEnd::dropped
                            ? "No key is selected: this is the heaviest that was dropped. "
                            : "No key is selected, and none was dropped: this is the query's own. ";
    wrapped_words(fmt::format("{}Query {}: weight {}, number {} of {}{}{}", which,
                              token_words(*document_, look_->question.query),
                              number_text(outcome_.weight, 3), outcome_.weight_rank,
                              look_->visible.size(),
                              look_->question.as_step ? "; taken as a decode step" : "",
                              is_stale_ ? "; being asked again" : ""));
    ImGui::PopStyleColor();
    std::string words = outcome_sentence(*look_, outcome_);
    if (budget_) words += " " + budget_sentence(outcome_, *budget_);
    wrapped_words(words);
    const std::string more =
        score_sentence(*look_, outcome_, [&](Index pos) { return token_words(*document_, pos); });
    if (!more.empty()) wrapped_words(more);
    draw_buttons(context);
  }

  void draw_buttons(PanelContext& context) {
    bool is_first = true;
    const auto button = [&](const std::string& words, const char* name, const char* help) {
      if (!is_first) ImGui::SameLine();
      is_first = false;
      const float width =
          ImGui::CalcTextSize(words.c_str()).x + 2 * ImGui::GetStyle().FramePadding.x;
      if (ImGui::GetContentRegionAvail().x < width) ImGui::NewLine();
      const bool pressed = ImGui::Button(words.c_str());
      landmark(name);
      help_tooltip(help);
      return pressed;
    };
    if (outcome_.end == KeyEnd::dropped && budget_ && budget_->tokens &&
        button(fmt::format("Set the budget to {}", *budget_->tokens), "set the budget",
               "The smallest budget at which the method keeps this key.")) {
      context.session.set_parameters("why budget",
                                     [&](Parameters& p) { p.budget = *budget_->tokens; });
    }
    if (!outcome_.best_query) return;
    const auto own = static_cast<std::size_t>(look_->question.q_head - look_->owner_heads.begin);
    const RepresentativeQuery& slot = look_->representatives[*outcome_.best_query];
    if (own < slot.queries.size() && slot.queries[own] != look_->question.query &&
        button(fmt::format("Go to query {}", slot.queries[own]), "go to the query",
               "The representative query that gave the key its score, of this head.")) {
      context.session.select_pair("why query", slot.queries[own], key_);
    }
  }

  // ---- the figure and the table ----

  void draw_parts(PanelContext& context) {
    if (!picture_) return;
    const ImVec2 begin = ImGui::GetCursorScreenPos();
    draw_figure_and_table(context);
    if (!is_stale_) return;
    ImGui::SetCursorScreenPos(begin);
    veil(context);
  }

  void draw_figure_and_table(PanelContext& context) {
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const float gap = ImGui::GetStyle().ItemSpacing.x;
    const bool has_figure = !picture_->figure.panels.empty();
    const bool is_wide = room.x >= context.look.px(640);
    const float table_width = is_wide && has_figure ? context.look.px(330) : room.x;
    if (has_figure) {
      const bool is_alone = !is_wide && room.y < context.look.px(400);  // no room for both
      begin_part("figure", is_wide    ? ImVec2{room.x - table_width - gap, room.y}
                           : is_alone ? room
                                      : ImVec2{room.x, room.y * 0.6f});
      draw_figure(context);
      ImGui::EndChild();
      if (is_alone) return;
      if (is_wide) ImGui::SameLine();
    }
    draw_table(context, {table_width, 0.0f});
  }

  void draw_figure(PanelContext& context) {
    show_figure(context, figure_, picture_->figure, ImGui::GetContentRegionAvail());
    mark_pointed(context);
    if (const auto place = why_place(outcome_, along()))
      AccentMarks(context, figure_, 0).ring(place->x, place->y);
    const auto& hit = figure_.hit();
    if (!hit || !hit->of) return;
    const KeyOutcome outcome = outcome_of(*look_, static_cast<Index>(*hit->of));
    tooltip(outcome);
    if (hit->clicked) choose_key(context, outcome.key);
  }

  /// The keys that are pointed at, where they were ranked.
  void mark_pointed(const PanelContext& context) const {
    if (figure_.hit()) return;
    const TokenRange keys = pointed().keys;
    for (Index key = keys.begin; key < std::min(keys.end, look_->question.query + 1); ++key) {
      if (const auto place = why_place(outcome_of(*look_, key), along()))
        AccentMarks(context, figure_, 0, context.look.ink).ring(place->x, place->y);
    }
  }

  void tooltip(const KeyOutcome& outcome) const {
    HoverLines lines = {{"key", token_words(*document_, outcome.key)},
                        {"", std::string(end_words(outcome.end))},
                        {"weight", fmt::format("{} (number {})", number_text(outcome.weight, 4),
                                               outcome.weight_rank)}};
    if (outcome.is_ranked) {
      lines.emplace_back(look_->page_size > 1 ? "page's score" : "score",
                         number_text(outcome.score));
      lines.emplace_back("rank", fmt::format("{} of {}", outcome.rank, outcome.n_ranked));
      lines.emplace_back("margin", number_text(outcome.score - look_->cut, 3));
    }
    detail_tooltip(lines, Pointed::at_key(outcome.key));
  }

  void choose_key(PanelContext& context, Index key) {
    context.session.select("why key", [&](Selection& s) { s.key = key; });
  }

  void draw_table(PanelContext& context, ImVec2 size) {
    constexpr ImGuiTableFlags kFlags = ImGuiTableFlags_RowBg | ImGuiTableFlags_BordersInnerH |
                                       ImGuiTableFlags_ScrollY | ImGuiTableFlags_SizingFixedFit;
    const std::vector<CellColumn> columns = {
        {"key", "Position. The heaviest keys of the query, first the heaviest; a click selects."},
        {"token", "Its text.", 1.0f},
        {"weight", "Exact softmax weight."},
        {"rank", "Place by the method's score, of the key or its page."},
        {"", "What became of it."}};
    if (!begin_cells("heaviest", columns, kFlags, size)) return;
    for (const KeyOutcome& outcome : picture_->heaviest) {
      if (line_cell(fmt::format("{}", outcome.key), outcome.key == key_))
        choose_key(context, outcome.key);
      pointing_line(Pointed::at_key(outcome.key));
      cells({document_->has_text() ? document_->token_text(outcome.key) : "",
             number_text(outcome.weight, 3)});
      landmark(fmt::format("row of key {}", outcome.key));  // the row's own item spans all columns
      cells({outcome.is_ranked ? fmt::format("{}", outcome.rank) : "-"});
      ImGui::PushStyleColor(ImGuiCol_Text, packed(tone_of(context.look, outcome.end)));
      cells({std::string(end_words(outcome.end))});
      ImGui::PopStyleColor();
    }
    ImGui::EndTable();
  }

  bool is_stale_ = false;

  KeyQuestion question_;
  AsyncValue<QueryLook> look_slot_;
  AsyncValue<KeepingBudget> budget_slot_;
  AsyncValue<WhyPicture> picture_slot_;

  std::shared_ptr<const QueryLook> look_;
  std::optional<Index> selected_;  // with which key_ and outcome_ were made
  Index key_ = 0;
  KeyOutcome outcome_;
  std::shared_ptr<const KeepingBudget> budget_;
  std::shared_ptr<const WhyPicture> picture_;
};

}  // namespace

std::unique_ptr<Panel> make_why_panel() {
  return std::make_unique<WhyPanel>();
}

}  // namespace kvscope::gui
