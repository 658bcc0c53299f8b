// What tests draw on: nothing is seen, and a program gives the input instead of a hand.
#pragma once

#include <imgui.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gui/platform/backend.hpp"

namespace kvscope::gui {

/// Numbers instead of pictures.
struct NullTextureStore final : TextureStore {
  int max_side() const override { return 16384; }
  ImTextureID create(int, int) override { return reinterpret_cast<ImTextureID>(++n_made); }
  void write(ImTextureID, int, int, const std::byte*) override {}
  void destroy(ImTextureID) override {}
  std::uintptr_t n_made = 1000;
};

/// Frames are 1/60 s apart, so that nothing depends on the clock. Input holds from the next one on.
class NullBackend final : public Backend {
 public:
  explicit NullBackend(ImVec2 size = {1600, 900}) : size_(size) {
    io().BackendFlags |= ImGuiBackendFlags_RendererHasVtxOffset;
  }
  ImGuiIO& io() {
    ImGui::SetCurrentContext(imgui());
    return ImGui::GetIO();
  }
  ImVec2 size() const { return size_; }
  void resize(ImVec2 size) { size_ = size; }
  TextureStore& texture_store() override { return textures_; }
  int n_vertices() const { return n_vertices_; }  // of the last frame
  /// What of the last frame, but for tooltips, lies in a rectangle: equal bytes for equal pictures.
  std::string drawn_in(ImVec2 low, ImVec2 high) const {
    std::string bytes;
    for (const ImDrawVert& corner : drawn_) {
      const auto [x, y] = corner.pos;
      if (x < low.x || x >= high.x || y < low.y || y >= high.y) continue;
      bytes.append(reinterpret_cast<const char*>(&corner), sizeof corner);
    }
    return bytes;
  }

  void move_mouse(ImVec2 at) { io().MousePos = at; }
  void press_button(int button = 0) { io().MouseDown[button] = true; }
  void release_button(int button = 0) { io().MouseDown[button] = false; }
  void scroll(float away) { io().MouseWheel += away; }  // from the hand, for one frame
  void set_shift(bool is_down) { io().KeyShift = is_down; }
  void type(const std::string& utf8) { io().AddInputCharactersUTF8(utf8.c_str()); }
  void click(ImVec2 at, const std::function<void()>& draw, int button = 0) {
    move_mouse(at);
    frame(draw);
    press_button(button);
    frame(draw);
    release_button(button);
    frame(draw);
  }

 private:
  void begin_platform_frame() override {
    io().DisplaySize = {std::max(1.0F, size_.x), std::max(1.0F, size_.y)};
    io().DeltaTime = 1.0F / 60.0F;
  }
  void upload_fonts() override { fonts().imgui().SetTexID(this); }
  void draw(ImDrawData* data) override {
    n_vertices_ = data->TotalVtxCount;
    drawn_.clear();
    for (const ImDrawList* list : std::span(data->CmdLists, data->CmdListsCount)) {
      if (std::string_view(list->_OwnerName).starts_with("##Tooltip")) continue;
      drawn_.insert(drawn_.end(), list->VtxBuffer.begin(), list->VtxBuffer.end());
    }
  }

  ImVec2 size_;
  NullTextureStore textures_;
  int n_vertices_ = 0;
  std::vector<ImDrawVert> drawn_;
};

}  // namespace kvscope::gui
