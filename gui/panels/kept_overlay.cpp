#include "gui/panels/kept_overlay.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "analysis/plot/theme.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

constexpr double kOpacity = 0.6;  // the weights below stay readable

}  // namespace

void KeptOverlay::hide() {
  words_.clear();
  busy_ = false;
  lists_.forget();
  layer_.reset();
}

void KeptOverlay::ask(PanelContext& context, const MapView& view, bool moving, bool lost_only) {
  const Session& session = context.session;
  const MethodSpec& method = session.selection().selector;
  lists_.ask(session, method, {.phase = session.phase()}, revision_ != session.revision());
  revision_ = session.revision();
  words_ = lists_.problem();
  busy_ = lists_.is_busy();
  const auto kept = lists_.fresh();
  if (!kept) {  // another method's keys would be a lie
    layer_.reset();
    return;
  }
  if (kept->layers.front().is_dense())
    words_ = fmt::format("{} leaves this layer dense: it keeps every key", method);
  fold(context, view, moving, lost_only);
}

void KeptOverlay::fold(PanelContext& context, const MapView& view, bool moving, bool lost_only) {
  const std::string place =
      fmt::format("{}/{}/{}/{}/{}/{}x{}/{}", lists_.key(), lost_only ? "lost" : "layer",
                  view.origin().query, view.origin().key, view.tokens_per_pixel(), view.width(),
                  view.height(), static_cast<int>(context.look.ground));
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
                      [kept = lists_.fresh(), view, tone, unmeasured](JobContext&) {
                        return fold_selected(*kept, view, tone, unmeasured);
                      });
  busy_ = busy_ || layer.is_pending();
  const bool usable = layer.value && (layer.fresh || layer_ != nullptr);
  if (!usable || layer.value == layer_) return;
  texture_.set(context.textures, static_cast<int>(layer.value->width),
               static_cast<int>(layer.value->height),
               std::as_bytes(std::span(layer.value->pixels)));
  layer_ = layer.value;
}

void KeptOverlay::report(const PanelContext& context) {
  if (!lists_.is_busy()) return;
  report_job(context, lists_, lists_.status(), /*has_value=*/true, /*fresh=*/false);
}

std::optional<bool> KeptOverlay::keeps(MapPair pair) const {
  const auto kept = lists_.fresh();
  const auto* const call = kept ? kept->layers.front().call_of(pair.query) : nullptr;
  if (call == nullptr || pair.key > pair.query) return std::nullopt;
  return call->selection.is_dense ||
         std::ranges::binary_search(call->selection.list(0, pair.query - call->tokens.begin).keys,
                                    static_cast<KeyPos>(pair.key));
}

}  // namespace kvscope::gui
