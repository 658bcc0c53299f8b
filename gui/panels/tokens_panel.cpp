// The token strip: the text, shaded by the attention of the chosen query, kept keys underlined.
#include <fmt/format.h>
#include <imgui.h>

#include "gui/panels/panel_base.hpp"
#include "gui/panels/readers_list.hpp"
#include "gui/panels/switch_row.hpp"
#include "gui/panels/token_canvas.hpp"
#include "gui/panels/token_feed.hpp"
#include "gui/panels/token_legend.hpp"
#include "gui/panels/token_search.hpp"

namespace kvscope::gui {

/// What shades a token.
enum class TokenShades { attention, losses };

namespace {

constexpr float kStripHeight = 170.0f;  // points: below, a second line of words takes too much
constexpr float kWide = 900.0f;         // points: from here on the words stand beside the search

struct TokensSwitches {
  TokenShades shade = option(
      shade, "shade", TokenShades::attention,
      "what shades a token: how much the query looks at it, or how much of its own attention "
      "the method loses there");
  LossHeads losses_of = option(losses_of, "losses-of", LossHeads::head,
                               "attention and losses of the selected head, or means over the "
                               "layer's heads, or all");
  LossKind loss =
      option(loss, "loss", LossKind::mass,
             "what is lost: attention on dropped keys, the error of the output, or how "
             "much less likely the next token gets (all layers, with the model itself)");
  bool follow_mouse = option(follow_mouse, "follow-mouse", true,
                             "the word under the mouse lights up what it reads");
  WeightScale scale = option(
      scale, "scale", WeightScale::log,
      "how weights become shades: four decades down from the largest, in proportion to it, or "
      "by rank");
  bool mask_sinks =
      option(mask_sinks, "mask-sinks", false,
             "excludes the first 4 positions, to which many heads attend most, from the shading");
  bool compare = option(compare, "compare", false, "underline what the other method keeps as well");
  bool search_sets_key =
      option(search_sets_key, "search-sets-key", false, "search goes to keys instead of queries");
  bool operator==(const TokensSwitches&) const = default;
};

class TokensPanel final : public TracePanel<TokensSwitches> {
 public:
  PanelInfo info() const override {
    return {"tokens", "Tokens",
            "The text, shaded by how much the query looks at it; underlined is what the method "
            "keeps. The word under the mouse lights up what it reads. Click a token: the query; "
            "right or Shift+click: the key; arrows walk from word to word."};
  }

  void controls(PanelContext& context) override {
    switch_buttons(switches_, switches_.shade);
    const bool is_of_model =
        switches_.shade == TokenShades::losses && switches_.loss == LossKind::next_token;
    if (switches_.shade == TokenShades::losses) {
      static const std::vector<std::string> kLossWords = {"mass", "output error", "next token"};
      switch_list(switches_, switches_.loss, context.look.px(104), kLossWords);
    }
    if (!is_of_model) switch_list(switches_, switches_.losses_of, context.look.px(96));
    if (switches_.shade == TokenShades::attention) {
      switch_buttons(switches_, switches_.scale);
      switch_box(switches_, switches_.mask_sinks, "mask sinks");
    }
    switch_box(switches_, switches_.follow_mouse, "follow mouse");
    next_switch();
    check_box(fmt::format("against {}###compare", context.session.selection().other).c_str(),
              &switches_.compare);
    help_tooltip(
        "Underlines and strikes out for the other method as well, dashed; losses become "
        "the difference of the two: orange where the first loses more, blue where the "
        "other does.");
  }

  void draw_trace(PanelContext& context) override {
    const bool shades_losses = switches_.shade == TokenShades::losses;
    if (!switches_.follow_mouse) reader_.reset();
    if (reader_ && *reader_ >= document_->info().n_tokens) reader_.reset();
    feed_.update(context, {ImGui::GetContentRegionAvail().x, switches_.compare, search_.needle(),
                           switches_.losses_of,
                           shades_losses ? std::optional(switches_.loss) : std::nullopt, reader_});
    busy_ = feed_.is_busy();
    draw_toolbar(context, *document_);
    draw_text(context, *document_);
  }

  std::optional<plot::Figure> figure() const override {
    if (const auto* shown = shown_losses()) return loss_figure(*shown, other_losses(), *document_);
    if (!document_ || feed_.row() == nullptr) return std::nullopt;
    return token_figure(figure_input(*document_));
  }

  std::optional<std::string> csv() const override {
    if (const auto* shown = shown_losses()) return loss_csv(*shown, other_losses(), *document_);
    if (!document_ || feed_.row() == nullptr) return std::nullopt;
    return token_csv(figure_input(*document_));
  }

  Places landmarks() const override {
    Places places;
    if (feed_.text() == nullptr) return places;
    for (const auto& [pos, place] : canvas_.places(feed_.text()->lines)) {
      places.emplace_back(fmt::format("token {}", pos), place);
    }
    return places;
  }

  bool takes_right_click() const override { return true; }
  void begin_search() override { wants_search_ = true; }

 private:
  void forget() override {
    seen_query_.reset();
    reader_.reset();
    search_.forget();
    readers_.forget();
    feed_.forget();
  }

  /// What shades the text in place of attention; null: attention does.
  const TokenLosses* shown_losses() const {
    const TokenLosses* lost = feed_.method().lost().get();
    if (!document_ || switches_.shade != TokenShades::losses || lost == nullptr) return nullptr;
    return lost->empty() ? nullptr : lost;
  }
  const TokenLosses* other_losses() const { return feed_.other().lost().get(); }

  TokenFigureInput figure_input(const Document& document) const {
    TokenFigureInput input{document, *feed_.row(), switches_.scale, switches_.mask_sinks, {}};
    if (const auto keys = feed_.keys(/*of_other=*/false)) input.kept.push_back(*keys);
    const bool is_another = feed_.other().spec() != feed_.method().spec();
    const auto others = feed_.keys(/*of_other=*/true);
    if (others && is_another) input.kept.push_back(*others);
    return input;
  }

  // ---- search, and what is to be said ----

  void draw_toolbar(PanelContext& context, const Document& document) {
    const Look& look = context.look;
    const ImVec2 room = ImGui::GetContentRegionAvail();
    is_strip_ = room.y < look.px(kStripHeight);
    const bool is_one_line = is_strip_ || room.x > look.px(kWide);
    search_.draw(context, document, feed_.found(), switches_.search_sets_key,
                 std::exchange(wants_search_, false));
    ImGui::SameLine();
    readers_.draw(context, document_, search_.word(context.session, feed_.found()));
    busy_ = busy_ || readers_.is_busy();
    ImGui::SameLine();
    search_.draw_go_to(context, document);
    if (const auto gone_to = search_.take_place()) show_ = gone_to;
    if (is_one_line) ImGui::SameLine(0, look.px(14));
    const auto worst =
        draw_token_legend(context, feed_, document,
                          {switches_.compare, switches_.shade == TokenShades::losses, is_strip_});
    if (worst) show_ = worst;
  }

  // ---- the text ----

  void draw_text(PanelContext& context, const Document& document) {
    const LaidOutText* text = feed_.text();
    if (text == nullptr) {
      report_job(context, feed_, feed_.text_status(), /*has_value=*/false, /*fresh=*/false);
      return;
    }
    Session& session = context.session;
    const Selection selected = session.selection();
    const Reading* reading = feed_.reading();
    const TokenLosses* lost = feed_.shaded_losses();
    TokenMarks marks{.query = selected.query, .key = selected.key, .brush = &session.brush()};
    for (const Bookmark& mark : session.bookmarks_here()) {
      marks.bookmarked.push_back(mark.query);
      if (mark.key) marks.bookmarked.push_back(*mark.key);
    }
    marks.reading = reading;
    marks.is_light = reading != nullptr && reader_ && reading->reader() != selected.query;
    const bool shades_losses = switches_.shade == TokenShades::losses && !marks.is_light;
    const Shading shading = shades_losses ? (lost != nullptr ? Shading(*lost) : Shading())
                            : reading != nullptr
                                ? Shading(reading->row, switches_.scale, switches_.mask_sinks)
                                : Shading();
    marks.visible = {0, selected.query + 1};
    if (reading != nullptr) marks.visible = reading->row.row.visible;
    if (shades_losses) marks.visible = {0, document.info().n_tokens};
    if (shades_losses ? lost != nullptr : reading != nullptr) marks.shading = &shading;
    if (feed_.found() != nullptr) marks.found = &feed_.found()->covered;

    if (seen_query_ != selected.query) show_ = selected.query;
    if (seen_key_ != selected.key && selected.key) show_ = selected.key;
    const TokenEvents events = canvas_.draw(
        context, *text->texts, text->lines, marks,
        underline_colours(context.look, selected.selector.text(), selected.other.text()), show_);
    show_.reset();
    seen_query_ = selected.query;
    seen_key_ = selected.key;
    if (events.hovered)
      detail_tooltip(token_details(context, feed_, document, *events.hovered, shown_losses()),
                     {.query = events.hovered, .keys = {*events.hovered, *events.hovered + 1}});
    if (switches_.follow_mouse && reader_ != events.hovered) {
      reader_ = events.hovered;
      if (feed_.read(session, reader_)) context.requests.redraw = true;
      busy_ = busy_ || feed_.is_busy();
    }
    if (events.query) {
      session.select(events.has_walked ? "token walk" : "token click",
                     [&](Selection& s) { s.query = *events.query; });
    }
    if (events.key) {
      session.select(events.has_walked ? "token key walk" : "token key click",
                     [&](Selection& s) { s.key = *events.key; });
    }
    if (events.has_walked) return;
    // What was clicked is in sight: nothing scrolls.
    if (events.query) seen_query_ = session.selection().query;
    seen_key_ = session.selection().key;
  }

  TokenFeed feed_;
  TokenCanvas canvas_;
  ReadersList readers_;
  TokenSearch search_;
  bool wants_search_ = false;
  bool is_strip_ = false;  // too low for a second line of words
  std::optional<Index> seen_query_;
  std::optional<Index> seen_key_;
  std::optional<Index> show_;    // to be brought into sight
  std::optional<Index> reader_;  // under the mouse: what it reads is shown in the query's place
};

}  // namespace

std::unique_ptr<Panel> make_tokens_panel() {
  return std::make_unique<TokensPanel>();
}

}  // namespace kvscope::gui
