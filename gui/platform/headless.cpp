#include "gui/platform/headless.hpp"

#include <algorithm>
#include <cfloat>

#include "gui/platform/key_map.hpp"

namespace kvscope::gui {

HeadlessBackend::HeadlessBackend(ImVec2 size, double scale) : Backend(scale), size_(size) {
  ImGuiIO& io = ImGui::GetIO();
  set_key_map(io);
  io.BackendFlags |= ImGuiBackendFlags_RendererHasVtxOffset;
  io.MousePos = {-FLT_MAX, -FLT_MAX};
}

void HeadlessBackend::begin_platform_frame() {
  ImGuiIO& io = ImGui::GetIO();
  io.DisplaySize = {std::max(1.0F, size_.x), std::max(1.0F, size_.y)};
  io.DeltaTime = 1.0F / 60.0F;
}

void HeadlessBackend::move_mouse(ImVec2 at) {
  ImGui::SetCurrentContext(imgui());
  ImGui::GetIO().MousePos = at;
}

void HeadlessBackend::press_button(int button) {
  ImGui::SetCurrentContext(imgui());
  ImGui::GetIO().MouseDown[button] = true;
}

void HeadlessBackend::release_button(int button) {
  ImGui::SetCurrentContext(imgui());
  ImGui::GetIO().MouseDown[button] = false;
}

void HeadlessBackend::scroll(float amount) {
  ImGui::SetCurrentContext(imgui());
  ImGui::GetIO().MouseWheel += amount;  // ImGui clears it at the end of the frame
}

void HeadlessBackend::press_key(int key) {
  ImGui::SetCurrentContext(imgui());
  ImGui::GetIO().KeysDown[key] = true;
}

void HeadlessBackend::release_key(int key) {
  ImGui::SetCurrentContext(imgui());
  ImGui::GetIO().KeysDown[key] = false;
}

void HeadlessBackend::set_modifiers(bool ctrl, bool shift, bool alt) {
  ImGui::SetCurrentContext(imgui());
  ImGuiIO& io = ImGui::GetIO();
  io.KeyCtrl = ctrl;
  io.KeyShift = shift;
  io.KeyAlt = alt;
}

void HeadlessBackend::type(std::string_view utf8) {
  ImGui::SetCurrentContext(imgui());
  ImGui::GetIO().AddInputCharactersUTF8(std::string(utf8).c_str());
}

void HeadlessBackend::click(ImVec2 at, const std::function<void()>& draw, int button) {
  move_mouse(at);
  frame(draw);
  press_button(button);
  frame(draw);
  release_button(button);
  frame(draw);
}

void HeadlessBackend::tap(int key, const std::function<void()>& draw) {
  press_key(key);
  frame(draw);
  release_key(key);
  frame(draw);
}

NullBackend::NullBackend(ImVec2 size, double scale) : HeadlessBackend(size, scale) {}

NullBackend::~NullBackend() = default;

void NullBackend::upload_fonts() {
  fonts().imgui().SetTexID(reinterpret_cast<ImTextureID>(std::uintptr_t{1}));
}

void NullBackend::draw(ImDrawData* data) {
  counts_ = {data->CmdListsCount, 0, data->TotalVtxCount, data->TotalIdxCount};
  for (int i = 0; i < data->CmdListsCount; ++i)
    counts_.commands += data->CmdLists[i]->CmdBuffer.Size;
}

}  // namespace kvscope::gui
