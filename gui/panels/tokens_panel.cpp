// The token strip: the text, shaded by the attention of the chosen query, kept keys underlined.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "gui/model/tokens/token_text.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/readers_list.hpp"
#include "gui/panels/switch_row.hpp"
#include "gui/panels/token_canvas.hpp"
#include "gui/panels/token_feed.hpp"
#include "gui/panels/token_legend.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

constexpr float kStripHeight = 170.0f;  // points: below, a second line of words takes too much
constexpr float kWide = 900.0f;         // points: from here on the words stand beside the search

enum class TokenShades { attention, losses };

}  // namespace
}  // namespace kvscope::gui

namespace kvscope {
template <>
struct EnumNames<gui::TokenShades> {
  static constexpr std::array<std::string_view, 2> value = {"attention", "losses"};
};
}  // namespace kvscope

namespace kvscope::gui {

namespace {

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
    ImGui::Checkbox(fmt::format("against {}###compare", context.session.selection().other).c_str(),
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
    feed_.update(context,
                 {ImGui::GetContentRegionAvail().x, switches_.compare, needle_, switches_.losses_of,
                  shades_losses ? std::optional(switches_.loss) : std::nullopt, reader_});
    busy_ = feed_.is_busy();
    draw_toolbar(context, *document_);
    draw_text(context, *document_);
  }

  std::optional<plot::Figure> figure() const override {
    if (const auto shown = shown_losses()) return loss_figure(*shown, *document_);
    if (!document_ || feed_.row() == nullptr) return std::nullopt;
    return token_figure(figure_input(*document_));
  }

  std::optional<std::string> csv() const override {
    if (const auto shown = shown_losses()) return loss_csv(*shown, *document_);
    if (!document_ || feed_.row() == nullptr) return std::nullopt;
    return token_csv(figure_input(*document_));
  }

  Places landmarks() const override {
    Places places;
    if (feed_.text() == nullptr) return places;
    for (const auto& [pos, place] : canvas_.places(feed_.text()->lines)) {
      places.emplace_back(fmt::format("token {}", pos), place);
    }
    places.insert(places.end(), readers_.places().begin(), readers_.places().end());
    return places;
  }

  bool takes_right_click() const override { return true; }

 private:
  void forget() override {
    seen_query_.reset();
    reader_.reset();
    last_match_.reset();
    readers_.forget();
    feed_.forget();
  }

  /// What shades the text in place of attention; empty: attention does.
  std::optional<ShownLosses> shown_losses() const {
    const LostTokens* lost = feed_.method().lost().get();
    const LostTokens* other = feed_.other().lost().get();
    if (!document_ || switches_.shade != TokenShades::losses || lost == nullptr) return {};
    if (lost->losses.empty()) return {};
    if (other == nullptr) return ShownLosses{lost->losses, lost->request};
    return ShownLosses{lost->losses, lost->request, &other->losses, &other->request};
  }

  TokenFigureInput figure_input(const Document& document) const {
    TokenFigureInput input{document, *feed_.row(), switches_.scale, switches_.mask_sinks, {}};
    if (feed_.method().has_keys()) input.kept.push_back(feed_.method().keys());
    const bool is_another = feed_.other().spec() != feed_.method().spec();
    if (feed_.other().has_keys() && is_another) input.kept.push_back(feed_.other().keys());
    return input;
  }

  // ---- search, and what is to be said ----

  void draw_toolbar(PanelContext& context, const Document& document) {
    const Look& look = context.look;
    const ImVec2 room = ImGui::GetContentRegionAvail();
    is_strip_ = room.y < look.px(kStripHeight);
    const bool is_one_line = is_strip_ || room.x > look.px(kWide);
    const bool has_focus = ImGui::IsWindowFocused(ImGuiFocusedFlags_ChildWindows) ||
                           ImGui::IsWindowHovered(ImGuiHoveredFlags_ChildWindows);
    const bool wants_search =
        has_focus && ImGui::GetIO().KeyCtrl && ImGui::IsKeyPressed('F', /*repeat=*/false);
    draw_search(context, document, wants_search);
    ImGui::SameLine();
    readers_.draw(context, document_, found_word(context.session));
    busy_ = busy_ || readers_.is_busy();
    ImGui::SameLine();
    draw_go_to(context, document);
    if (is_one_line) ImGui::SameLine(0, look.px(14));
    const auto worst =
        draw_token_legend(context, feed_, document,
                          {switches_.compare, switches_.shade == TokenShades::losses, is_strip_});
    if (worst) show_ = worst;
  }

  void draw_search(PanelContext& context, const Document& document, bool wants_focus) {
    const Look& look = context.look;
    Session& session = context.session;
    ImGui::BeginDisabled(!document.has_text());
    if (wants_focus) ImGui::SetKeyboardFocusHere();
    ImGui::SetNextItemWidth(look.px(150));
    const bool entered = ImGui::InputTextWithHint(
        "##search", document.has_text() ? "search (Ctrl+F)" : "no text", &needle_,
        ImGuiInputTextFlags_EnterReturnsTrue | ImGuiInputTextFlags_AutoSelectAll);
    if (entered) {
      go_to_match(session, /*forward=*/!ImGui::GetIO().KeyShift);
      ImGui::SetKeyboardFocusHere(-1);
    }
    help_tooltip("Enter goes to the next match, Shift+Enter to the one before.");
    ImGui::EndDisabled();
    if (needle_.empty() || !document.has_text()) return;
    ImGui::SameLine();
    if (ImGui::ArrowButton("before", ImGuiDir_Left)) go_to_match(session, /*forward=*/false);
    ImGui::SameLine(0, look.px(2));
    if (ImGui::ArrowButton("after", ImGuiDir_Right)) go_to_match(session, /*forward=*/true);
    ImGui::SameLine();
    ImGui::AlignTextToFramePadding();
    const FoundTokens* found = feed_.found();
    const std::string words =
        found != nullptr ? match_words(found->positions, search_place(session)) : "...";
    ImGui::TextDisabled("%s", words.c_str());
    ImGui::SameLine();
    static constexpr std::array<std::string_view, 2> kSets = {"query", "key"};
    int sets = switches_.search_sets_key ? 1 : 0;
    if (segmented("sets", sets, kSets)) switches_.search_sets_key = sets == 1;
    help_tooltip("What becomes the match: the query, or the key that it looks at.");
  }

  /// The match that was gone to, or the first one; without a search the selected key.
  std::optional<TokenRange> found_word(const Session& session) const {
    const std::optional<Index> key = session.selection().key;
    if (needle_.empty() || feed_.found() == nullptr || feed_.found()->positions.empty())
      return key ? std::optional(TokenRange{*key, *key + 1}) : std::nullopt;
    const auto& found = feed_.found()->positions;
    std::size_t at = found.front();
    for (const std::optional<Index> place :
         {key, std::optional(session.selection().query), last_match_}) {
      if (place && std::ranges::binary_search(found, static_cast<std::size_t>(*place)))
        at = static_cast<std::size_t>(*place);
    }
    const auto begin = static_cast<Index>(at);
    return TokenRange{
        begin, begin + static_cast<Index>(n_tokens_of(document_->token_bytes(), at, needle_))};
  }

  Index search_place(const Session& session) const {
    const Selection& selected = session.selection();
    return switches_.search_sets_key ? selected.key.value_or(-1) : selected.query;
  }

  void go_to_match(Session& session, bool forward) {
    if (feed_.found() == nullptr) return;
    std::vector<std::size_t> positions = feed_.found()->positions;
    if (switches_.search_sets_key) {
      // A key cannot lie after its query.
      std::erase_if(positions, [&](std::size_t pos) {
        return static_cast<Index>(pos) > session.selection().query;
      });
    }
    const auto match = next_match(positions, search_place(session), forward);
    if (!match) return;
    last_match_ = match;
    session.select("token search", [&](Selection& s) {
      if (switches_.search_sets_key) {
        s.key = *match;
      } else {
        s.query = *match;
      }
    });
    show_ = *match;
  }

  void draw_go_to(PanelContext& context, const Document& document) {
    ImGui::SetNextItemWidth(context.look.px(76));
    const bool entered = ImGui::InputTextWithHint(
        "##position", "position", &position_,
        ImGuiInputTextFlags_EnterReturnsTrue | ImGuiInputTextFlags_CharsDecimal);
    help_tooltip("Type a position and press Enter: it becomes the query.");
    if (!entered) return;
    Index pos = -1;
    std::from_chars(position_.data(), position_.data() + position_.size(), pos);
    position_.clear();
    if (pos < 0) return;
    pos = std::min(pos, document.info().n_tokens - 1);
    context.session.select("token go to", [&](Selection& s) { s.query = pos; });
    show_ = pos;
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
    TokenMarks marks;
    marks.query = selected.query;
    marks.key = selected.key;
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
    if (feed_.found() != nullptr) marks.found = &feed_.found()->positions;

    if (seen_query_ != selected.query) show_ = selected.query;
    if (seen_key_ != selected.key && selected.key) show_ = selected.key;
    const TokenEvents events = canvas_.draw(
        context, *text->texts, text->lines, marks,
        underline_colours(context.look, selected.selector.text(), selected.other.text()), show_);
    show_.reset();
    seen_query_ = selected.query;
    seen_key_ = selected.key;
    if (events.hovered)
      detail_tooltip(token_details(context, feed_, document, *events.hovered, shown_losses()));
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
  bool is_strip_ = false;            // too low for a second line of words
  std::optional<Index> last_match_;  // that the search went to
  std::string needle_;
  std::string position_;  // what is typed into "position"
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
