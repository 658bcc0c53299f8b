#include "gui/panels/token_legend.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <array>

#include "analysis/figures/selection.hpp"
#include "core/base/number_text.hpp"
#include "gui/panels/token_painter.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

/// One line; whole in a tooltip where the window ends before it does.
void say(plot::Colour colour, const std::string& words) {
  ImGui::PushStyleColor(ImGuiCol_Text, packed(colour));
  ImGui::TextUnformatted(words.c_str());
  ImGui::PopStyleColor();
  if (ImGui::GetItemRectMax().x > ImGui::GetWindowPos().x + ImGui::GetWindowWidth()) {
    help_tooltip(words);
  }
}

void say_kept(const PanelContext& context, const TokenFeed& feed, bool of_other,
              plot::Colour colour, Stroke stroke) {
  const MethodOfText& method = of_other ? feed.other() : feed.method();
  ImGui::AlignTextToFramePadding();
  underline_sample(context.look, colour, stroke);
  ImGui::SameLine(0, context.look.px(5));
  ImGui::AlignTextToFramePadding();
  if (!method.problem().empty()) {
    say(context.look.warning, method.problem());
  } else if (const auto keys = feed.keys(of_other)) {
    say(context.look.ink, kept_words(*keys, feed.row()->row));
  } else {
    say(context.look.muted, fmt::format("computing what {} keeps...", method.name()));
  }
}

/// What dots and strokes mean.
void say_marks(const PanelContext& context, const TokenFeed& feed, bool compares,
               const UnderlineColours& colours) {
  const Look& look = context.look;
  if (!feed.reading_problem().empty()) {
    // Of the kept keys it is said already.
    if (feed.reading_problem() != feed.method().problem())
      say(look.warning, feed.reading_problem());
    return;
  }
  const auto sample = [&](plot::Colour colour, Stroke stroke, const char* words) {
    ImGui::AlignTextToFramePadding();
    underline_sample(look, colour, stroke);
    ImGui::SameLine(0, look.px(5));
    ImGui::AlignTextToFramePadding();
    say(look.muted, words);
  };
  sample(colours.kept, Stroke::dotted, "by rule");
  help_tooltip(
      "Kept whatever its score: the first tokens, the most recent ones, the running "
      "chunk. A line: kept for its score.");
  ImGui::SameLine(0, look.px(10));
  sample(compares ? colours.kept : look.error, Stroke::struck, "dropped");
  help_tooltip(
      fmt::format("Struck out: of the {} keys that the word reads most, those that the "
                  "method drops.",
                  kHeavyKeys));
  if (!compares || feed.reading() == nullptr) return;
  const Selection& selected = context.session.selection();
  const std::string words =
      difference_words(*feed.reading(), figures::method_label(selected.selector.text()),
                       figures::method_label(selected.other.text()));
  if (words.empty()) return;
  ImGui::SameLine(0, look.px(10));
  say(look.ink, words);
}

/// The worst sections as a list, and the loss in words. The token that was gone to.
std::optional<Index> draw_losses(PanelContext& context, const TokenFeed& feed,
                                 const Document& document) {
  const Look& look = context.look;
  const TokenLosses* lost = feed.method().lost().get();
  if (!feed.loss_problem().empty()) {
    if (feed.loss_problem() != feed.method().problem()) say(look.warning, feed.loss_problem());
    return std::nullopt;
  }
  if (lost == nullptr) {
    say(look.muted, "computing what is lost...");
    return std::nullopt;
  }
  std::optional<Index> show;
  const TokenLosses* other = feed.other().lost().get();
  ImGui::SetNextItemWidth(look.px(130));
  if (ImGui::BeginCombo("##worst", "worst passages")) {
    for (std::size_t i = 0; i < feed.worst().size(); ++i) {
      const LossSection& section = feed.worst()[i];
      const std::string words = fmt::format(
          "{}  {} to {}  {}", loss_number(section.mean, lost->request.kind), section.tokens.begin,
          section.tokens.end - 1, document.has_text() ? document.text_of(section.tokens, 60) : "");
      ImGui::PushID(static_cast<int>(i));
      if (ImGui::Selectable(words.c_str())) {
        context.session.select("worst passage", [&](Selection& s) { s.query = section.worst; });
        show = section.worst;
      }
      ImGui::PopID();
    }
    ImGui::EndCombo();
  }
  help_tooltip(
      "Passages by their mean loss (more than the other's, where two are compared); a "
      "click goes to the token that loses most there.");
  ImGui::SameLine(0, look.px(8));
  ImGui::AlignTextToFramePadding();
  say(look.ink, other != nullptr && feed.shaded_losses() != nullptr
                    ? difference_words(*feed.shaded_losses(), other->request)
                    : loss_words(*lost));
  return show;
}

}  // namespace

std::optional<Index> draw_token_legend(PanelContext& context, const TokenFeed& feed,
                                       const Document& document, const LegendWish& wish) {
  const Look& look = context.look;
  const Selection& selected = context.session.selection();
  const UnderlineColours colours =
      underline_colours(look, selected.selector.text(), selected.other.text());
  ImGui::AlignTextToFramePadding();
  if (!feed.row_problem().empty()) {
    say(look.error, feed.row_problem());
    return std::nullopt;
  }
  std::optional<Index> show;
  ImGui::BeginGroup();
  if (wish.losses) {
    show = draw_losses(context, feed, document);
    if (wish.is_strip) ImGui::SameLine(0, look.px(14));
  }
  say_kept(context, feed, /*of_other=*/false, colours.kept, Stroke::solid);
  if (wish.compare) {
    if (wish.is_strip) ImGui::SameLine(0, look.px(14));
    say_kept(context, feed, /*of_other=*/true, colours.other, Stroke::dashed);
  }
  if (wish.is_strip || !wish.compare) ImGui::SameLine(0, look.px(14));
  say_marks(context, feed, wish.compare, colours);
  ImGui::EndGroup();
  if (feed.script_remark().empty()) return show;
  if (wish.is_strip) {
    ImGui::SameLine(0, look.px(14));
    say(look.warning, feed.script_remark());
  } else {
    coloured_words(look.warning, feed.script_remark());
  }
  return show;
}

HoverLines token_details(const PanelContext& context, const TokenFeed& feed,
                         const Document& document, Index pos, const TokenLosses* shown) {
  const TokenId id = document.source().tokens()[static_cast<std::size_t>(pos)];
  HoverLines lines = {{"position", fmt::format("{}", pos)}};
  if (document.has_text()) {
    lines.emplace_back("text", fmt::format("“{}” (id {})", document.token_text(pos), id));
  } else {
    lines.emplace_back("id", fmt::format("{}", id));
  }
  if (shown != nullptr) {
    constexpr std::array<const char*, 3> kOf = {" of its attention", " of its output",
                                                " of the next token"};
    const LossKind kind = shown->request.kind;
    const auto number = [&](const TokenLosses& losses) {
      return losses.is_measured(pos)
                 ? loss_number(*losses.at(pos), kind) + kOf[static_cast<std::size_t>(kind)]
                 : std::string("not measured");
    };
    std::string words = number(*shown);
    if (const auto& other = feed.other().lost()) words += ", the other " + number(*other);
    lines.emplace_back("lost", words);
  }
  const Reading* reading = feed.reading();
  if (reading != nullptr && reading->reader() == pos) {
    constexpr std::size_t kTold = 4;
    lines.emplace_back("reads", reading_words(*reading, document, kTold));
    if (!reading->outcomes.of.empty())
      lines.emplace_back("loses", percent_text(reading->outcomes.lost) + " here");
    const Selection& selected = context.session.selection();
    const std::string against =
        difference_words(*reading, figures::method_label(selected.selector.text()),
                         figures::method_label(selected.other.text()));
    if (!against.empty()) lines.emplace_back("compared", against);
  }
  const RankedRow* row = feed.row();
  if (row == nullptr) return lines;
  const Index rank = row->rank_of(pos);
  const std::string weight = fmt::format("weight for query {}", row->row.query);
  if (rank == 0) {
    lines.emplace_back(weight,
                       pos > row->row.query ? "none: after the query" : "none: outside the window");
    return lines;
  }
  lines.emplace_back(weight, fmt::format("{}, number {} of {}", weight_words(row->row.prob(pos)),
                                         rank, row->rank.size()));
  for (const bool of_other : {false, true}) {
    const auto kept = feed.keys(of_other);
    if (!kept || !kept->is_known()) continue;
    lines.emplace_back(kept->method, kept->holds(pos) ? "kept for it" : "left out");
  }
  return lines;
}

}  // namespace kvscope::gui
