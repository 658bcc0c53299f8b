#include "gui/panels/kept_overlay.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "analysis/plot/theme.hpp"
#include "gui/model/tokens/token_view.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

constexpr double kOpacity = 0.6;  // the weights below stay readable

}  // namespace

void KeptOverlay::hide() {
  words_.clear();
  busy_ = false;
  fresh_ = true;
  kept_.reset();
  layer_.reset();
}

void KeptOverlay::ask(PanelContext& context, const MapView& view, bool moving, bool lost_only) {
  const Session& session = context.session;
  const Selection& selection = session.selection();
  const KeptQuestion question = kept_question(session, selection.selector);
  if (!question.obstacle.empty()) {
    hide();
    words_ = question.obstacle;
    return;
  }
  words_.clear();
  const auto kept = kept_slot_.ask(
      session.bench(), question.key,
      {fmt::format("Keys that {} keeps in layer {}", selection.selector, selection.layer),
       Lane::heavy},
      on_traces(question.trace, question.draft, question.request, kept_rows));
  status_ = kept.status;
  fresh_ = kept.fresh;
  busy_ = kept.is_pending();
  if (!kept.fresh) {  // another method's keys would be a lie
    kept_.reset();
    layer_.reset();
    return;
  }
  kept_ = kept.value;
  if (kept_->is_dense) {
    words_ = fmt::format("{} leaves this layer dense: it keeps every key", selection.selector);
  }
  fold(context, view, moving, lost_only, question.key);
}

void KeptOverlay::fold(PanelContext& context, const MapView& view, bool moving, bool lost_only,
                       const std::string& key) {
  const std::string place =
      fmt::format("{}/{}/{}/{}/{}/{}x{}/{}", key, lost_only ? "lost" : "layer", view.origin().query,
                  view.origin().key, view.tokens_per_pixel(), view.width(), view.height(),
                  static_cast<int>(context.look.ground));
  const bool at_rest = !moving && !ImGui::IsMouseDown(ImGuiMouseButton_Left);
  if (layer_ == nullptr || at_rest) layer_key_ = place;
  if (layer_key_ != place) context.requests.redraw = true;
  const plot::Theme theme = plot::make_theme(plot::Venue::slide, context.look.ground);
  const plot::Colour tone =
      lost_only ? context.look.surface : plot::with_alpha(theme.highlight, kOpacity);
  std::optional<Hatching> unmeasured;  // would look lost otherwise
  if (lost_only) {
    const plot::Colour line = plot::with_alpha(context.look.muted, 0.35);
    unmeasured = {theme.masked, plot::blend(line, theme.masked)};
  }
  const auto layer =
      layer_slot_.ask(context.session.bench(), layer_key_,
                      {"Kept keys over the attention map", Lane::quick, /*urgent=*/true},
                      [rows = kept_, view, tone, unmeasured](JobContext&) {
                        return fold_selected(rows->rows, view, tone, unmeasured);
                      });
  busy_ = busy_ || layer.is_pending();
  const bool usable = layer.value && (layer.fresh || layer_ != nullptr);
  if (!usable || layer.value == layer_) return;
  const auto width = static_cast<int>(layer.value->width);
  const auto height = static_cast<int>(layer.value->height);
  if (!texture_ || texture_.width() != width || texture_.height() != height) {
    texture_ = Texture(context.textures, width, height);
  }
  texture_.update(0, 0, width, height,
                  {reinterpret_cast<const std::uint8_t*>(layer.value->pixels.data()),
                   layer.value->pixels.size() * sizeof(std::uint32_t)});
  layer_ = layer.value;
}

void KeptOverlay::report(const PanelContext& context) {
  if (fresh_) return;
  report_job(context, kept_slot_, status_, /*has_value=*/true, fresh_);
}

std::optional<bool> KeptOverlay::keeps(MapPair pair) const {
  const KeptRow* row = kept_ ? kept_->nearest(pair.query) : nullptr;
  const bool measured = row != nullptr && row->pos == pair.query &&
                        pair.key >= row->visible.begin && pair.key < row->visible.end;
  if (!measured) return std::nullopt;
  return std::ranges::binary_search(row->keys, static_cast<KeyPos>(pair.key));
}

}  // namespace kvscope::gui
