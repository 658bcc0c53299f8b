#include "gui/panels/token_search.hpp"

#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "gui/model/tokens/token_text.hpp"
#include "gui/model/tokens/token_view.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

/// The position that matches are counted from: the query, or the key.
Index place_of(const Session& session, bool sets_key) {
  const Selection& selected = session.selection();
  return sets_key ? selected.key.value_or(-1) : selected.query;
}

}  // namespace

void TokenSearch::draw(PanelContext& context, const Document& document, const FoundTokens* found,
                       bool& sets_key, bool wants_focus) {
  const Look& look = context.look;
  Session& session = context.session;
  ImGui::BeginDisabled(!document.has_text());
  if (wants_focus) ImGui::SetKeyboardFocusHere();
  ImGui::SetNextItemWidth(look.px(150));
  const bool entered = ImGui::InputTextWithHint(
      "##search", document.has_text() ? "search (Ctrl+F)" : "no text", &needle_,
      ImGuiInputTextFlags_EnterReturnsTrue | ImGuiInputTextFlags_AutoSelectAll);
  if (entered) {
    go_to_match(session, found, sets_key, /*forward=*/!ImGui::GetIO().KeyShift);
    ImGui::SetKeyboardFocusHere(-1);
  }
  help_tooltip("Enter goes to the next match, Shift+Enter to the one before.");
  ImGui::EndDisabled();
  if (needle_.empty() || !document.has_text()) return;
  ImGui::SameLine();
  if (ImGui::ArrowButton("before", ImGuiDir_Left))
    go_to_match(session, found, sets_key, /*forward=*/false);
  ImGui::SameLine(0, look.px(2));
  if (ImGui::ArrowButton("after", ImGuiDir_Right))
    go_to_match(session, found, sets_key, /*forward=*/true);
  ImGui::SameLine();
  ImGui::AlignTextToFramePadding();
  const std::string words =
      found != nullptr ? match_words(found->positions, place_of(session, sets_key)) : "...";
  ImGui::TextDisabled("%s", words.c_str());
  ImGui::SameLine();
  static constexpr std::array<std::string_view, 2> kSets = {"query", "key"};
  int sets = sets_key ? 1 : 0;
  if (segmented("sets", sets, kSets)) sets_key = sets == 1;
  help_tooltip("What becomes the match: the query, or the key that it looks at.");
}

std::optional<TokenRange> TokenSearch::word(const Session& session,
                                            const FoundTokens* matches) const {
  const std::optional<Index> key = session.selection().key;
  if (needle_.empty() || matches == nullptr || matches->positions.empty())
    return key ? std::optional(TokenRange{*key, *key + 1}) : std::nullopt;
  const auto& found = matches->positions;
  std::size_t at = found.front();
  for (const std::optional<Index> place :
       {key, std::optional(session.selection().query), last_match_}) {
    if (place && std::ranges::binary_search(found, static_cast<std::size_t>(*place)))
      at = static_cast<std::size_t>(*place);
  }
  const auto end =
      matches->ends[static_cast<std::size_t>(std::ranges::lower_bound(found, at) - found.begin())];
  return TokenRange{static_cast<Index>(at), static_cast<Index>(end)};
}

void TokenSearch::go_to_match(Session& session, const FoundTokens* found, bool sets_key,
                              bool forward) {
  if (found == nullptr) return;
  std::vector<std::size_t> positions = found->positions;
  if (sets_key) {
    // A key cannot lie after its query.
    std::erase_if(positions, [&](std::size_t pos) {
      return static_cast<Index>(pos) > session.selection().query;
    });
  }
  const auto match = next_match(positions, place_of(session, sets_key), forward);
  if (!match) return;
  last_match_ = match;
  session.select("token search", [&](Selection& s) {
    if (sets_key) {
      s.key = *match;
    } else {
      s.query = *match;
    }
  });
  place_ = *match;
}

void TokenSearch::draw_go_to(PanelContext& context, const Document& document) {
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
  place_ = pos;
}

std::optional<Index> TokenSearch::take_place() {
  return std::exchange(place_, std::nullopt);
}

}  // namespace kvscope::gui
