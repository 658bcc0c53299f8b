// Quest's page bounds of the selected head against the truth: a cloud over many steps, or the
// selected query page by page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gui/model/bounds/quest_figures.hpp"
#include "gui/model/tokens/range_text.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/switch_row.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

/// The two pictures of the panel.
enum class QuestPicture {
  scatter,  // bound against truth, a point per step and page
  pages,    // both along the context of the selected query
};

namespace {

constexpr std::size_t kMostListed = 50;  // violations written out

struct QuestSwitches {
  QuestPicture picture = option(picture, "picture", QuestPicture::scatter,
                                "scatter: all steps; pages: the selected query page by page");
  StepSource steps = option(
      steps, "steps", StepSource::automatic,
      "steps are decoded positions (decode), prompt positions (prompt), or decoded ones if there "
      "are any (automatic)");
  QuestSemantics program = option(
      program, "program", QuestSemantics::eval,
      "budget as the accuracy tables read it (eval), or the speed figures (kernel: the last page "
      "is always kept)");
};

class QuestBoundsPanel final : public TracePanel<QuestSwitches> {
 public:
  PanelInfo info() const override {
    return {"quest-bounds", "Quest bounds",
            "Upper bound of each page on q·k against its true maximum, for the selected head. "
            "Click a point to go to its query and page."};
  }

  void controls(PanelContext& context) override {
    switch_buttons(switches_, switches_.picture);
    next_switch(context.look.px(14));
    switch_buttons(switches_, switches_.program);
    if (switches_.picture != QuestPicture::scatter) return;
    next_switch(context.look.px(14));
    switch_list(switches_, switches_.steps, context.look.px(98));
  }

  void draw_trace(PanelContext& context) override {
    const auto query = ask_query(context);
    query_ = query.value;
    if (switches_.picture == QuestPicture::scatter) {
      draw_scatter(context, query);
    } else {
      draw_pages(context, query);
    }
  }

  std::optional<plot::Figure> figure() const override {
    auto figure = figure_.current();
    if (!figure || !query_) return figure;
    if (switches_.picture == QuestPicture::scatter) {
      mark_query(*figure, query_->pages, key_);
    } else if (key_) {
      mark_page(*figure, query_->pages, *key_);
    }
    return figure;
  }

  std::optional<std::string> csv() const override {
    if (switches_.picture == QuestPicture::scatter) {
      if (!steps_) return std::nullopt;
      return quest_csv(all_pages(), steps_->scale, switches_.program);
    }
    if (!query_) return std::nullopt;
    const QuestPages* const one[] = {&query_->pages};
    return quest_csv(one, query_->scale, switches_.program);
  }

 private:
  void forget() override {
    steps_slot_.clear();
    query_slot_.clear();
    steps_.reset();
    query_.reset();
    drawn_ = nullptr;
  }

  // ---- what is asked for ----

  QuestRequest request_of(const Session& session) const {
    QuestRequest request;
    request.layer = session.selection().layer;
    request.q_head = session.selection().q_head;
    request.page_size = session.parameters().page_size;
    request.budget = session.parameters().budget;
    request.steps = switches_.steps;
    return request;
  }

  AsyncView<QuestSteps> ask_steps(PanelContext& context) {
    const QuestRequest request = request_of(context.session);
    return ask(context, steps_slot_, sources_ + request.key(),
               {fmt::format("Quest bounds of layer {}, head {}", request.layer, request.q_head)},
               [request, document = document_](JobContext& job) {
                 return quest_steps(document->source(), request, job);
               });
  }

  AsyncView<QuestQuery> ask_query(PanelContext& context) {
    QuestRequest request = request_of(context.session);
    request.steps = StepSource::automatic;  // has no say in one query
    const Index query = context.session.selection().query;
    key_ = context.session.selection().key;
    return ask(context, query_slot_, fmt::format("{}{}/query{}", sources_, request.key(), query),
               {fmt::format("Pages of position {}", query), Lane::quick},
               [request, query, document = document_](JobContext&) {
                 return quest_query(document->source(), request, query);
               });
  }

  // ---- the cloud ----

  void draw_scatter(PanelContext& context, const AsyncView<QuestQuery>& query) {
    const auto view = ask_steps(context);
    if (!async_place(context, steps_slot_, view)) return;
    if (drawn_ != view.value.get() || drawn_program_ != switches_.program) {
      steps_ = view.value;
      cloud_ = quest_cloud(*steps_, switches_.program);
      violations_ = quest_violations(all_pages(), kMostListed);
      remember(steps_.get());
    }
    show_figure(context, cloud_.figure);
    if (query.value) draw_selected(context, query.value->pages);
    if (const auto& hit = figure_.hit(); hit && hit->mark && hit->point) {
      if (const auto place = cloud_.at(*hit->mark, *hit->point)) {
        explain_and_choose(context, *place, hit->clicked);
      }
    }
    draw_numbers(context, query.value.get());
  }

  void draw_selected(const PanelContext& context, const QuestPages& pages) const {
    AccentMarks marks(context, *figure_, 0);
    const std::size_t none = pages.n_pages();
    const std::size_t chosen = key_ ? pages.slot_of(*key_).value_or(none) : none;
    const auto place = [&](std::size_t slot) {
      return std::pair{static_cast<double>(pages.true_max[slot]),
                       static_cast<double>(pages.bound[slot])};
    };
    for (std::size_t slot = 0; slot < pages.n_pages(); ++slot) {
      const auto [x, y] = place(slot);
      if (slot != chosen) marks.dot(x, y);
    }
    if (chosen == none) return;
    const auto [x, y] = place(chosen);
    marks.ring(x, y);
  }

  void explain_and_choose(PanelContext& context, QuestPlace place, bool clicked) {
    for (const QuestPages& pages : steps_->steps) {
      if (pages.query != place.query) continue;
      explain(pages, place.slot, steps_->scale);
      if (clicked) go_to(context, place.query, pages.keys_of(place.slot).begin);
    }
  }

  // ---- one query ----

  void draw_pages(PanelContext& context, const AsyncView<QuestQuery>& query) {
    if (!async_place(context, query_slot_, query)) return;
    if (drawn_ != query.value.get() || drawn_program_ != switches_.program) {
      profile_ = quest_profile(*query.value, switches_.program);
      const QuestPages* const one[] = {&query.value->pages};
      violations_ = quest_violations(one, kMostListed);
      drawn_query_ = query.value;
      remember(query.value.get());
    }
    show_figure(context, profile_);
    const QuestPages& pages = query.value->pages;
    if (key_ && pages.slot_of(*key_)) {
      const TokenRange keys = pages.keys_of(*pages.slot_of(*key_));
      AccentMarks(context, *figure_, 0)
          .frame({static_cast<double>(keys.begin), static_cast<double>(keys.end)},
                 *profile_.panels[0].y.range);
    }
    if (const auto& hit = figure_.hit()) {
      if (const auto slot = pages.slot_of(static_cast<Index>(std::floor(hit->x)))) {
        explain(pages, *slot, query.value->scale);
        if (hit->clicked) go_to(context, pages.query, pages.keys_of(*slot).begin);
      }
    }
    draw_numbers(context, query.value.get());
  }

  // ---- both ----

  std::vector<const QuestPages*> all_pages() const {
    std::vector<const QuestPages*> pages;
    for (const QuestPages& step : steps_->steps) pages.push_back(&step);
    return pages;
  }

  void remember(const void* value) {
    drawn_ = value;
    drawn_program_ = switches_.program;
    figure_.renew();
  }

  /// The figure above the numbers.
  void show_figure(PanelContext& context, const plot::Figure& figure) {
    const float lines = 1.0f + std::min<float>(4.0f, static_cast<float>(violations_.size()));
    const float below = accent_words_height(query_words()) +
                        lines * ImGui::GetTextLineHeightWithSpacing() + context.look.px(2);
    figure_.show_above(context, figure, below);
  }

  void go_to(PanelContext& context, Index query, Index key) {
    context.session.select_pair("quest bounds click", query, key);
  }

  void explain(const QuestPages& pages, std::size_t slot, double scale) const {
    const TokenRange keys = pages.keys_of(slot);
    const double truth = static_cast<double>(pages.true_max[slot]);
    const double bound = static_cast<double>(pages.bound[slot]);
    const bool is_kept = pages.choice(switches_.program).kept[slot] != 0;
    detail_tooltip(
        {{"query", token_words(*document_, pages.query)},
         {"page", fmt::format("{}  (keys {} to {})", pages.first_page + static_cast<Index>(slot),
                              keys.begin, keys.end - 1)},
         {"text", range_text(*document_, keys, 64)},
         {"bound", fmt::format("{:.6g}", bound)},
         {"true maximum", fmt::format("{:.6g}", truth)},
         {"gap", fmt::format("{:.4g} logits{}", scale * (bound - truth),
                             pages.violated[slot] != 0 ? "  (violated)" : "")},
         {"kept", is_kept ? "yes" : "no"}});
  }

  /// The selected query in numbers.
  std::string query_words() const {
    if (!query_) return "the selected query is being read";
    const QuestPages& pages = query_->pages;
    const QuestChoice& choice = pages.choice(switches_.program);
    std::string words = fmt::format(
        "query {}: {} of {} pages kept, {:.1f}% of the attention, top-10 recall {:.2f}; ",
        pages.query, pages.n_kept(switches_.program), pages.n_pages(), 100.0 * choice.mass,
        choice.recall);
    // one page alone has no ranks
    if (!std::isnan(pages.rank_correlation)) {
      words += fmt::format("rank correlation {:.3f}, ", pages.rank_correlation);
    }
    return words + fmt::format("mean gap {:.3g} logits, best page ranked {}", pages.gap_mean,
                               pages.best_rank + 1);
  }

  void draw_numbers(PanelContext& context, const QuestQuery* query) {
    accent_words(context, query_words());
    if (switches_.picture == QuestPicture::scatter || query != nullptr) {
      draw_violations(context, query);
    }
  }

  void draw_violations(PanelContext& context, const QuestQuery* query) {
    const bool is_cloud = switches_.picture == QuestPicture::scatter;
    const Index n = is_cloud ? steps_->violations : query->pages.violations;
    const std::size_t of = is_cloud ? steps_->n_points() : query->pages.n_pages();
    const plot::Colour colour = n > 0 ? context.look.error : context.look.muted;
    ImGui::PushStyleColor(ImGuiCol_Text, packed(colour));
    ImGui::TextUnformatted(fmt::format("violations {} of {} pages", n, of).c_str());
    help_tooltip(
        "Pages whose bound is below their true maximum by more than rounding: none if all "
        "is right.");
    if (!violations_.empty() && ImGui::BeginChild("violations")) {
      for (const QuestViolation& violation : violations_) {
        if (ImGui::Selectable(violation.sentence.c_str())) {
          go_to(context, violation.place.query, violation.first_key);
        }
      }
    }
    if (!violations_.empty()) ImGui::EndChild();
    ImGui::PopStyleColor();
  }

  AsyncValue<QuestSteps> steps_slot_;
  AsyncValue<QuestQuery> query_slot_;

  // what is shown
  std::shared_ptr<const QuestSteps> steps_;
  std::shared_ptr<const QuestQuery> query_;        // of the selected query
  std::shared_ptr<const QuestQuery> drawn_query_;  // of the profile
  std::optional<Index> key_;
  QuestCloud cloud_;
  plot::Figure profile_;
  std::vector<QuestViolation> violations_;
  // The value that the figure shows; kept alive by the pointers above.
  const void* drawn_ = nullptr;
  QuestSemantics drawn_program_ = QuestSemantics::eval;
};

}  // namespace

std::unique_ptr<Panel> make_quest_bounds_panel() {
  return std::make_unique<QuestBoundsPanel>();
}

}  // namespace kvscope::gui
