#include "gui/panels/tile_textures.hpp"

#include <algorithm>

namespace kvscope::gui {

bool TileTextures::prepare(TextureStore& store, const std::vector<const MapTile*>& tiles,
                           const MapColours& colours, MapPooling pooling, std::uint64_t version) {
  ++frame_;
  const bool recolour = version != version_;
  version_ = version;
  int left = recolour ? static_cast<int>(tiles.size()) : kMostPerFrame;
  bool complete = true;
  for (auto at = tiles.rbegin(); at != tiles.rend(); ++at) {
    const MapTile& tile = **at;
    Entry& entry = entries_[tile.id];
    entry.used = frame_;
    if (entry.texture && entry.stamp == tile.stamp && entry.version == version) continue;
    if (left-- <= 0) {
      complete = false;
      continue;
    }
    pixels_.resize(static_cast<std::size_t>(tile.n_rows * tile.n_cols));
    colours.colour_tile(tile, pooling, pixels_);
    entry.texture.set(store, static_cast<int>(tile.n_cols), static_cast<int>(tile.n_rows),
                      std::as_bytes(std::span(pixels_)));
    entry.stamp = tile.stamp;
    entry.version = version;
  }
  drop_unused();
  return complete;
}

const Texture* TileTextures::find(TileId id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() || !found->second.texture ? nullptr : &found->second.texture;
}

void TileTextures::drop_unused() {
  if (entries_.size() <= kMostKept) return;
  std::vector<std::pair<std::uint64_t, TileId>> unused;
  for (const auto& [id, entry] : entries_) {
    if (entry.used != frame_) unused.emplace_back(entry.used, id);
  }
  std::ranges::sort(unused, [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [used, id] : unused) {
    if (entries_.size() <= kMostKept / 2) return;
    entries_.erase(id);
  }
}

}  // namespace kvscope::gui
