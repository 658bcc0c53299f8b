#include "gui/app/help.hpp"

#include <fmt/format.h>

#include <imgui.h>
#include <algorithm>
#include <string>

#include "gui/model/session/help_texts.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

struct MouseHint {
  const char* gesture;
  const char* words;
};
constexpr MouseHint kMouse[] = {
    {"hover", "exact value, token, position; marked in all panels"},
    {"click", "select it, in all panels"},
    {"wheel", "zoom about the mouse (Ctrl: across only, Shift: up and down only)"},
    {"drag", "pan; orbit in 3D"},
    {"Alt and drag", "a lasso around points: marked in text, map and figures until Esc"},
    {"double click", "everything again"},
    {"Shift and drag", "zoom into a rectangle of the attention map"},
    {"over that map",
     "arrows move, + - zoom, 0 all, W all keys, V recorded queries, G selected pair"},
    {"drag a bar", "resize panels; double click: equal parts"},
    {"over the text", "what the word reads lights up; arrows walk (Shift: the key)"},
    {"Shift or right click", "the key instead of the query, in the token strip"},
};

void lines_of(std::string_view text, plot::Colour colour) {
  ImGui::PushStyleColor(ImGuiCol_Text, packed(colour));
  wrapped_words(text);
  ImGui::PopStyleColor();
}

/// The height that the texts take at this width.
float height_of(std::span<const HelpText> texts, float width) {
  float height = 0.0f;
  const float gap = ImGui::GetStyle().ItemSpacing.y;
  for (const HelpText& text : texts) {
    for (const std::string_view part : {text.title, text.formula, text.words, text.source}) {
      if (part.empty()) continue;
      height += ImGui::CalcTextSize(wrap_words(part, width).c_str()).y + gap;
    }
    height += 2 * gap;
  }
  return height;
}

}  // namespace

bool draw_help(const Look& look, const std::vector<Shortcut>& shortcuts) {
  const ImVec2 room = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowPos({room.x / 2, room.y / 2}, ImGuiCond_Always, {0.5f, 0.5f});
  ImGui::SetNextWindowSize(
      {std::min(room.x * 0.94f, look.px(960)), std::min(room.y * 0.92f, look.px(640))});
  ImGui::SetNextWindowFocus();
  ImGui::PushStyleColor(ImGuiCol_WindowBg, packed(look.surface));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 1.0f);
  bool open = true;
  ImGui::Begin("Keys and mouse", &open,
               ImGuiWindowFlags_NoResize | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoCollapse);
  const auto width_of = [](const std::string& words) {
    return ImGui::CalcTextSize(words.c_str()).x;
  };
  float keys_at = 0.0f;  // behind the longest words
  for (const Shortcut& s : shortcuts) keys_at = std::max(keys_at, width_of(s.words) + look.px(12));
  const int n_columns = room.x > look.px(900) ? 2 : 1;
  if (ImGui::BeginTable("columns", n_columns)) {
    std::string group;
    const auto row = [&](const std::string& left, const std::string& right) {
      ImGui::TextUnformatted(right.c_str());
      ImGui::SameLine(keys_at);
      ImGui::TextDisabled("%s", left.c_str());
    };
    ImGui::TableNextColumn();
    const std::size_t half = shortcuts.size() / 2;
    for (std::size_t i = 0; i < shortcuts.size(); ++i) {
      const Shortcut& s = shortcuts[i];
      if (s.group != group) {
        if (i >= half && ImGui::TableGetColumnIndex() + 1 < n_columns) ImGui::TableNextColumn();
        ImGui::Dummy({0, look.px(4)});
        ImGui::TextDisabled("%s", s.group.c_str());
        ImGui::Separator();
        group = s.group;
      }
      // A key and its way back stand on one line, if that is long enough.
      const Shortcut* back = i + 1 < shortcuts.size() ? &shortcuts[i + 1] : nullptr;
      const bool has_way_back = back != nullptr && back->key == s.key && back->group == s.group &&
                                !s.shift && back->shift;
      const std::string both = has_way_back ? fmt::format("{}, {}", s.words, back->words) : "";
      if (has_way_back && width_of(both) < keys_at) {
        row(fmt::format("{}, {}", keys_of(s), keys_of(*back)), both);
        ++i;
      } else {
        row(keys_of(s), s.words);
      }
    }
    ImGui::Dummy({0, look.px(4)});
    ImGui::TextDisabled("Mouse");
    ImGui::Separator();
    for (const MouseHint& hint : kMouse) {
      ImGui::TextUnformatted(hint.gesture);
      ImGui::SameLine(look.px(130));
      ImGui::PushTextWrapPos(0.0f);
      ImGui::TextDisabled("%s", hint.words);
      ImGui::PopTextWrapPos();
    }
    ImGui::EndTable();
  }
  ImGui::End();
  ImGui::PopStyleVar();
  ImGui::PopStyleColor();
  return open;
}

bool draw_panel_help(const PanelContext& context, std::string_view panel) {
  const std::span<const HelpText> texts = help_texts(panel);
  if (texts.empty()) return false;
  const Look& look = context.look;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float inset = look.px(10);
  const float wanted =
      height_of(texts, room.x - 2 * inset - ImGui::GetStyle().ScrollbarSize) + 2 * look.px(6);
  ImGui::PushStyleColor(ImGuiCol_ChildBg,
                        packed(plot::blend(plot::with_alpha(look.accent, 0.07), look.surface)));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {inset, look.px(6)});
  // The rest scrolls: a picture with its switches needs room beside its explanation.
  const float most = std::max(look.px(90), std::min(room.y * 0.5f, room.y - look.px(380)));
  ImGui::BeginChild("help", {0, std::min(wanted, most)}, false,
                    ImGuiWindowFlags_AlwaysUseWindowPadding | ImGuiWindowFlags_NavFlattened);
  for (const HelpText& text : texts) {
    lines_of(text.title, look.accent);
    if (!text.formula.empty()) {
      ImGui::Indent(look.px(12));
      lines_of(text.formula, look.ink);
      ImGui::Unindent(look.px(12));
    }
    lines_of(text.words, look.ink);
    if (!text.source.empty()) lines_of(text.source, look.muted);
    ImGui::Dummy({0, ImGui::GetStyle().ItemSpacing.y});
  }
  ImGui::EndChild();
  ImGui::PopStyleVar();
  ImGui::PopStyleColor();
  return true;
}

}  // namespace kvscope::gui
