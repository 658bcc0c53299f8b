#include "gui/panels/attention_map_panel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/model/json_fields.hpp"
#include "gui/model/methods.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

constexpr double kCountEvery = 0.4;  // seconds, while the picture fills in

std::string number_words(double weight) {
  if (weight == 0.0) return "0";
  return weight >= 1e-3 ? fmt::format("{:.5f}", weight) : fmt::format("{:.3e}", weight);
}

std::string range_words(TokenRange range) {
  return range.size() == 1 ? fmt::format("{}", range.begin)
                           : fmt::format("{} to {}", range.begin, range.end - 1);
}

/// A number that changes whenever another picture is shown.
std::uint64_t fingerprint(const MapPicture& picture) {
  std::uint64_t hash = static_cast<std::uint64_t>(picture.level) + 1;
  for (const MapTile* tile : picture.tiles) {
    if (tile->id.level == picture.level) hash = hash * 1'000'003 + tile->stamp;
  }
  return hash;
}

}  // namespace

PanelInfo AttentionMapPanel::info() const {
  return {"attention-map", "Attention map",
          "How much every query of the selected head looks at every key. Drag to move, wheel to "
          "zoom, Shift and drag to zoom into a rectangle; click to select a query and a key. Keys "
          "over the map: arrows, + and -, 0 all, W all keys, V recorded queries, G selected pair; "
          "Shift and arrows step the selected pair."};
}

void AttentionMapPanel::controls(PanelContext& context) {
  segmented("pooling", options_.pooling);
  help_tooltip("Zoomed out, a cell shows the largest or the mean of its weights");
  ImGui::SameLine();
  segmented("scale", options_.scale);
  help_tooltip("Colours by weight, by its logarithm, or by its rank among what is in sight");
  ImGui::SameLine();
  ImGui::Checkbox("mask sink", &options_.mask_sinks);
  help_tooltip(
      fmt::format("The first {} keys do not count for the range of colours", options_.n_sink));
  ImGui::SameLine();
  ImGui::Checkbox("kept keys", &options_.overlay);
  help_tooltip(
      fmt::format("The keys that {} keeps, over the map", context.session.selection().selector));
}

void AttentionMapPanel::draw(PanelContext& context) {
  if (needs_trace(context)) {
    if (tiles_) tiles_->clear();
    picture_ = {};
    subject_.clear();
    return;
  }
  Session& session = context.session;
  const auto document = session.document();
  const Selection& selection = session.selection();
  if (!tiles_) tiles_.emplace(session.bench());
  const std::string subject =
      fmt::format("{}{}/{}", document->key(), selection.layer, selection.q_head);
  if (subject != subject_) {
    subject_ = subject;
    textures_.clear();
    counted_.clear();
    counts_due_ = true;
    next_count_ = 0.0;
  }
  names_ = {document->name(), document->info().model_name, selection.layer, selection.q_head};
  tiles_->show({std::shared_ptr<const TraceSource>(document, &document->file()), document->key(),
                selection.layer, selection.q_head});
  view_.set_map(document->info().n_tokens);
  canvas_.begin(context, view_);
  if (wanted_view_) view_.look_at(wanted_view_->centre, wanted_view_->tokens_per_pixel);
  wanted_view_.reset();
  follow_selection(session);
  picture_ = tiles_->picture(view_);

  const MapProgress progress = tiles_->progress();
  if (progress.phase == MapProgress::Phase::failed && picture_.tiles.empty()) {
    if (error_place(context, progress.error)) tiles_->retry();
    return;
  }
  const MapOverview* overview = tiles_->overview();
  if (overview == nullptr || !overview->has_picture()) {
    empty_place(
        context,
        fmt::format("Attention map of layer {}, head {}", selection.layer, selection.q_head),
        "Reading queries and keys.");
    context.requests.redraw = true;
    return;
  }
  draw_map(context);
}

void AttentionMapPanel::draw_map(PanelContext& context) {
  Session& session = context.session;
  count_weights(context, picture_);
  update_colours(context);
  ask_overlay(context);
  const MapOverview& overview = *tiles_->overview();
  const MapTile* whole =
      options_.minimap ? overview.tile({overview.grid().top_level(), 0, 0}) : nullptr;
  std::vector<const MapTile*> wanted;
  if (whole != nullptr) wanted.push_back(whole);
  wanted.insert(wanted.end(), picture_.tiles.begin(), picture_.tiles.end());
  textures_whole_ =
      textures_.prepare(context.textures, wanted, *colours_, options_.pooling, colours_version_);
  if (!textures_whole_) context.requests.redraw = true;

  MapScene scene{overview.grid(), picture_, *colours_, textures_};
  if (options_.overlay && layer_shown_ && overlay_) {
    scene.overlay = &overlay_;
    scene.overlay_part = layer_shown_->shown;
  }
  scene.whole = whole;
  scene.query = session.selection().query;
  scene.key = session.selection().key;
  scene.bar_title = options_.scale == MapScaleKind::percentile ? "by rank"
                    : options_.pooling == MapPooling::max      ? "max weight"
                                                               : "mean weight";
  scene.left_words = left_words();
  scene.right_words = right_words();
  const MapGesture gesture = canvas_.draw(context, view_, scene);
  act(context, gesture);
  if (gesture.hovered && !ImGui::IsMouseDown(ImGuiMouseButton_Left)) {
    tooltip(context, *gesture.hovered);
  }
  range_popup(context);
}

void AttentionMapPanel::follow_selection(const Session& session) {
  const Selection& selection = session.selection();
  if (query_ == selection.query && key_ == selection.key) return;
  const bool first = !query_;
  query_ = selection.query;
  key_ = selection.key;
  if (first || ImGui::IsMouseDown(ImGuiMouseButton_Left)) return;
  const TokenRange keys = view_.keys();
  const Index in_sight = std::min((keys.begin + keys.end) / 2, selection.query);
  view_.reveal({selection.query, selection.key.value_or(in_sight)});
}

void AttentionMapPanel::act(PanelContext& context, const MapGesture& gesture) {
  Session& session = context.session;
  moving_ = gesture.moved;
  if (gesture.moved) context.requests.redraw = true;
  if (gesture.clicked) {
    const MapPair pair = *gesture.clicked;
    session.select("attention map", [&](Selection& s) {
      s.query = pair.query;
      s.key = pair.key <= pair.query ? std::optional(pair.key) : std::nullopt;
    });
    query_ = session.selection().query;  // chosen here: it is in sight
    key_ = session.selection().key;
  }
  if (gesture.step_query != 0 || gesture.step_key != 0) {
    session.select("attention map keys", [&](Selection& s) {
      s.query += gesture.step_query;
      if (gesture.step_key != 0) s.key = s.key.value_or(s.query) + gesture.step_key;
    });
  }
  if (gesture.to_selection) {
    const Selection& s = session.selection();
    constexpr double kAround = 40.0;
    const auto query = static_cast<double>(s.query) + 0.5;
    const double key = static_cast<double>(s.key.value_or(s.query)) + 0.5;
    view_.fit({{query - kAround, key - kAround}, {query + kAround, key + kAround}});
    context.requests.redraw = true;
  }
  if (gesture.bar_clicked) ImGui::OpenPopup("range");
}

// ---- colours ----

void AttentionMapPanel::count_weights(PanelContext& context, const MapPicture& picture) {
  const std::string shown =
      fmt::format("{} {} {} {} {} {} {}", subject_, fingerprint(picture), options_.sinks(),
                  enum_name(options_.pooling), view_.origin().query, view_.origin().key,
                  view_.tokens_per_pixel());
  if (shown == counted_ || picture.tiles.empty()) return;
  // while something moves or fills in, colours that change all the time would only flicker
  const double now = ImGui::GetTime();
  const bool waits = moving_ || picture.n_missing > 0 || now < next_count_;
  if (waits && counts_.n() > 0 && !counts_due_) {
    context.requests.redraw = true;
    return;
  }
  // as much again on every side of what is in sight: small moves seldom change the range
  const auto widened = [](TokenRange range) {
    return TokenRange{std::max<Index>(0, range.begin - range.size()), range.end + range.size()};
  };
  const TokenRange queries = widened(view_.queries());
  const TokenRange keys = widened(view_.keys());
  WeightCounts counts;
  for (const bool any_level : {false, true}) {
    for (const MapTile* tile : picture.tiles) {
      if (!any_level && tile->id.level != picture.level) continue;
      counts.add(*tile, options_.pooling, options_.sinks(), queries, keys);
    }
    if (counts.n() > 0) break;
  }
  counts_ = std::move(counts);
  counted_ = shown;
  next_count_ = now + kCountEvery;
  counts_due_ = false;
}

void AttentionMapPanel::update_colours(const PanelContext& context) {
  const plot::Range range = options_.fixed_range && options_.scale != MapScaleKind::percentile
                                ? plot::Range{options_.low, options_.high}
                                : automatic_range(options_.scale, counts_);
  std::string key = fmt::format("{} {} {} {} {}", enum_name(options_.scale), range.low, range.high,
                                enum_name(options_.pooling), static_cast<int>(context.look.ground));
  if (options_.scale == MapScaleKind::percentile) key += fmt::format(" {}", counted_);
  if (colours_ && key == colours_key_) return;
  const plot::Theme theme = plot::make_theme(plot::Venue::slide, context.look.ground);
  MapGround ground;
  ground.masked = rgba(theme.masked);
  ground.unrecorded = 0;  // the hatched ground shows
  colours_.emplace(options_.scale, range, plot::ColourMap::sequential, ground, counts_);
  colours_key_ = std::move(key);
  ++colours_version_;
}

void AttentionMapPanel::range_popup(PanelContext& context) {
  if (!ImGui::BeginPopup("range")) return;
  ImGui::TextDisabled("Range of colours");
  const bool ranked = options_.scale == MapScaleKind::percentile;
  if (ranked) {
    ImGui::TextUnformatted("Ranks always span what is in sight.");
  } else {
    bool automatic = !options_.fixed_range;
    if (ImGui::Checkbox("automatic", &automatic)) {
      options_.fixed_range = !automatic;
      options_.low = colours_->range().low;
      options_.high = colours_->range().high;
    }
    ImGui::PushItemWidth(context.look.px(140));
    const auto edit = [&](const char* name, double& value) {
      double edited = options_.fixed_range ? value
                      : name[0] == 'l'     ? colours_->range().low
                                           : colours_->range().high;
      if (!ImGui::InputDouble(name, &edited, 0.0, 0.0, "%.3g",
                              ImGuiInputTextFlags_EnterReturnsTrue)) {
        return;
      }
      if (!options_.fixed_range) {
        options_.low = colours_->range().low;
        options_.high = colours_->range().high;
      }
      value = std::clamp(edited, 0.0, 1.0);
      options_.fixed_range = true;
    };
    edit("lowest", options_.low);
    edit("highest", options_.high);
    ImGui::PopItemWidth();
  }
  ImGui::Separator();
  ImGui::Checkbox("mask sink", &options_.mask_sinks);
  ImGui::PushItemWidth(context.look.px(140));
  const Index least = 1;
  const Index most = 64;
  ImGui::SliderScalar("keys", ImGuiDataType_S64, &options_.n_sink, &least, &most, "%lld",
                      ImGuiSliderFlags_AlwaysClamp);
  ImGui::PopItemWidth();
  ImGui::Checkbox("whole map in the corner", &options_.minimap);
  ImGui::EndPopup();
}

// ---- the keys that a method keeps ----

void AttentionMapPanel::ask_overlay(PanelContext& context) {
  overlay_problem_.clear();
  overlay_busy_ = false;
  if (!options_.overlay) return;
  const Session& session = context.session;
  const auto document = session.document();
  const auto draft = session.second();
  const Selection& selection = session.selection();
  const Parameters& parameters = session.parameters();
  const Phase phase = session.phase();
  overlay_problem_ = obstacle(selection.selector, phase, draft != nullptr);
  if (!overlay_problem_.empty()) {
    layer_shown_.reset();
    return;
  }
  KeptRequest request;
  request.layer = selection.layer;
  request.q_head = selection.q_head;
  request.phase = phase;
  request.chunk = parameters.chunk;
  request.spec = spec_of(selection.selector, parameters);
  request.budget = budget_of(selection.selector, parameters);
  request.dense_layers = parameters.dense_layers;
  request.rows_per_chunk = rows_per_chunk_for(document->info().n_tokens);
  const std::string key =
      document->key() + request.key() + (draft ? "/" + draft->key() : std::string());
  const auto kept = kept_.ask(
      session.bench(), key,
      {fmt::format("Keys that {} keeps in layer {}", selection.selector, selection.layer),
       Lane::heavy},
      [document, draft, request](JobContext& job) {
        return kept_rows(document->source(), draft ? &draft->source() : nullptr, request, job);
      });
  if (kept.failed()) overlay_problem_ = kept.status.error;
  overlay_busy_ = !kept.fresh && !kept.status.is_over();
  if (!kept.fresh) {
    layer_shown_.reset();  // of another method: would be a lie
    return;
  }
  if (kept.value->is_dense) {
    overlay_problem_ =
        fmt::format("{} leaves this layer dense: every key is kept.", selection.selector);
  }
  kept_rows_ = kept.value;

  // folded anew when the view has come to rest; meanwhile the last layer moves with the map
  const MapPoint origin = view_.origin();
  const std::string place =
      fmt::format("{}/{}/{}/{}/{}x{}/{}", key, origin.query, origin.key, view_.tokens_per_pixel(),
                  view_.width(), view_.height(), static_cast<int>(context.look.ground));
  if (layer_key_.empty() || (!ImGui::IsMouseDown(ImGuiMouseButton_Left) && !moving_)) {
    layer_key_ = place;
  }
  const plot::Colour tone =
      plot::with_alpha(plot::make_theme(plot::Venue::slide, context.look.ground).highlight, 0.9);
  const auto layer = layer_.ask(session.bench(), layer_key_,
                                {"Kept keys over the attention map", Lane::quick, true},
                                [rows = kept.value, view = view_, tone](JobContext&) {
                                  return fold_selected(rows->rows, view, tone);
                                });
  overlay_busy_ = overlay_busy_ || (!layer.fresh && !layer.status.is_over());
  if (layer_key_ != place) context.requests.redraw = true;
  if (!layer.value || layer.value == layer_shown_) return;
  const auto width = static_cast<int>(layer.value->width);
  const auto height = static_cast<int>(layer.value->height);
  if (!overlay_ || overlay_.width() != width || overlay_.height() != height) {
    overlay_ = Texture(context.textures, width, height, Filter::nearest);
  }
  overlay_.update(0, 0, width, height,
                  {reinterpret_cast<const std::uint8_t*>(layer.value->pixels.data()),
                   layer.value->pixels.size() * sizeof(std::uint32_t)});
  layer_shown_ = layer.value;
}

// ---- words ----

void AttentionMapPanel::tooltip(const PanelContext& context, MapPair pair) const {
  const auto document = context.session.document();
  const auto head = tiles_->head();
  if (!head) return;
  const MapGrid& grid = head->grid();
  std::vector<std::pair<std::string, std::string>> lines;
  if (const auto weight = head->weight(pair.query, pair.key)) {
    lines.emplace_back("weight", number_words(*weight));
  } else if (pair.query < grid.rows.begin || pair.query >= grid.rows.end) {
    lines.emplace_back("weight", "this query was not recorded");
  } else if (pair.key > pair.query) {
    lines.emplace_back("weight", "masked: the key comes after the query");
  } else {
    lines.emplace_back("weight", fmt::format("masked: beyond the window of {} keys", *grid.window));
  }
  lines.emplace_back("query", token_words(*document, pair.query));
  lines.emplace_back("key", token_words(*document, pair.key));
  if (picture_.level > 0) {
    const auto cell = cell_at(picture_, grid, pair);
    if (cell && !std::isnan(cell->max) && cell->state != RowState::pending) {
      lines.emplace_back("cell", fmt::format("queries {}, keys {}", range_words(cell->queries),
                                             range_words(cell->keys)));
      lines.emplace_back(
          "", fmt::format("max {}, mean {}{}", number_words(static_cast<double>(cell->max)),
                          number_words(static_cast<double>(cell->mean)),
                          cell->state == RowState::sampled ? " (sampled)" : ""));
    }
  }
  if (options_.overlay && kept_rows_ && layer_shown_) {
    const KeptRow* row = kept_rows_->nearest(pair.query);
    if (row != nullptr && row->pos == pair.query && pair.key <= pair.query) {
      const bool kept =
          std::binary_search(row->keys.begin(), row->keys.end(), static_cast<KeyPos>(pair.key));
      lines.emplace_back(context.session.selection().selector, kept ? "keeps it" : "drops it");
    }
  }
  detail_tooltip(lines);
}

std::string AttentionMapPanel::left_words() const {
  const Index side = Index{1} << picture_.level;
  if (picture_.level == 0) return "a cell is one weight";
  return fmt::format("a cell is the {} of {} x {} weights",
                     options_.pooling == MapPooling::max ? "largest" : "mean", side, side);
}

std::string AttentionMapPanel::right_words() const {
  if (!overlay_problem_.empty()) return overlay_problem_;
  const MapProgress progress = tiles_->progress();
  switch (progress.phase) {
    case MapProgress::Phase::failed:
      return progress.error;
    case MapProgress::Phase::sampling:
    case MapProgress::Phase::computing:
      return fmt::format(
          "{} {:.0f} %",
          progress.phase == MapProgress::Phase::sampling ? "sampled; exact" : "exact",
          100.0 * static_cast<double>(progress.rows_exact) /
              static_cast<double>(std::max<Index>(1, progress.n_rows)));
    default:
      break;
  }
  if (picture_.n_missing > 0) return fmt::format("{} tiles to come", picture_.n_missing);
  if (overlay_busy_) return "replaying the method";
  return {};
}

// ---- the contract ----

std::optional<plot::Figure> AttentionMapPanel::figure() const {
  if (!tiles_ || !tiles_->head() || !colours_) return std::nullopt;
  return map_figure(picture_, tiles_->head()->grid(), view_, options_, *colours_, names_, query_,
                    key_);
}

nlohmann::ordered_json AttentionMapPanel::options() const {
  nlohmann::ordered_json json = fields_to_json(options_);
  if (wanted_view_ || (tiles_ && !view_.is_fitted())) {
    const MapPlace place = wanted_view_ ? *wanted_view_
                                        : MapPlace{view_.at(view_.width() / 2, view_.height() / 2),
                                                   view_.tokens_per_pixel()};
    json["view"] = fields_to_json(place);
  }
  return json;
}

void AttentionMapPanel::set_options(const nlohmann::ordered_json& options) {
  MapOptions changed = options_;
  fields_from_json(options, changed);
  check_fields(changed);
  MapPlace place;
  if (options.contains("view")) {
    fields_from_json(options["view"], place);
    check_fields(place);
  }
  options_ = changed;
  wanted_view_ = place;
}

bool AttentionMapPanel::is_busy() const {
  if (!tiles_) return false;
  const MapProgress progress = tiles_->progress();
  const bool runs = progress.phase == MapProgress::Phase::loading ||
                    progress.phase == MapProgress::Phase::sampling ||
                    progress.phase == MapProgress::Phase::computing;
  return runs || picture_.n_missing > 0 || !textures_whole_ || overlay_busy_;
}

std::unique_ptr<Panel> make_attention_map_panel() {
  return std::make_unique<AttentionMapPanel>();
}

}  // namespace kvscope::gui
