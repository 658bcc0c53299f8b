// Quest's page bounds of the selected head against the truth: a cloud over many steps, or the
// selected query page by page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "gui/model/bounds/quest_view.hpp"
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
  bool operator==(const QuestSwitches&) const = default;
};

class QuestBoundsPanel final : public FigurePanel<QuestSteps, QuestSwitches> {
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

  std::optional<plot::Figure> figure() const override {
    auto figure = FigurePanel::figure();
    if (!figure || !query_) return figure;
    if (is_cloud()) {
      mark_query(*figure, selected(), key_);
    } else if (key_) {
      mark_page(*figure, selected(), *key_);
    }
    return figure;
  }

  std::optional<std::string> csv() const override {
    if (!value_) return std::nullopt;
    return quest_csv(*value_, switches_.program);
  }

 private:
  bool is_cloud() const { return switches_.picture == QuestPicture::scatter; }
  /// The pages of the selected query. Only with query_.
  const QuestPages& selected() const { return query_->steps.front(); }

  void forget() override {
    FigurePanel::forget();
    query_.reset();
  }

  std::optional<Question> question(PanelContext& context) override {
    const Selection& selection = context.session.selection();
    key_ = selection.key;
    QuestRequest all{.layer = selection.layer,
                     .q_head = selection.q_head,
                     .page_size = context.session.parameters().page_size,
                     .budget = context.session.parameters().budget,
                     .steps = switches_.steps};
    QuestRequest one = all;
    one.query = selection.query;
    const JobRequest quick{fmt::format("Pages of position {}", *one.query), Lane::quick};
    const auto compute = on_trace(document_, one, quest_steps);
    query_ = ask(context, slots_[1], sources_ + one.key(), quick, compute).value;
    if (!is_cloud()) return Question{one.key(), quick, compute, /*slot=*/1};
    return Question{all.key(),
                    {fmt::format("Quest bounds of layer {}, head {}", all.layer, all.q_head)},
                    on_trace(document_, all, quest_steps)};
  }

  plot::Figure make_picture() override {
    violations_ = quest_violations(*value_, kMostListed);
    const auto make = is_cloud() ? quest_cloud : quest_profile;
    return make(*value_, switches_.program);
  }

  float height_below(PanelContext& context) override {
    const float lines = 1.0f + std::min<float>(4.0f, static_cast<float>(violations_.size()));
    return accent_words_height(query_words()) + lines * ImGui::GetTextLineHeightWithSpacing() +
           context.look.px(2);
  }

  void draw_over(PanelContext& context) override {
    if (!query_) return;
    const QuestPages& pages = selected();
    const std::size_t none = pages.n_pages();
    const std::size_t chosen = key_ ? pages.slot_of(*key_).value_or(none) : none;
    AccentMarks marks(context, *figure_, 0);
    if (!is_cloud()) {
      if (chosen == none) return;
      const TokenRange keys = pages.keys_of(chosen);
      marks.frame({static_cast<double>(keys.begin), static_cast<double>(keys.end)},
                  *picture_.panels[0].y.range);
      return;
    }
    const auto at = [](const std::vector<float>& values, std::size_t slot) {
      return static_cast<double>(values[slot]);
    };
    for (std::size_t slot = 0; slot < pages.n_pages(); ++slot)
      if (slot != chosen) marks.dot(at(pages.true_max, slot), at(pages.bound, slot));
    if (chosen != none) marks.ring(at(pages.true_max, chosen), at(pages.bound, chosen));
  }

  void follow(PanelContext& context, const FigureHit& hit) override {
    const QuestPages* pages = &value_->steps.front();
    std::optional<std::size_t> slot;
    if (!is_cloud()) slot = pages->slot_of(static_cast<Index>(std::floor(hit.x)));
    if (is_cloud() && hit.of) std::tie(pages, slot) = value_->page(*hit.of);
    if (!slot) return;
    explain(*pages, *slot);
    if (hit.clicked) go_to(context, pages->query, pages->keys_of(*slot).begin);
  }

  // ---- words ----

  void go_to(PanelContext& context, Index query, Index key) {
    context.session.select_pair("quest bounds click", query, key);
  }

  void explain(const QuestPages& pages, std::size_t slot) const {
    const TokenRange keys = pages.keys_of(slot);
    const double truth = static_cast<double>(pages.true_max[slot]);
    const double bound = static_cast<double>(pages.bound[slot]);
    const bool is_kept = pages.choice(switches_.program).kept[slot] != 0;
    detail_tooltip(
        {{"query", token_words(*document_, pages.query)},
         {"page", fmt::format("{}  (keys {} to {})", pages.first_page + static_cast<Index>(slot),
                              keys.begin, keys.end - 1)},
         {"text", document_->text_of(keys, 64)},
         {"bound", fmt::format("{:.6g}", bound)},
         {"true maximum", fmt::format("{:.6g}", truth)},
         {"gap", fmt::format("{:.4g} logits{}", value_->scale * (bound - truth),
                             pages.violated[slot] != 0 ? "  (violated)" : "")},
         {"kept", is_kept ? "yes" : "no"}});
  }

  /// The selected query in numbers.
  std::string query_words() const {
    if (!query_) return "the selected query is being read";
    const QuestPages& pages = selected();
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

  void draw_below(PanelContext& context) override {
    accent_words(context, query_words());
    const Index n = value_->violations;
    const plot::Colour colour = n > 0 ? context.look.error : context.look.muted;
    ImGui::PushStyleColor(ImGuiCol_Text, packed(colour));
    ImGui::TextUnformatted(fmt::format("violations {} of {} pages", n, value_->n_points()).c_str());
    help_tooltip(
        "Pages whose bound is below their true maximum by more than rounding: none if all "
        "is right.");
    if (!violations_.empty() && ImGui::BeginChild("violations")) {
      for (const QuestViolation& violation : violations_) {
        if (ImGui::Selectable(violation.sentence.c_str())) {
          go_to(context, violation.query, violation.first_key);
        }
      }
    }
    if (!violations_.empty()) ImGui::EndChild();
    ImGui::PopStyleColor();
  }

  std::shared_ptr<const QuestSteps> query_;  // the selected one
  std::optional<Index> key_;
  std::vector<QuestViolation> violations_;
};

}  // namespace

std::unique_ptr<Panel> make_quest_bounds_panel() {
  return std::make_unique<QuestBoundsPanel>();
}

}  // namespace kvscope::gui
