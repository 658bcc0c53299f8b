// What the explorer draws on: a window or an invisible picture, both alike.
//
// A backend owns the ImGui context, its letters and its textures. All calls come from the thread
// that made it.
#pragma once

#include <imgui.h>

#include <functional>

#include "analysis/plot/colour.hpp"
#include "gui/render/fonts.hpp"
#include "gui/render/textures.hpp"

namespace kvscope::gui {

class Backend {
 public:
  virtual ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// Rebuilds the letters if needed, and begins an ImGui frame in this backend's context.
  void begin_frame();
  /// Draws and shows the frame, and frees textures that were dropped.
  void end_frame();

  /// One whole frame around `draw`. What it throws goes on, with the frame closed: a context in the
  /// middle of a frame cannot be destroyed.
  void frame(const std::function<void()>& draw);

  /// What a frame begins with, where nothing is drawn: costs nothing, unlike a window's background.
  void set_ground(plot::Colour colour) { ground_ = colour; }

  FontAtlas& fonts() { return fonts_; }
  virtual TextureStore& texture_store() = 0;
  ImGuiContext* imgui() { return context_; }

 protected:
  Backend();
  virtual void begin_platform_frame() = 0;
  virtual void upload_fonts() = 0;
  virtual void draw(ImDrawData* data) = 0;
  /// For destructors of derived classes: the context goes while their renderer still can.
  void destroy_context();
  plot::Colour ground() const { return ground_; }

 private:
  void press_with_enter();
  void close_unseen_popups();
  void forget_left_text();

  FontAtlas fonts_;
  ImGuiContext* context_ = nullptr;
  bool enter_presses_ = false;  // the Enter that is down was not typed into a text
  plot::Colour ground_;
};

}  // namespace kvscope::gui
