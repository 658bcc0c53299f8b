#include "gui/render/textures.hpp"

#include "core/base/error.hpp"

namespace kvscope::gui {

namespace {

std::size_t bytes_of(int width, int height) {
  return 4 * static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
}

}  // namespace

void TextureStore::collect() {
  for (const Dead& dead : grave_->dead) {
    destroy(dead.id);
    --count_;
    bytes_ -= dead.bytes;
  }
  grave_->dead.clear();
}

Texture::Texture(TextureStore& store, int width, int height)
    : store_(&store), grave_(store.grave_), width_(width), height_(height) {
  if (width < 1 || height < 1 || width > store.max_side() || height > store.max_side()) {
    throw ConfigError("a picture of {} x {} pixels cannot be shown: at most {} a side", width,
                      height, store.max_side());
  }
  id_ = store.create(width, height);
  ++store.count_;
  store.bytes_ += bytes_of(width, height);
}

Texture::Texture(TextureStore& store, const plot::Image& image)
    : Texture(store, image.width, image.height) {
  update(0, 0, image.width, image.height, image.rgba);
}

Texture::~Texture() {
  if (id_ == nullptr) return;
  if (const auto grave = grave_.lock()) grave->dead.push_back({id_, bytes_of(width_, height_)});
}

Texture::Texture(Texture&& other) noexcept
    : store_(other.store_),
      grave_(std::move(other.grave_)),
      id_(std::exchange(other.id_, nullptr)),
      width_(other.width_),
      height_(other.height_) {}

Texture& Texture::operator=(Texture&& other) noexcept {
  std::swap(store_, other.store_);
  std::swap(grave_, other.grave_);
  std::swap(id_, other.id_);
  std::swap(width_, other.width_);
  std::swap(height_, other.height_);
  return *this;
}

void Texture::update(int x, int y, int width, int height, std::span<const std::uint8_t> rgba) {
  const bool inside =
      x >= 0 && y >= 0 && width >= 0 && height >= 0 && x <= width_ - width && y <= height_ - height;
  if (id_ == nullptr || !inside || rgba.size() != bytes_of(width, height)) {
    throw ShapeError(
        "a piece of {} x {} pixels at ({}, {}) given as {} bytes does not fit into a "
        "texture of {} x {}",
        width, height, x, y, rgba.size(), width_, height_);
  }
  if (grave_.expired() || width == 0 || height == 0) return;
  store_->write(id_, x, y, width, height, rgba.data());
}

}  // namespace kvscope::gui
