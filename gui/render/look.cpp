#include "gui/render/look.hpp"

namespace kvscope::gui {

namespace {

using plot::Colour;
using plot::colour_from_rgb;
using plot::with_alpha;

ImVec4 vec(Colour c) {
  return {static_cast<float>(c.r) / 255.0f, static_cast<float>(c.g) / 255.0f,
          static_cast<float>(c.b) / 255.0f, static_cast<float>(c.alpha)};
}

}  // namespace

Look make_look(plot::Ground ground, float scale) {
  Look look{.ground = ground, .scale = scale};
  if (ground == plot::Ground::light) {
    look.window = colour_from_rgb(0xe9ebee);
    look.surface = colour_from_rgb(0xffffff);
    look.raised = colour_from_rgb(0xf3f4f6);
    look.line = colour_from_rgb(0xd3d7dc);
    look.ink = colour_from_rgb(0x1d2228);
    look.muted = colour_from_rgb(0x5f6872);
    look.accent = colour_from_rgb(0x0067b8);
    look.warning = colour_from_rgb(0x8a5a00);
    look.error = colour_from_rgb(0xb3261e);
  } else {
    look.window = colour_from_rgb(0x121417);
    look.surface = colour_from_rgb(0x1b1e22);
    look.raised = colour_from_rgb(0x25292e);
    look.line = colour_from_rgb(0x343a41);
    look.ink = colour_from_rgb(0xe6e9ec);
    look.muted = colour_from_rgb(0x9aa4ae);
    look.accent = colour_from_rgb(0x5cb0f5);
    look.warning = colour_from_rgb(0xe5b454);
    look.error = colour_from_rgb(0xff8a80);
  }
  return look;
}

void apply_look(const Look& look, ImGuiStyle& style) {
  style = ImGuiStyle();
  style.WindowPadding = {8, 8};
  style.FramePadding = {7, 4};
  style.ItemSpacing = {8, 6};
  style.ItemInnerSpacing = {6, 4};
  style.ScrollbarSize = 11;
  style.GrabMinSize = 6;
  style.WindowBorderSize = 0;
  style.ChildBorderSize = 0;
  style.FrameBorderSize = 0;
  style.PopupBorderSize = 1;
  style.WindowRounding = 0;
  style.ChildRounding = 0;
  style.FrameRounding = 4;
  style.PopupRounding = 5;
  style.GrabRounding = 4;
  style.ScrollbarRounding = 6;
  style.ScaleAllSizes(look.scale);

  ImVec4* c = style.Colors;
  const auto set = [&](ImGuiCol at, Colour colour) { c[at] = vec(colour); };
  set(ImGuiCol_Text, look.ink);
  set(ImGuiCol_TextDisabled, look.muted);
  set(ImGuiCol_WindowBg, look.window);
  set(ImGuiCol_ChildBg, with_alpha(look.surface, 0.0));
  set(ImGuiCol_PopupBg, look.surface);
  set(ImGuiCol_Border, look.line);
  set(ImGuiCol_BorderShadow, with_alpha(look.line, 0.0));
  // Fields and boxes are darker than buttons and cards: values are no labels, and a box without a
  // tick is seen.
  const Colour field = plot::blend(with_alpha(look.muted, 0.17), look.surface);
  set(ImGuiCol_FrameBg, field);
  set(ImGuiCol_FrameBgHovered, plot::blend(with_alpha(look.accent, 0.14), field));
  set(ImGuiCol_FrameBgActive, plot::blend(with_alpha(look.accent, 0.24), field));
  set(ImGuiCol_TitleBg, look.raised);
  set(ImGuiCol_TitleBgActive, look.raised);
  set(ImGuiCol_TitleBgCollapsed, look.raised);
  set(ImGuiCol_MenuBarBg, look.surface);
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
  set(ImGuiCol_ResizeGrip, with_alpha(look.line, 0.0));
  set(ImGuiCol_Tab, look.raised);
  set(ImGuiCol_TabHovered, with_alpha(look.accent, 0.18));
  set(ImGuiCol_TabActive, look.surface);
  set(ImGuiCol_TabUnfocused, look.raised);
  set(ImGuiCol_TabUnfocusedActive, look.surface);
  set(ImGuiCol_PlotHistogram, look.accent);
  set(ImGuiCol_TableHeaderBg, look.raised);
  set(ImGuiCol_TableBorderStrong, look.line);
  set(ImGuiCol_TableBorderLight, plot::blend(with_alpha(look.line, 0.6), look.surface));
  set(ImGuiCol_TableRowBgAlt, with_alpha(look.raised, 0.5));
  set(ImGuiCol_TextSelectedBg, with_alpha(look.accent, 0.30));
  set(ImGuiCol_DragDropTarget, look.accent);
  set(ImGuiCol_NavHighlight, look.accent);
  set(ImGuiCol_ModalWindowDimBg, with_alpha(colour_from_rgb(0x000000), 0.35));
}

}  // namespace kvscope::gui
