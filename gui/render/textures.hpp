// Pictures for the window: RGBA8 textures that are freed only when nothing on screen needs them.
//
// Textures are made by a TextureStore. One that its owner drops lives until the store collects it,
// after the frame that may still show it.
#pragma once

#include <imgui.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace kvscope::gui {

/// Makes and keeps textures; owned by a Backend. Used from the frame's thread alone. An enlarged
/// one shows its pixels; made small it is averaged between neighbours.
class TextureStore {
 public:
  virtual ~TextureStore() = default;
  /// The longest side of a texture in pixels.
  virtual int max_side() const = 0;
  /// Frees what was dropped; called by the backend after a frame was drawn.
  void collect();
  /// Textures that live.
  std::size_t count() const { return count_; }

 protected:
  TextureStore() : grave_(std::make_shared<Grave>()) {}
  virtual ImTextureID create(int width, int height) = 0;
  virtual void write(ImTextureID id, int width, int height, const std::byte* rgba) = 0;
  virtual void destroy(ImTextureID id) = 0;

 private:
  friend class Texture;
  /// What textures leave behind; they may outlive the store.
  struct Grave {
    std::vector<ImTextureID> dead;
  };
  std::shared_ptr<Grave> grave_;
  std::size_t count_ = 0;
};

/// One texture; movable, dropped with its last owner. It must not be drawn after its store is gone.
class Texture {
 public:
  Texture() = default;
  ~Texture();
  Texture(Texture&& other) noexcept;
  Texture& operator=(Texture&& other) noexcept;

  explicit operator bool() const { return id_ != nullptr; }
  ImTextureID id() const { return id_; }
  int width() const { return width_; }
  int height() const { return height_; }

  /// Shows `rgba` [height, width, 4], row 0 on top. Throws ConfigError beyond the store's longest
  /// side or below one pixel, ShapeError for another number of bytes.
  void set(TextureStore& store, int width, int height, std::span<const std::byte> rgba);

 private:
  std::weak_ptr<TextureStore::Grave> grave_;
  ImTextureID id_ = nullptr;
  int width_ = 0;
  int height_ = 0;
};

}  // namespace kvscope::gui
