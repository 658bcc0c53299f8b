// The tiles of an attention map as textures: coloured and uploaded when they change, a few per
// frame.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "gui/model/map/attention_tiles.hpp"
#include "gui/model/map/map_colours.hpp"
#include "gui/render/textures.hpp"

namespace kvscope::gui {

class TileTextures {
 public:
  /// Colours and uploads what is new or changed; `version` names the colours. The most urgent tiles
  /// come last in the picture, as they are drawn. All at once if the colours changed, since a
  /// picture of two scales would lie; else at most kMostPerFrame. True if all are as they should
  /// be.
  bool prepare(TextureStore& store, const std::vector<const MapTile*>& tiles,
               const MapColours& colours, MapPooling pooling, std::uint64_t version);
  /// Null if there is none yet; perhaps of the tile as it was some frames ago.
  const Texture* find(TileId id) const;
  /// Forgets everything: another head is shown.
  void clear() { entries_.clear(); }
  std::size_t count() const { return entries_.size(); }

  static constexpr int kMostPerFrame = 12;
  static constexpr std::size_t kMostKept = 192;

 private:
  struct Entry {
    Texture texture;
    std::uint64_t stamp = 0;
    std::uint64_t version = 0;
    std::uint64_t used = 0;
  };
  struct Hash {
    std::size_t operator()(TileId id) const {
      return static_cast<std::size_t>(id.level) + 31 * static_cast<std::size_t>(id.row) +
             65'537 * static_cast<std::size_t>(id.col);
    }
  };
  void drop_unused();

  std::unordered_map<TileId, Entry, Hash> entries_;
  std::vector<std::uint32_t> pixels_;
  std::uint64_t frame_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace kvscope::gui
