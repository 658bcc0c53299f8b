// Backends without a window: frames of a given size, and input that a program gives instead of a
// hand.
#pragma once

#include <functional>
#include <string_view>

#include "gui/platform/backend.hpp"

namespace kvscope::gui {

/// Time passes by 1/60 s per frame, so that nothing depends on the clock. Input holds from the next
/// frame on: a click is move_mouse, frame, press, frame, release, frame (see click()).
class HeadlessBackend : public Backend {
 public:
  ImVec2 size() const override { return size_; }
  /// Takes effect with the next frame; at least one pixel a side.
  virtual void resize(ImVec2 size) { size_ = size; }

  void move_mouse(ImVec2 at);
  void press_button(int button = 0);
  void release_button(int button = 0);
  /// Positive away from the hand, for one frame.
  void scroll(float amount);
  /// GLFW's key codes; letters are upper-case ASCII. Modifiers: set_modifiers.
  void press_key(int key);
  void release_key(int key);
  void set_modifiers(bool ctrl, bool shift, bool alt);
  void type(std::string_view utf8);
  /// Moves there, presses and releases, with a frame after each.
  void click(ImVec2 at, const std::function<void()>& draw, int button = 0);
  /// Presses and releases a key, with a frame after each.
  void tap(int key, const std::function<void()>& draw);

 protected:
  HeadlessBackend(ImVec2 size, double scale);
  void begin_platform_frame() override;

 private:
  ImVec2 size_;
};

/// Nothing is drawn; what would be is counted. Runs everywhere.
class NullBackend final : public HeadlessBackend {
 public:
  explicit NullBackend(ImVec2 size = {1600, 900}, double scale = 1.0);
  ~NullBackend() override;
  TextureStore& texture_store() override { return textures_; }

  /// Of the last frame.
  struct Counts {
    int lists = 0;
    int commands = 0;
    int vertices = 0;
    int indices = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  void upload_fonts() override;
  void draw(ImDrawData* data) override;
  NullTextureStore textures_;
  Counts counts_;
};

}  // namespace kvscope::gui
