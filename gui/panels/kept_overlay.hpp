// The keys that the selected method keeps, as a layer over an attention map: replayed, folded to
// pixels, and kept on a texture.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gui/model/map/selected_layer.hpp"
#include "gui/panels/method_feed.hpp"
#include "gui/panels/panel.hpp"
#include "gui/render/textures.hpp"

namespace kvscope::gui {

class KeptOverlay {
 public:
  /// Once per frame while it is shown. While `moving`, the layer that there is moves with the map;
  /// when the view has come to rest it is folded anew.
  /// With `lost_only` the layer hides what is kept, so that the map shows what is lost, and
  /// hatches the queries that were not measured. Where there is no layer, nothing is known.
  void ask(PanelContext& context, const MapView& view, bool moving, bool lost_only);
  /// It is not shown in this frame.
  void hide();
  /// Progress, cancel and failures of the replay, in the corner of the current window.
  void report(const PanelContext& context);

  /// Null while there is nothing to show.
  const Texture* texture() const { return layer_ && texture_ ? &texture_ : nullptr; }
  MapRect part() const { return layer_ ? layer_->shown : MapRect{}; }
  /// A sentence if the method cannot answer, or keeps everything; else empty.
  const std::string& words() const { return words_; }
  bool is_busy() const { return busy_; }
  /// Empty if the query was not measured or does not see the key.
  std::optional<bool> keeps(MapPair pair) const;

 private:
  void fold(PanelContext& context, const MapView& view, bool moving, bool lost_only);

  MethodFeed<MethodSelections> lists_{"Lists of", method_selections};
  std::optional<std::uint64_t> revision_;  // of the session, at the last question
  AsyncValue<SelectedLayer> layer_slot_;
  std::shared_ptr<const SelectedLayer> layer_;  // on the texture
  std::string layer_key_;
  Texture texture_;
  std::string words_;
  bool busy_ = false;
};

}  // namespace kvscope::gui
