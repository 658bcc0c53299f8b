#include "gui/render/look.hpp"

#include <cstdint>

namespace kvscope::gui {

namespace {

using plot::Colour;
using plot::colour_from_rgb;
using plot::with_alpha;

}  // namespace

Look make_look(plot::Ground ground, float scale) {
  const auto of = [&](std::uint32_t light, std::uint32_t dark) {
    return colour_from_rgb(ground == plot::Ground::light ? light : dark);
  };
  return {.ground = ground,
          .scale = scale,
          .window = of(0xe9ebee, 0x121417),
          .surface = of(0xffffff, 0x1b1e22),
          .raised = of(0xf3f4f6, 0x25292e),
          .line = of(0xd3d7dc, 0x343a41),
          .ink = of(0x1d2228, 0xe6e9ec),
          .muted = of(0x5f6872, 0x9aa4ae),
          .accent = of(0x0067b8, 0x5cb0f5),
          .warning = of(0x8a5a00, 0xe5b454),
          .error = of(0xb3261e, 0xff8a80)};
}

void apply_look(const Look& look, ImGuiStyle& style) {
  style = ImGuiStyle();
  style.FramePadding = {7, 4};
  style.ItemSpacing = {8, 6};
  style.ItemInnerSpacing = {6, 4};
  style.ScrollbarSize = 11;
  style.GrabMinSize = 6;
  style.WindowBorderSize = 0;
  style.ChildBorderSize = 0;
  style.FrameRounding = 4;
  style.PopupRounding = 5;
  style.GrabRounding = 4;
  style.ScrollbarRounding = 6;
  style.ScaleAllSizes(look.scale);

  const auto set = [&](ImGuiCol at, Colour colour) {
    style.Colors[at] = ImGui::ColorConvertU32ToFloat4(packed(colour));
  };
  set(ImGuiCol_Text, look.ink);
  set(ImGuiCol_TextDisabled, look.muted);
  set(ImGuiCol_WindowBg, look.window);
  set(ImGuiCol_ChildBg, with_alpha(look.surface, 0.0));
  set(ImGuiCol_PopupBg, look.surface);
  set(ImGuiCol_Border, look.line);
  // Fields and boxes are darker than buttons and cards: values are no labels, and a box without a
  // tick is seen.
  const Colour field = plot::blend(with_alpha(look.muted, 0.17), look.surface);
  set(ImGuiCol_FrameBg, field);
  set(ImGuiCol_FrameBgHovered, plot::blend(with_alpha(look.accent, 0.14), field));
  set(ImGuiCol_FrameBgActive, plot::blend(with_alpha(look.accent, 0.24), field));
  set(ImGuiCol_TitleBg, look.raised);
  set(ImGuiCol_TitleBgActive, look.raised);
  set(ImGuiCol_ScrollbarBg, with_alpha(look.surface, 0.0));
  set(ImGuiCol_ScrollbarGrab, look.line);
  set(ImGuiCol_ScrollbarGrabHovered, look.muted);
  set(ImGuiCol_ScrollbarGrabActive, look.accent);
  set(ImGuiCol_CheckMark, look.accent);
  set(ImGuiCol_SliderGrab, with_alpha(look.accent, 0.55));
  set(ImGuiCol_SliderGrabActive, look.accent);
  set(ImGuiCol_Button, look.raised);
  set(ImGuiCol_ButtonHovered, plot::blend(with_alpha(look.accent, 0.18), look.raised));
  set(ImGuiCol_ButtonActive, plot::blend(with_alpha(look.accent, 0.34), look.raised));
  set(ImGuiCol_Header, with_alpha(look.accent, 0.18));
  set(ImGuiCol_HeaderHovered, with_alpha(look.accent, 0.12));
  set(ImGuiCol_HeaderActive, with_alpha(look.accent, 0.28));
  set(ImGuiCol_Separator, look.line);
  set(ImGuiCol_SeparatorHovered, look.accent);
  set(ImGuiCol_SeparatorActive, look.accent);
  set(ImGuiCol_PlotHistogram, look.accent);
  set(ImGuiCol_TableHeaderBg, look.raised);
  set(ImGuiCol_TableBorderStrong, look.line);
  set(ImGuiCol_TableBorderLight, plot::blend(with_alpha(look.line, 0.6), look.surface));
  set(ImGuiCol_TableRowBgAlt, with_alpha(look.raised, 0.5));
  set(ImGuiCol_TextSelectedBg, with_alpha(look.accent, 0.30));
  set(ImGuiCol_NavHighlight, look.accent);
  set(ImGuiCol_ModalWindowDimBg, with_alpha(colour_from_rgb(0x000000), 0.35));
}

}  // namespace kvscope::gui
