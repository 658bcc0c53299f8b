#include "gui/panels/widgets.hpp"

#include <fmt/format.h>
#include <imgui_internal.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gui/model/traces/trace_facts.hpp"

namespace kvscope::gui {

namespace {

ImVec4 vec4(plot::Colour c) {
  return ImGui::ColorConvertU32ToFloat4(packed(c));
}

void text_line(std::string_view text) {
  ImGui::TextUnformatted(text.data(), text.data() + text.size());
}

/// Wrapped lines, centred in the window, starting at the cursor.
void centred(std::string_view text, float wrap_width) {
  const float width = ImGui::GetContentRegionAvail().x;
  const float wrap = std::min(width, wrap_width);
  const ImVec2 size = ImGui::CalcTextSize(text.data(), text.data() + text.size(), false, wrap);
  const float left = ImGui::GetCursorPosX() + std::max(0.0f, (width - size.x) / 2);
  ImGui::SetCursorPosX(left);
  ImGui::PushTextWrapPos(left + wrap + 1.0f);
  text_line(text);
  ImGui::PopTextWrapPos();
}

bool centred_button(const char* label) {
  const float width = ImGui::CalcTextSize(label).x + 2 * ImGui::GetStyle().FramePadding.x;
  ImGui::SetCursorPosX(ImGui::GetCursorPosX() +
                       std::max(0.0f, (ImGui::GetContentRegionAvail().x - width) / 2));
  return ImGui::Button(label);
}

std::vector<std::string> error_sentences;  // of this frame; one window, hence one of these

void to_upper_third(float height) {
  const float room = ImGui::GetContentRegionAvail().y;
  ImGui::SetCursorPosY(ImGui::GetCursorPosY() + std::max(0.0f, (room - height) * 0.4f));
}

SlotAction report_in_middle(const PanelContext& context, const JobStatus& status) {
  SlotAction action = SlotAction::none;
  const float line = ImGui::GetTextLineHeightWithSpacing();
  if (status.state == JobState::failed) {
    return error_place(context, status.error) ? SlotAction::retry : SlotAction::none;
  }
  if (status.state == JobState::cancelled) {
    to_upper_third(3 * line);
    centred(status.title + ": cancelled", context.look.px(360));
    return centred_button("Compute it") ? SlotAction::retry : SlotAction::none;
  }
  to_upper_third(4 * line);
  centred(status.title, context.look.px(360));
  const float width = std::min(ImGui::GetContentRegionAvail().x, context.look.px(220));
  ImGui::SetCursorPosX(ImGui::GetCursorPosX() + (ImGui::GetContentRegionAvail().x - width) / 2);
  progress_bar(status, width);
  ImGui::PushStyleColor(ImGuiCol_Text, vec4(context.look.muted));
  centred(progress_words(status), context.look.px(360));
  ImGui::PopStyleColor();
  if (centred_button("Cancel")) action = SlotAction::cancel;
  return action;
}

}  // namespace

namespace {
/// There is one window, hence one list.
Landmarks seen_landmarks;
}  // namespace

void landmark(std::string name) {
  const Landmark item{std::move(name), ImGui::GetItemRectMin(), ImGui::GetItemRectMax()};
  const ImVec2 at = item.middle();
  if (ImGui::IsRectVisible(at, {at.x + 1, at.y + 1})) seen_landmarks.push_back(item);
}

Landmarks take_landmarks() {
  return std::exchange(seen_landmarks, {});
}

void veil(const PanelContext& context) {
  ImGui::BeginChild("veil", {0, 0}, false,
                    ImGuiWindowFlags_NoInputs | ImGuiWindowFlags_NoScrollbar);
  // Not as the child's ground, which ImGui may draw below what its parent draws later.
  const ImVec2 low = ImGui::GetWindowPos();
  const ImVec2 size = ImGui::GetWindowSize();
  ImGui::GetWindowDrawList()->AddRectFilled(low, {low.x + size.x, low.y + size.y},
                                            packed(plot::with_alpha(context.look.surface, 0.5)));
  ImGui::EndChild();
}

namespace {

/// Over the picture: a line in the corner that takes no room, above legends and colour bars; a
/// failure takes as many lines as it has.
SlotAction report_in_corner(const PanelContext& context, const JobStatus& status) {
  SlotAction action = SlotAction::none;
  const ImVec2 keep = ImGui::GetCursorPos();
  const ImGuiStyle& style = ImGui::GetStyle();
  const float room = ImGui::GetContentRegionAvail().x;
  const bool failed = status.state == JobState::failed;
  const bool is_over = failed || status.state == JobState::cancelled;
  const char* label = failed ? "Try again" : is_over ? "Compute it" : "Cancel";
  const float bar = is_over ? 0.0f : context.look.px(60) + style.ItemSpacing.x;
  const float beside = bar + ImGui::CalcTextSize(label).x + 2 * style.FramePadding.x +
                       style.ItemSpacing.x + 2 * style.WindowPadding.x;
  std::string words = failed ? status.error
                             : status.title + (is_over ? ": cancelled; what is pale is of before"
                                                       : ": pale until it is done");
  const float most = std::max(1.0f, room - beside);
  words = failed ? wrap_words(words, most) : fitting(words, most);
  const ImVec2 text = ImGui::CalcTextSize(words.c_str());
  const ImVec2 at = ImGui::GetCursorScreenPos();
  veil(context);
  ImGui::SetCursorScreenPos({at.x + std::max(0.0f, most - text.x), at.y});
  ImGui::PushStyleColor(ImGuiCol_ChildBg, vec4(context.look.raised));
  ImGui::PushStyleVar(ImGuiStyleVar_ChildRounding, context.look.px(5));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {style.WindowPadding.x, context.look.px(2)});
  ImGui::BeginChild("job", {text.x + beside, text.y + 2 * style.WindowPadding.y}, true,
                    ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NavFlattened);
  ImGui::PopStyleVar();
  ImGui::PushStyleColor(ImGuiCol_Text, vec4(failed ? context.look.error : context.look.ink));
  text_line(words);
  ImGui::PopStyleColor();
  ImGui::SameLine();
  if (!is_over) {
    ImGui::SetCursorPosY(ImGui::GetCursorPosY() + 0.35f * ImGui::GetTextLineHeight());
    progress_bar(status, context.look.px(60));
    ImGui::SameLine();
    ImGui::SetCursorPosY(ImGui::GetCursorPosY() - 0.35f * ImGui::GetTextLineHeight());
  }
  if (ImGui::SmallButton(label)) action = is_over ? SlotAction::retry : SlotAction::cancel;
  ImGui::EndChild();
  ImGui::PopStyleVar();
  ImGui::PopStyleColor();
  ImGui::SetCursorPos(keep);
  return action;
}

}  // namespace

std::string progress_words(const JobStatus& status) {
  const Progress& p = status.progress;
  if (status.state == JobState::waiting) return "waiting for other work";
  if (p.total > 0) return fmt::format("{} {}/{} {}", p.stage, p.done, p.total, p.unit);
  if (p.done > 0) return fmt::format("{} {} {}", p.stage, p.done, p.unit);
  return p.stage.empty() ? "working" : p.stage;
}

void progress_bar(const JobStatus& status, float width) {
  const Progress& p = status.progress;
  const float share = p.total > 0 ? static_cast<float>(p.done) / static_cast<float>(p.total) : 0.0f;
  ImGui::ProgressBar(std::clamp(share, 0.0f, 1.0f), {width, ImGui::GetTextLineHeight() * 0.35f},
                     "");
}

void empty_place(const PanelContext& context, std::string_view headline,
                 std::string_view sentence) {
  const float wrap = context.look.px(420);
  const ImVec2 size =
      ImGui::CalcTextSize(sentence.data(), sentence.data() + sentence.size(), false, wrap);
  to_upper_third(size.y + 2 * ImGui::GetTextLineHeightWithSpacing());
  centred(headline, wrap);
  ImGui::PushStyleColor(ImGuiCol_Text, vec4(context.look.muted));
  centred(sentence, wrap);
  ImGui::PopStyleColor();
}

std::vector<std::string> take_error_sentences() {
  return std::exchange(error_sentences, {});
}

bool error_place(const PanelContext& context, std::string_view sentence) {
  error_sentences.emplace_back(sentence);
  const float wrap = context.look.px(460);
  const ImVec2 size =
      ImGui::CalcTextSize(sentence.data(), sentence.data() + sentence.size(), false, wrap);
  to_upper_third(size.y + 2 * ImGui::GetFrameHeightWithSpacing());
  ImGui::PushStyleColor(ImGuiCol_Text, vec4(context.look.error));
  centred(sentence, wrap);
  ImGui::PopStyleColor();
  return centred_button("Try again");
}

SlotAction job_place(const PanelContext& context, const JobStatus& status, bool has_value,
                     bool fresh) {
  if (fresh) return SlotAction::none;
  if (has_value && status.state == JobState::failed) error_sentences.push_back(status.error);
  return has_value ? report_in_corner(context, status) : report_in_middle(context, status);
}

bool needs_trace(const PanelContext& context) {
  if (context.session.document()) return false;
  empty_place(
      context, "No trace is open",
      "Drop a trace (.h5) onto the window, or open one with Ctrl+O. kvscope record makes them.");
  return true;
}

bool segmented(const char* id, int& chosen, std::span<const std::string_view> names) {
  bool changed = false;
  ImGui::PushID(id);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {1.0f, ImGui::GetStyle().ItemSpacing.y});
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) ImGui::SameLine();
    std::string words(names[i]);
    std::ranges::replace(words, '_', ' ');
    const bool on = chosen == static_cast<int>(i);
    if (on) {
      const ImVec4 accent = ImGui::GetStyleColorVec4(ImGuiCol_CheckMark);
      ImGui::PushStyleColor(ImGuiCol_Button, {accent.x, accent.y, accent.z, 0.28f});
    }
    if (ImGui::Button(words.c_str()) && !on) {
      chosen = static_cast<int>(i);
      changed = true;
    }
    landmark(fmt::format("{} {}", id, names[i]));
    if (on) ImGui::PopStyleColor();
  }
  ImGui::PopStyleVar();
  ImGui::PopID();
  return changed;
}

bool choose(const char* id, std::string& chosen, const std::vector<std::string>& names,
            float width) {
  bool changed = false;
  if (width != 0.0f) ImGui::SetNextItemWidth(width);
  if (ImGui::BeginCombo(id, chosen.c_str(), ImGuiComboFlags_HeightLarge)) {
    for (const std::string& name : names) {
      const bool on = name == chosen;
      if (ImGui::Selectable(name.c_str(), on) && !on) {
        chosen = name;
        changed = true;
      }
      if (on) ImGui::SetItemDefaultFocus();
    }
    ImGui::EndCombo();
  }
  return changed;
}

namespace {
/// There is one mouse, hence one tooltip.
HoverLines hover_lines;
}  // namespace

std::string wrap_words(std::string_view words, float width) {
  const auto width_of = [](std::string_view part) {
    return ImGui::CalcTextSize(part.data(), part.data() + part.size()).x;
  };
  std::string lines;
  float used = 0.0f;
  while (!words.empty()) {
    // A part is spaces and the word behind them; a line begins without the spaces.
    const std::size_t word = std::min(words.find_first_not_of(' '), words.size());
    const std::size_t end = std::min(words.find_first_of(" \n", word), words.size());
    const float needed = width_of(words.substr(0, end));
    const bool fits = used == 0.0f || used + needed <= width;
    if (!fits) lines += '\n';
    lines += words.substr(fits ? 0 : word, fits ? end : end - word);
    used = fits ? used + needed : width_of(words.substr(word, end - word));
    words.remove_prefix(end);
    if (!words.empty() && words.front() == '\n') {
      lines += '\n';
      used = 0.0f;
      words.remove_prefix(1);
    }
  }
  return lines;
}

std::string fitting(std::string_view words, float width) {
  return shortened_middle(words, [&](std::string_view part) {
    return ImGui::CalcTextSize(part.data(), part.data() + part.size()).x <= width;
  });
}

void one_line(const std::string& words) {
  std::string shown = words;
  const float room = ImGui::GetContentRegionAvail().x;
  while (shown.size() > 3 && ImGui::CalcTextSize(shown.c_str()).x > room) {
    const std::size_t blank = shown.find_last_of(' ', shown.size() - 4);
    if (blank == shown.npos) {
      shown = fitting(words, room);
      break;
    }
    shown = shown.substr(0, blank) + "\u2026";
  }
  text_line(shown);
  if (shown != words) help_tooltip(words);
}

void one_line(plot::Colour colour, const std::string& words) {
  ImGui::PushStyleColor(ImGuiCol_Text, packed(colour));
  one_line(words);
  ImGui::PopStyleColor();
}

void wrapped_words(std::string_view words) {
  ImGui::TextUnformatted(wrap_words(words, ImGui::GetContentRegionAvail().x).c_str());
}

void coloured_words(plot::Colour colour, const std::string& words) {
  ImGui::PushStyleColor(ImGuiCol_Text, packed(colour));
  ImGui::TextWrapped("%s", words.c_str());
  ImGui::PopStyleColor();
}

void begin_part(const char* id, ImVec2 size) {
  ImGui::BeginChild(id, size, false, ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NavFlattened);
}

bool begin_dialog(const Look& look, const char* id, bool& should_open, ImVec2 size) {
  if (std::exchange(should_open, false)) ImGui::OpenPopup(id);
  const ImVec2 room = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowPos({room.x / 2, room.y / 2}, ImGuiCond_Always, {0.5f, 0.5f});
  ImGui::SetNextWindowSize(
      {std::min(room.x * 0.9f, look.px(size.x)), std::min(room.y * 0.9f, look.px(size.y))});
  return ImGui::BeginPopupModal(
      id, nullptr,
      ImGuiWindowFlags_NoResize | ImGuiWindowFlags_NoMove |
          (size.y > 0.0f ? ImGuiWindowFlags_None : ImGuiWindowFlags_AlwaysAutoResize));
}

void detail_tooltip(const HoverLines& lines, const Pointed& about) {
  hover_lines = lines;
  point_at(about);
  float names = 0.0f;
  for (const auto& [name, value] : lines)
    names = std::max(names, ImGui::CalcTextSize(name.c_str()).x);
  ImGui::BeginTooltip();
  for (const auto& [name, value] : lines) {
    ImGui::TextDisabled("%s", name.c_str());
    ImGui::SameLine(names + 2 * ImGui::GetStyle().ItemSpacing.x);
    text_line(value);
  }
  ImGui::EndTooltip();
}

HoverLines collect_hover_lines() {
  return std::exchange(hover_lines, {});
}

std::string token_words(const Document& document, Index pos) {
  const auto tokens = document.source().tokens();
  if (pos < 0 || pos >= static_cast<Index>(tokens.size())) return fmt::format("{}", pos);
  const TokenId id = tokens[static_cast<std::size_t>(pos)];
  if (!document.has_text()) return fmt::format("{}  (id {})", pos, id);
  return fmt::format("{}  “{}”  (id {})", pos, document.token_text(pos), id);
}

namespace {
/// Which sentence the mouse rests on; one mouse, hence one of these.
struct TooltipState {
  ImGuiID hovered = 0;
  double since = 0.0;
  bool waits = false;
};
TooltipState tooltip_state;
}  // namespace

bool check_box(const char* words, bool* value) {
  ImVec4 edge = ImGui::GetStyleColorVec4(ImGuiCol_TextDisabled);
  edge.w *= 0.6f;
  ImGui::PushStyleVar(ImGuiStyleVar_FrameBorderSize, 1.0f);
  ImGui::PushStyleColor(ImGuiCol_Border, edge);
  const bool changed = ImGui::Checkbox(words, value);
  ImGui::PopStyleColor();
  ImGui::PopStyleVar();
  return changed;
}

void help_tooltip(std::string_view sentence) {
  constexpr double kMoment = 0.5;
  if (!ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled)) return;
  const ImGuiID here = ImGui::GetID(sentence.data(), sentence.data() + sentence.size());
  if (here != tooltip_state.hovered) {
    tooltip_state.hovered = here;
    tooltip_state.since = ImGui::GetTime();
  }
  if (ImGui::GetTime() - tooltip_state.since < kMoment) {
    tooltip_state.waits = true;
    return;
  }
  ImGui::BeginTooltip();
  ImGui::PushTextWrapPos(ImGui::GetFontSize() * 24.0f);
  text_line(sentence);
  ImGui::PopTextWrapPos();
  ImGui::EndTooltip();
}

void keyboard_here() {
  ImGuiWindow* window = ImGui::GetCurrentWindow();
  ImGui::FocusWindow(window);
  ImGui::NavInitWindow(window, /*force_reinit=*/true);
  ImGui::GetCurrentContext()->NavInitRequestFromMove = true;  // as an arrow would: with its mark
}

bool has_keyboard_mark() {
  const ImGuiContext& g = *ImGui::GetCurrentContext();
  return g.NavId != 0 && !g.NavDisableHighlight;
}

namespace {
bool arrows_are_claimed = false;  // there is one keyboard
}  // namespace

void claim_arrows() {
  arrows_are_claimed = true;
}

bool take_arrow_claim() {
  return std::exchange(arrows_are_claimed, false);
}

bool take_tooltip_wait() {
  return std::exchange(tooltip_state.waits, false);
}

namespace detail {

namespace {

std::string label_of(const Field& field) {
  return "##" + std::string(field.name);
}

/// The name at the left, the control in what is left of the line.
void name_before(const Field& field) {
  ImGui::AlignTextToFramePadding();
  ImGui::TextDisabled("%.*s", static_cast<int>(field.name.size()), field.name.data());
  help_tooltip(field.help);
  ImGui::SameLine(ImGui::GetFontSize() * 6.2f);
  ImGui::SetNextItemWidth(-1.0f);
}

}  // namespace

bool index_control(const Field& field, Index& value) {
  name_before(field);
  const bool bounded = std::isfinite(field.min) && std::isfinite(field.max);
  bool changed = false;
  if (bounded) {
    const auto low = static_cast<Index>(field.min);
    const auto high = static_cast<Index>(field.max);
    const bool wide = high - low > 512;  // sizes: equal steps of the slider double them
    changed =
        ImGui::SliderScalar(label_of(field).c_str(), ImGuiDataType_S64, &value, &low, &high, "%lld",
                            ImGuiSliderFlags_AlwaysClamp |
                                (wide ? ImGuiSliderFlags_Logarithmic : ImGuiSliderFlags_None));
  } else {
    const Index step = 1;
    changed = ImGui::InputScalar(label_of(field).c_str(), ImGuiDataType_S64, &value, &step);
    const double number = std::clamp(static_cast<double>(value), field.min, field.max);
    if (changed) value = static_cast<Index>(number);
  }
  landmark(std::string(field.name));
  help_tooltip(field.help);
  return changed;
}

bool number_control(const Field& field, double& value) {
  name_before(field);
  const bool bounded = std::isfinite(field.min) && std::isfinite(field.max);
  const double low = field.min;
  const double high = field.max;
  const bool changed =
      bounded ? ImGui::SliderScalar(label_of(field).c_str(), ImGuiDataType_Double, &value, &low,
                                    &high, "%.3g", ImGuiSliderFlags_AlwaysClamp)
              : ImGui::InputDouble(label_of(field).c_str(), &value, 0.0, 0.0, "%.6g",
                                   ImGuiInputTextFlags_EnterReturnsTrue);
  if (changed) value = std::clamp(value, field.min, field.max);
  landmark(std::string(field.name));
  help_tooltip(field.help);
  return changed;
}

bool flag_control(const Field& field, bool& value) {
  const bool changed = check_box(std::string(field.name).c_str(), &value);
  help_tooltip(field.help);
  return changed;
}

bool word_control(const Field& field, std::string& value) {
  name_before(field);
  const bool changed =
      ImGui::InputText(label_of(field).c_str(), &value, ImGuiInputTextFlags_EnterReturnsTrue);
  help_tooltip(field.help);
  return changed;
}

bool enum_control(const Field& field, int& value, std::span<const std::string_view> names) {
  name_before(field);
  std::vector<std::string> words(names.begin(), names.end());
  std::string chosen = words[static_cast<std::size_t>(value)];
  if (!choose(label_of(field).c_str(), chosen, words, -1.0f)) return false;
  value = static_cast<int>(std::ranges::find(words, chosen) - words.begin());
  return true;
}

}  // namespace detail

}  // namespace kvscope::gui
