// Queries and keys of the selected head along their principal axes, flat or from any side.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/base/fields_json.hpp"
#include "core/base/number_text.hpp"
#include "gui/model/geometry/geometry_scene.hpp"
#include "gui/panels/geometry_picture.hpp"
#include "gui/panels/method_feed.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/switch_row.hpp"

namespace kvscope::gui {

namespace {

/// A point under the mouse.
struct Hovered {
  bool is_query = false;
  std::size_t slot = 0;  // of GeometryHead's arrays
  CloudPoint at{};
};

class GeometryPanel final : public TracePanel<GeometrySwitches> {
 public:
  PanelInfo info() const override {
    return {
        "geometry", "Geometry",
        "Queries and keys of the selected head along their principal axes. Click a query or a "
        "key to select it; drag and wheel move and turn the view, a double click resets it. Alt "
        "and drag: a lasso, whose words light up in the text, and rows and columns in the map."};
  }

  void controls(PanelContext& context) override {
    int dimension = switches_.is_3d ? 1 : 0;
    constexpr std::array<std::string_view, 2> kDimensions = {"2D", "3D"};
    if (segmented("dimension", dimension, kDimensions)) switches_.is_3d = dimension == 1;
    switch_list(switches_, switches_.colour, context.look.px(124),
                {"S_q", "position", "largest weight", "kept keys"});
    next_switch();
    if (ImGui::Button("View ▾")) ImGui::OpenPopup("view");
    if (!ImGui::BeginPopup("view")) return;
    ImGui::TextDisabled("Axes fitted to");
    switch_buttons(switches_, switches_.basis);
    ImGui::TextDisabled("S_q against the mean of");
    switch_buttons(switches_, switches_.span);
    switch_box(switches_, switches_.keys, "Keys");
    ImGui::SameLine();
    switch_box(switches_, switches_.queries, "Queries");
    if (ImGui::Button("Reset the view")) picture_.reset();
    ImGui::EndPopup();
  }

  void draw_trace(PanelContext& context) override {
    const auto view = ask_geometry(context);
    if (!async_place(context, geometry_, view)) return;
    has_points_ = view.fresh;
    // The overlays' problems take a line above the picture; it goes on being shown.
    const auto weights = ask_weights(context);
    const auto kept = ask_kept(context);
    make_scene(context, view.value, weights, kept);
    if (scene_.sets.empty()) {
      empty_place(context, "Nothing to show", "Switch keys or queries on, under View.");
      return;
    }
    const GeometryHit hit =
        picture_.show(context, shown_in(context.session.selection(), context.session.brush()));
    points_itself_ = hit.set != nullptr;  // the figure marks it
    if (hit.lasso) {
      Brush brush;
      for (const auto& [is_query, slot] : *hit.lasso)
        (is_query ? brush.queries : brush.keys).push_back(head_.pos[slot]);
      take_brush(context, std::move(brush));
    }
    if (hit.mean) explain_mean(*hit.mean);
    if (hit.set == nullptr) return;
    const bool is_query = hit.set->are_queries;
    const Hovered hovered{is_query, hit.slot,
                          is_query ? head_.queries[hit.slot] : head_.keys[hit.slot]};
    explain(context, hovered);
    if (hit.clicked) choose_point(context, hovered);
  }

  std::optional<plot::Figure> figure() const override {
    if (!value_ || scene_.sets.empty()) return std::nullopt;
    plot::Figure figure =
        switches_.is_3d ? orbit_figure(scene_, picture_.orbit()) : flat_figure(scene_);
    if (const auto zoom = picture_.zoom(); zoom && !switches_.is_3d) {
      figure.panels[0].x.range = zoom->first;
      figure.panels[0].y.range = zoom->second;
    }
    figure.caption.insert(figure.caption.begin(), trace_words_);
    return figure;
  }

  std::optional<std::string> csv() const override {
    if (!value_) return std::nullopt;
    return geometry_csv(head_,
                        document_ ? document_->source().tokens() : std::span<const TokenId>());
  }

  nlohmann::ordered_json options() const override {
    auto json = TracePanel::options();
    json["orbit"] = fields_to_json(picture_.orbit());
    return json;
  }
  void set_options(const nlohmann::ordered_json& options) override {
    Orbit orbit = picture_.orbit();
    if (options.contains("orbit")) fields_from_json(options["orbit"], orbit);
    check_fields(orbit);
    TracePanel::set_options(options);
    picture_.set_orbit(orbit);
  }

  /// The outermost queries and keys along the first axis, which hardly lie below others.
  Places landmarks() const override {
    Places places;
    const auto add = [&](const char* what, const std::vector<CloudPoint>& points) {
      const auto ends =
          std::minmax_element(points.begin(), points.end(),
                              [](const CloudPoint& a, const CloudPoint& b) { return a[0] < b[0]; });
      for (const auto end : {ends.first, ends.second}) {
        if (end == points.end()) return;
        const Index pos = head_.pos[static_cast<std::size_t>(end - points.begin())];
        places.add(fmt::format("{} {}", what, pos), picture_.place(*end));
      }
    };
    if (scene_.shows_queries) add("query", head_.queries);
    if (scene_.shows_keys) add("key", head_.keys);
    return places;
  }

  bool is_busy() const override { return busy_ || picture_.is_rough(); }

 private:
  // ---- what is asked for ----

  void forget() override {
    geometry_.clear();
    weights_.clear();
    lists_.forget();
    kept_.clear();
    value_.reset();
    head_ = {};  // views into it
    scene_inputs_ = {};
    scene_ = {};
  }

  AsyncView<GeometryView> ask_geometry(PanelContext& context) {
    const Selection& selected = context.session.selection();
    GeometryOptions options{.basis = switches_.basis, .span = switches_.span};
    // The chunk decides nothing unless S_q is compared with its mean.
    if (options.span == QuerySpan::chunk) options.chunk = context.session.parameters().chunk;
    options = geometry_request(document_->info(), selected.layer, selected.q_head, options);
    const auto& heads = options.selection.q_heads;
    return ask(context, geometry_,
               fmt::format("{}geometry/{}/{}/{}", sources_, selected.layer, fmt::join(heads, ","),
                           fields_to_json(options).dump()),
               {fmt::format("Geometry of layer {}, KV head {}", selected.layer,
                            context.session.kv_head())},
               on_trace(document_, options, geometry_view));
  }

  /// The largest weights of the selected head; null while they are not wanted or not there.
  std::shared_ptr<const LargestWeights> ask_weights(PanelContext& context) {
    if (switches_.colour != GeometryColour::max_weight) return nullptr;
    const Index layer = context.session.selection().layer;
    const Index q_head = context.session.selection().q_head;
    const auto view =
        ask(context, weights_, sources_ + fmt::format("largest-weights/{}/{}", layer, q_head),
            {fmt::format("Largest weights of layer {}, head {}", layer, q_head)},
            [=, document = document_](JobContext& job) {
              return largest_weights(document->source(), layer, q_head, job);
            });
    // In the corner, over the points, which are there already.
    if (has_points_) report_job(context, weights_, view.status, /*has_value=*/true, view.fresh);
    return view.fresh ? view.value : nullptr;
  }

  /// What the session's method keeps for the query; null while it is not wanted or not there.
  std::shared_ptr<const Reading> ask_kept(PanelContext& context) {
    if (switches_.colour != GeometryColour::kept) return nullptr;
    const Session& session = context.session;
    const Selection& selected = session.selection();
    lists_.ask(session, selected.selector, {.phase = session.phase()}, has_changed(session));
    if (!lists_.problem().empty()) coloured_words(context.look.warning, lists_.problem());
    busy_ = busy_ || lists_.is_busy();
    if (lists_.is_busy() && has_points_)
      report_job(context, lists_, lists_.status(), /*has_value=*/true, /*fresh=*/false);
    const auto lists = lists_.fresh();
    if (!lists) return nullptr;
    const ReadingRequest request{selected.layer, selected.q_head, selected.query, LossHeads::head};
    const auto view =
        ask(context, kept_, fmt::format("{}{}|{}|", sources_, request.key(), lists_.key()),
            {fmt::format("What {} keeps for it", selected.selector), Lane::quick, /*urgent=*/true},
            [document = document_, request, lists](JobContext& job) {
              return reading_of(document->source(), request, lists.get(), nullptr, job);
            });
    return view.fresh ? view.value : nullptr;
  }

  // ---- the scene ----

  /// What a scene is made of. It holds the values, so that no other one gets their addresses.
  struct SceneInputs {
    std::shared_ptr<const GeometryView> value;
    std::shared_ptr<const LargestWeights> weights;
    std::shared_ptr<const Reading> kept;
    std::string method;  // of these
    Index q_head = 0;
    std::string switches;
    bool operator==(const SceneInputs&) const = default;
  };

  void make_scene(PanelContext& context, const std::shared_ptr<const GeometryView>& value,
                  const std::shared_ptr<const LargestWeights>& weights,
                  const std::shared_ptr<const Reading>& kept) {
    const auto& heads = value->options.selection.q_heads;
    const Selection& selected = context.session.selection();
    const bool has_it = std::ranges::find(heads, selected.q_head) != heads.end();
    // A value of another group is shown until the selected one's is there.
    const Index q_head = has_it ? selected.q_head : heads.front();
    SceneInputs inputs{value,  weights,
                       kept,   kept ? selected.selector.text() : std::string(),
                       q_head, fields_to_json(switches_).dump()};
    if (inputs == scene_inputs_) return;
    scene_inputs_ = std::move(inputs);
    value_ = value;
    head_ = head_of(*value, q_head);
    const bool has_weights = weights && weights->q_head == q_head;
    scene_ = geometry_scene(head_, switches_, has_weights ? weights.get() : nullptr, kept.get(),
                            scene_inputs_.method);
    trace_words_ = fmt::format("Trace {}.", document_->name());
    ++version_;
  }

  // ---- points ----

  GeometryShown shown_in(const Selection& selected, const Brush& brush) const {
    GeometryShown shown{scene_, version_, switches_.is_3d, {}, {}, {}, {}};
    const auto query = slot_of(selected.query);
    if (query && scene_.shows_queries) shown.query = head_.queries[*query];
    const auto key = selected.key ? slot_of(*selected.key) : std::nullopt;
    if (key && scene_.shows_keys) shown.key = head_.keys[*key];
    const auto add = [&](const std::vector<Index>& positions, bool are_shown,
                         const std::vector<CloudPoint>& points) {
      for (const Index pos : positions) {
        const auto slot = are_shown ? slot_of(pos) : std::nullopt;
        if (slot) shown.brushed.push_back(points[*slot]);
      }
    };
    add(brush.queries, scene_.shows_queries, head_.queries);
    add(brush.keys, scene_.shows_keys, head_.keys);
    if (points_itself_) return shown;
    const Pointed& at = pointed();
    if (const auto slot = at.query ? slot_of(*at.query) : std::nullopt;
        slot && scene_.shows_queries)
      shown.pointed.push_back(head_.queries[*slot]);
    for (Index pos = at.keys.begin; pos < at.keys.end && scene_.shows_keys; ++pos) {
      if (const auto slot = slot_of(pos)) shown.pointed.push_back(head_.keys[*slot]);
    }
    return shown;
  }

  std::optional<std::size_t> slot_of(Index pos) const {
    const auto at = std::ranges::lower_bound(head_.pos, pos);
    if (at == head_.pos.end() || *at != pos) return std::nullopt;
    return static_cast<std::size_t>(at - head_.pos.begin());
  }

  void choose_point(PanelContext& context, const Hovered& hovered) const {
    const Index pos = head_.pos[hovered.slot];
    context.session.select("geometry click", [&](Selection& s) {
      if (hovered.is_query) {
        s.query = pos;
      } else {
        s.query = std::max(s.query, pos);  // the first query that sees the key
        s.key = pos;
      }
    });
  }

  void explain_mean(bool is_query) const {
    const CloudPoint& at = is_query ? head_.mean_query : head_.mean_key;
    detail_tooltip({{is_query ? "mean query" : "mean key", "of the positions shown in the prompt"},
                    {"PC1, PC2, PC3", fmt::format("{:.3f}, {:.3f}, {:.3f}", at[0], at[1], at[2])},
                    {"mean cos to it",
                     number_text(is_query ? head_.query_clustering : head_.key_clustering, 5)},
                    {"cos(mean query, mean key)", number_text(head_.means_cosine, 5)}});
  }

  void explain(PanelContext& context, const Hovered& hovered) const {
    const std::size_t i = hovered.slot;
    const Index pos = head_.pos[i];
    const bool is_query = hovered.is_query;
    HoverLines lines = {
        {is_query ? "query" : "key", token_words(*document_, pos)},
        {"head", is_query ? fmt::format("{} of layer {}", head_.q_head, head_.layer)
                          : fmt::format("KV {} of layer {}", head_.kv_head, head_.layer)}};
    if (is_query) lines.emplace_back("S_q", number_text(static_cast<double>(head_.s_q[i]), 5));
    lines.emplace_back(
        is_query ? "cos with mean query" : "cos with mean key",
        number_text(static_cast<double>(is_query ? head_.q_cos[i] : head_.k_cos[i]), 5));
    lines.emplace_back(
        "norm", number_text(static_cast<double>(is_query ? head_.q_norm[i] : head_.k_norm[i]), 5));
    lines.emplace_back("PC1, PC2, PC3", fmt::format("{:.3f}, {:.3f}, {:.3f}", hovered.at[0],
                                                    hovered.at[1], hovered.at[2]));
    if (!is_query && pos > context.session.selection().query) {
      lines.emplace_back("", "after the selected query: a click moves the query here too");
    }
    for (const auto& [name, value] : lines) context.fonts.require(value);
    detail_tooltip(lines, is_query ? Pointed{.query = pos} : Pointed::at_key(pos));
  }

  GeometryPicture picture_;
  AsyncValue<GeometryView> geometry_;
  AsyncValue<LargestWeights> weights_;
  MethodFeed<MethodSelections> lists_{"Lists of", method_selections};
  AsyncValue<Reading> kept_;
  bool has_points_ = false;     // of what is selected
  bool points_itself_ = false;  // the mouse is over one of the points

  std::shared_ptr<const GeometryView> value_;  // behind head_
  GeometryHead head_;
  GeometryScene scene_;
  SceneInputs scene_inputs_;
  std::string trace_words_;
  std::uint64_t version_ = 0;
};

}  // namespace

std::unique_ptr<Panel> make_geometry_panel() {
  return std::make_unique<GeometryPanel>();
}

}  // namespace kvscope::gui
