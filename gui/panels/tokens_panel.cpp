// The token strip: the text, shaded by the attention of the chosen query, kept keys underlined.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "gui/panels/panel_base.hpp"
#include "gui/panels/switch_row.hpp"
#include "gui/panels/token_canvas.hpp"
#include "gui/panels/token_feed.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

constexpr float kStripHeight = 170.0f;  // points: below, a second line of words takes too much
constexpr float kWide = 560.0f;         // points: from here on the words stand beside the search

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
                               "losses of the selected head, or means over the layer's, or all");
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
            "keeps. Click a token: the query; right or Shift+click: the key."};
  }

  void controls(PanelContext& context) override {
    switch_buttons(switches_, switches_.shade);
    if (switches_.shade == TokenShades::losses) {
      switch_list(switches_, switches_.losses_of, context.look.px(96));
    } else {
      switch_buttons(switches_, switches_.scale);
      switch_box(switches_, switches_.mask_sinks, "mask sinks");
    }
    next_switch();
    ImGui::Checkbox(fmt::format("against {}###compare", context.session.selection().other).c_str(),
                    &switches_.compare);
    help_tooltip("Underlines what the other method keeps as well, dashed.");
  }

  void draw_trace(PanelContext& context) override {
    const bool shades_losses = switches_.shade == TokenShades::losses;
    feed_.update(context, {ImGui::GetContentRegionAvail().x, switches_.compare, needle_,
                           shades_losses ? std::optional(switches_.losses_of) : std::nullopt});
    busy_ = feed_.is_busy();
    draw_toolbar(context, *document_);
    draw_text(context, *document_);
  }

  std::optional<plot::Figure> figure() const override {
    if (const LostTokens* lost = shown_losses())
      return loss_figure(lost->losses, lost->request, *document_);
    if (!document_ || feed_.row() == nullptr) return std::nullopt;
    return token_figure(figure_input(*document_));
  }

  std::optional<std::string> csv() const override {
    if (const LostTokens* lost = shown_losses()) return loss_csv(lost->losses, *document_);
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

 private:
  void forget() override {
    seen_query_.reset();
    feed_.forget();
  }

  /// What shades the text in place of attention; null: attention does.
  const LostTokens* shown_losses() const {
    const bool shades_losses = switches_.shade == TokenShades::losses;
    return document_ && shades_losses && feed_.lost() && !feed_.lost()->losses.empty()
               ? feed_.lost()
               : nullptr;
  }

  TokenFigureInput figure_input(const Document& document) const {
    TokenFigureInput input{document, *feed_.row(), switches_.scale, switches_.mask_sinks, {}};
    if (feed_.kept().has_keys()) input.kept.push_back(feed_.kept().keys());
    const bool is_another = feed_.other().spec() != feed_.kept().spec();
    if (feed_.other().has_keys() && is_another) input.kept.push_back(feed_.other().keys());
    return input;
  }

  // ---- search, and what is to be said ----

  void draw_toolbar(PanelContext& context, const Document& document) {
    const Look& look = context.look;
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const bool is_one_line = room.y < look.px(kStripHeight) || room.x > look.px(kWide);
    const bool has_focus = ImGui::IsWindowFocused(ImGuiFocusedFlags_ChildWindows) ||
                           ImGui::IsWindowHovered(ImGuiHoveredFlags_ChildWindows);
    const bool wants_search =
        has_focus && ImGui::GetIO().KeyCtrl && ImGui::IsKeyPressed('F', /*repeat=*/false);
    draw_search(context, document, wants_search);
    ImGui::SameLine();
    draw_go_to(context, document);
    if (is_one_line) ImGui::SameLine(0, look.px(14));
    draw_words(context);
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

  void draw_words(PanelContext& context) {
    const Look& look = context.look;
    const Selection& selected = context.session.selection();
    const UnderlineColours colours =
        underline_colours(look, selected.selector.text(), selected.other.text());
    ImGui::AlignTextToFramePadding();
    if (!feed_.row_problem().empty()) {
      say(look.error, feed_.row_problem());
      return;
    }
    ImGui::BeginGroup();
    if (switches_.shade == TokenShades::losses) {
      draw_losses(context);
      ImGui::SameLine(0, look.px(14));
    }
    say_kept(context, feed_.kept(), colours.kept, /*dashed=*/false);
    if (switches_.compare) {
      ImGui::SameLine(0, look.px(14));
      say_kept(context, feed_.other(), colours.other, /*dashed=*/true);
    }
    ImGui::EndGroup();
  }

  /// The worst sections as a list, and the loss in words.
  void draw_losses(PanelContext& context) {
    const Look& look = context.look;
    const LostTokens* lost = feed_.lost();
    if (lost == nullptr) {
      if (feed_.kept().problem().empty()) say(look.muted, "computing what is lost...");
      return;
    }
    ImGui::SetNextItemWidth(look.px(130));
    if (ImGui::BeginCombo("##worst", "worst passages")) {
      for (std::size_t i = 0; i < lost->sections.size(); ++i) {
        const LossSection& section = lost->sections[i];
        const std::string words =
            fmt::format("{:5.1f}%  {} to {}  {}", 100.0 * section.mean, section.tokens.begin,
                        section.tokens.end - 1,
                        document_->has_text() ? document_->text_of(section.tokens, 60) : "");
        ImGui::PushID(static_cast<int>(i));
        if (ImGui::Selectable(words.c_str())) {
          context.session.select("worst passage", [&](Selection& s) { s.query = section.worst; });
          show_ = section.worst;
        }
        ImGui::PopID();
      }
      ImGui::EndCombo();
    }
    help_tooltip("Passages by their mean loss; a click goes to the token that loses most there.");
    ImGui::SameLine(0, look.px(8));
    ImGui::AlignTextToFramePadding();
    say(look.ink, loss_words(lost->losses, lost->request));
  }

  static void say_kept(const PanelContext& context, const KeptFeed& kept, plot::Colour colour,
                       bool dashed) {
    ImGui::AlignTextToFramePadding();
    underline_sample(context.look, colour, dashed);
    ImGui::SameLine(0, context.look.px(5));
    ImGui::AlignTextToFramePadding();
    if (!kept.problem().empty()) {
      say(context.look.warning, kept.problem());
    } else if (!kept.has_keys()) {
      say(context.look.muted, fmt::format("computing what {} keeps...", kept.keys().method));
    } else {
      say(kept.is_busy() ? context.look.muted : context.look.ink,
          kept_words(kept.keys(), context.session.selection().query));
    }
  }

  /// One line; whole in a tooltip where the window ends before it does.
  static void say(plot::Colour colour, const std::string& words) {
    ImGui::PushStyleColor(ImGuiCol_Text, packed(colour));
    ImGui::TextUnformatted(words.c_str());
    ImGui::PopStyleColor();
    if (ImGui::GetItemRectMax().x > ImGui::GetWindowPos().x + ImGui::GetWindowWidth()) {
      help_tooltip(words);
    }
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
    const RankedRow* row = feed_.row();
    const LostTokens* lost = shown_losses();
    const bool shades_losses = switches_.shade == TokenShades::losses;
    const Shading shading = lost != nullptr ? Shading(lost->losses)
                            : row != nullptr && !shades_losses
                                ? Shading(*row, switches_.scale, switches_.mask_sinks)
                                : Shading();
    TokenMarks marks;
    marks.query = selected.query;
    marks.key = selected.key;
    for (const Bookmark& mark : session.bookmarks_here()) {
      marks.bookmarked.push_back(mark.query);
      if (mark.key) marks.bookmarked.push_back(*mark.key);
    }
    const bool is_current = row != nullptr && row->row.query == selected.query;
    marks.visible = {is_current ? row->row.visible.begin : 0, selected.query + 1};
    if (shades_losses) marks.visible = {0, document.info().n_tokens};
    if (row != nullptr || lost != nullptr) marks.shading = &shading;
    if (is_current) marks.row = row;
    if (feed_.kept().has_keys()) marks.kept = &feed_.kept().keys();
    if (feed_.other().has_keys()) marks.other = &feed_.other().keys();
    if (feed_.found() != nullptr) marks.found = &feed_.found()->positions;

    if (seen_query_ != selected.query) show_ = selected.query;
    if (seen_key_ != selected.key && selected.key) show_ = selected.key;
    const TokenEvents events = canvas_.draw(
        context, *text->texts, text->lines, marks,
        underline_colours(context.look, selected.selector.text(), selected.other.text()), show_);
    show_.reset();
    seen_query_ = selected.query;
    seen_key_ = selected.key;
    if (events.hovered) detail_tooltip(details(document, *events.hovered));
    // What was clicked is in sight: nothing scrolls.
    if (events.query) {
      session.select("token click", [&](Selection& s) { s.query = *events.query; });
      seen_query_ = session.selection().query;
    }
    if (events.key) {
      session.select("token key click", [&](Selection& s) { s.key = *events.key; });
    }
    seen_key_ = session.selection().key;
  }

  HoverLines details(const Document& document, Index pos) const {
    const TokenId id = document.source().tokens()[static_cast<std::size_t>(pos)];
    HoverLines lines = {{"position", fmt::format("{}", pos)}, {"id", fmt::format("{}", id)}};
    if (document.has_text()) {
      lines.emplace_back("text", fmt::format("“{}”", document.token_text(pos)));
    }
    if (const LostTokens* lost = shown_losses()) {
      const auto loss = lost->losses.at(pos);
      lines.emplace_back(
          "lost", loss ? fmt::format("{:.1f}% of its attention", 100.0 * *loss) : "not measured");
    }
    const RankedRow* row = feed_.row();
    if (row == nullptr) return lines;
    const Index rank = row->rank_of(pos);
    if (rank == 0) {
      lines.emplace_back(
          "weight", pos > row->row.query ? "none: after the query" : "none: outside the window");
      return lines;
    }
    lines.emplace_back("weight", weight_words(row->row.prob(pos)));
    lines.emplace_back("rank", fmt::format("{} of {}", rank, row->rank.size()));
    for (const KeptFeed* feed : {&feed_.kept(), &feed_.other()}) {
      if (!feed->has_keys() || feed->keys().row == nullptr) continue;
      lines.emplace_back(feed->keys().method, feed->keys().holds(pos) ? "kept" : "left out");
    }
    return lines;
  }

  TokenFeed feed_;
  TokenCanvas canvas_;
  std::string needle_;
  std::string position_;  // what is typed into "position"
  std::optional<Index> seen_query_;
  std::optional<Index> seen_key_;
  std::optional<Index> show_;  // to be brought into sight
};

}  // namespace

std::unique_ptr<Panel> make_tokens_panel() {
  return std::make_unique<TokensPanel>();
}

}  // namespace kvscope::gui
