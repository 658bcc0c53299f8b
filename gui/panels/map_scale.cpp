#include "gui/panels/map_scale.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "analysis/plot/theme.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

constexpr double kCountEvery = 0.4;  // seconds, while the picture fills in

/// A number that changes whenever another picture is shown.
std::uint64_t fingerprint(const MapPicture& picture) {
  std::uint64_t hash = static_cast<std::uint64_t>(picture.level) + 1;
  for (const MapTile* tile : picture.tiles) {
    if (tile->id.level == picture.level) hash = hash * 1'000'003 + tile->stamp;
  }
  return hash;
}

}  // namespace

void MapScale::update(PanelContext& context, const MapPicture& picture, const MapView& view,
                      const MapOptions& options, const std::string& subject, bool moving) {
  count(context, picture, view, options, subject, moving);
  const bool is_fixed = options.fixed_range && options.scale != MapScaleKind::percentile;
  const plot::Range range =
      is_fixed ? plot::Range{options.low, options.high} : automatic_range(options.scale, counts_);
  std::string key = fmt::format("{} {} {} {} {}", enum_name(options.scale), range.low, range.high,
                                enum_name(options.pooling), static_cast<int>(context.look.ground));
  if (options.scale == MapScaleKind::percentile) key += " " + counted_;
  if (colours_ && key == colours_key_) return;
  const plot::Theme theme = plot::make_theme(plot::Venue::slide, context.look.ground);
  // no colour for queries that are not in the trace: the hatched ground shows
  const MapGround ground{rgba(theme.masked), 0};
  colours_.emplace(options.scale, range, plot::ColourMap::sequential, ground, counts_);
  colours_key_ = std::move(key);
  ++version_;
}

void MapScale::count(PanelContext& context, const MapPicture& picture, const MapView& view,
                     const MapOptions& options, const std::string& subject, bool moving) {
  const std::string shown =
      fmt::format("{} {} {} {} {} {} {} {}x{}", subject, fingerprint(picture), options.sinks(),
                  enum_name(options.pooling), view.origin().query, view.origin().key,
                  view.tokens_per_pixel(), view.width(), view.height());
  is_behind_ = shown != counted_ && !picture.tiles.empty();
  if (!is_behind_) return;
  // while something moves or fills in, colours that change all the time would only flicker
  const double now = ImGui::GetTime();
  const bool is_first = subject != subject_ || counts_.n() == 0;
  const bool soon = moving || now < next_count_;
  if (!is_first && (soon || picture.n_missing > 0)) {
    if (soon) context.requests.redraw = true;  // missing tiles wake the window themselves
    return;
  }
  // as much again on every side of what is in sight: small moves seldom change the range
  const auto widened = [](TokenRange range) {
    return TokenRange{std::max<Index>(0, range.begin - range.size()), range.end + range.size()};
  };
  const TokenRange queries = widened(view.queries());
  const TokenRange keys = widened(view.keys());
  WeightCounts counts;
  for (const bool any_level : {false, true}) {
    for (const MapTile* tile : picture.tiles) {
      if (!any_level && tile->id.level != picture.level) continue;
      counts.add(*tile, options.pooling, options.sinks(), queries, keys);
    }
    if (counts.n() > 0) break;
  }
  counts_ = std::move(counts);
  counted_ = shown;
  subject_ = subject;
  next_count_ = now + kCountEvery;
  is_behind_ = false;
}

void mask_sink_box(MapOptions& options, bool has_sink) {
  bool masks = options.mask_sinks && has_sink;
  ImGui::BeginDisabled(!has_sink);
  if (check_box("mask sink", &masks)) options.mask_sinks = masks;
  ImGui::EndDisabled();
  landmark("mask sink");
  help_tooltip(
      has_sink
          ? fmt::format("The first {} keys do not count for the range of colours", options.n_sink)
          : fmt::format("This head has no attention sink: its first {} keys take less "
                        "than {:.0f} % of its attention",
                        options.n_sink, 100.0 * SinkShare::kLeast));
}

void MapScale::popup(const PanelContext& context, MapOptions& options, bool has_sink) const {
  if (!ImGui::BeginPopup(kPopup)) return;
  ImGui::TextDisabled("Range of colours");
  const bool ranked = options.scale == MapScaleKind::percentile;
  if (ranked) {
    ImGui::TextUnformatted("Ranks always span the visible cells.");
  } else {
    bool automatic = !options.fixed_range;
    if (check_box("automatic", &automatic)) {
      options.fixed_range = !automatic;
      options.low = colours_->range().low;
      options.high = colours_->range().high;
    }
    ImGui::PushItemWidth(context.look.px(140));
    const auto edit = [&](const char* name, double& value) {
      double edited = options.fixed_range ? value
                      : name[0] == 'l'    ? colours_->range().low
                                          : colours_->range().high;
      if (!ImGui::InputDouble(name, &edited, 0.0, 0.0, "%.3g",
                              ImGuiInputTextFlags_EnterReturnsTrue)) {
        return;
      }
      if (!options.fixed_range) {
        options.low = colours_->range().low;
        options.high = colours_->range().high;
      }
      value = std::clamp(edited, 0.0, 1.0);
      options.fixed_range = true;
    };
    edit("lowest", options.low);
    edit("highest", options.high);
    ImGui::PopItemWidth();
  }
  ImGui::Separator();
  mask_sink_box(options, has_sink);
  ImGui::PushItemWidth(context.look.px(140));
  const Index least = 1;
  const Index most = 64;
  ImGui::SliderScalar("keys", ImGuiDataType_S64, &options.n_sink, &least, &most, "%lld",
                      ImGuiSliderFlags_AlwaysClamp);
  ImGui::PopItemWidth();
  check_box("whole map in the corner", &options.minimap);
  ImGui::EndPopup();
}

}  // namespace kvscope::gui
