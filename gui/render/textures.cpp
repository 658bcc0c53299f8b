#include "gui/render/textures.hpp"

#include "core/base/error.hpp"

namespace kvscope::gui {

void TextureStore::collect() {
  for (const ImTextureID dead : grave_->dead) destroy(dead);
  count_ -= grave_->dead.size();
  grave_->dead.clear();
}

Texture::~Texture() {
  if (id_ == nullptr) return;
  if (const auto grave = grave_.lock()) grave->dead.push_back(id_);
}

Texture::Texture(Texture&& other) noexcept
    : grave_(std::move(other.grave_)),
      id_(std::exchange(other.id_, nullptr)),
      width_(other.width_),
      height_(other.height_) {}

Texture& Texture::operator=(Texture&& other) noexcept {
  std::swap(grave_, other.grave_);
  std::swap(id_, other.id_);
  std::swap(width_, other.width_);
  std::swap(height_, other.height_);
  return *this;
}

void Texture::set(TextureStore& store, int width, int height, std::span<const std::byte> rgba) {
  if (width < 1 || height < 1 || width > store.max_side() || height > store.max_side()) {
    throw ConfigError("a picture of {} x {} pixels cannot be shown: at most {} a side", width,
                      height, store.max_side());
  }
  if (rgba.size() != 4 * static_cast<std::size_t>(width) * static_cast<std::size_t>(height)) {
    throw ShapeError("{} bytes do not fit into a texture of {} x {}", rgba.size(), width, height);
  }
  if (id_ == nullptr || width != width_ || height != height_) {
    *this = Texture();
    id_ = store.create(width, height);
    grave_ = store.grave_;
    width_ = width;
    height_ = height;
    ++store.count_;
  }
  store.write(id_, width, height, rgba.data());
}

}  // namespace kvscope::gui
