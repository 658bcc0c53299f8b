#include "gui/panels/attention_map_panel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/fields_json.hpp"
#include "core/base/number_text.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/switch_row.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

std::string range_words(TokenRange range) {
  return range.size() == 1 ? fmt::format("{}", range.begin)
                           : fmt::format("{} to {}", range.begin, range.end - 1);
}

}  // namespace

PanelInfo AttentionMapPanel::info() const {
  return {"attention-map", "Attention map",
          "How much every query of the selected head attends to every key. Drag to move, wheel to "
          "zoom, Shift and drag to zoom into a rectangle; click to select a query and a key. Keys "
          "over the map: arrows, + and -, 0 all, W all keys, V recorded queries, G selected pair; "
          "Shift and arrows step the selected pair."};
}

void AttentionMapPanel::controls(PanelContext& context) {
  switch_buttons(options_, options_.pooling);
  switch_buttons(options_, options_.scale);
  next_switch();
  mask_sink_box(options_, has_sink_);
  next_switch();
  if (check_box("kept keys", &options_.overlay)) options_.lost = false;
  help_tooltip(
      fmt::format("The keys that {} keeps, over the map", context.session.selection().selector));
  next_switch();
  if (check_box("lost only", &options_.lost)) options_.overlay = options_.lost;
  landmark("lost only");
  help_tooltip(fmt::format("What {} keeps is covered: the attention that is left is what it loses",
                           context.session.selection().selector));
}

void AttentionMapPanel::draw(PanelContext& context) {
  if (needs_trace(context)) {
    if (tiles_) tiles_->clear();
    forget_picture();
    return;
  }
  Session& session = context.session;
  const auto document = session.document();
  const Selection& selection = session.selection();
  if (!tiles_) tiles_.emplace(session.bench());
  tiles_->show({std::shared_ptr<const TraceSource>(document, &document->file()), document->key(),
                selection.layer, selection.q_head, document->growing_key()});
  const bool has_grown = document->growing_key() == growing_key_;
  growing_key_ = document->growing_key();
  has_grown ? view_.grow(document->info().n_tokens) : view_.set_map(document->info().n_tokens);
  canvas_.begin(context, view_);
  if (wanted_view_) view_.look_at(wanted_view_->centre, wanted_view_->tokens_per_pixel);
  wanted_view_.reset();
  follow_selection(session);
  ask_sink(context);

  const std::string subject =
      fmt::format("{}{}/{}", document->key(), selection.layer, selection.q_head);
  MapPicture picture = tiles_->picture(view_);
  if (picture.overview && picture.overview->has_picture()) {
    if (subject != subject_) {
      subject_ = subject;
      textures_.clear();
      names_ = {document->name(), document->info().model_name, selection.layer, selection.q_head};
    }
    picture_ = std::move(picture);
  } else if (!picture_.overview ||
             (!has_grown && picture_.overview->grid().n_tokens != document->info().n_tokens)) {
    forget_picture();  // but what a recording was stays in sight until it is drawn with what came
  }
  is_stale_ = subject != subject_;

  if (picture_.overview) draw_map(context);
  report(context);
}

/// Whether there is something to mask: most heads of some models have no sink.
void AttentionMapPanel::ask_sink(const PanelContext& context) {
  const auto head = tiles_->head();
  if (head == nullptr) return;
  const Selection& selection = context.session.selection();
  const auto view =
      sink_.ask(context.session.bench(),
                fmt::format("{}sink/{}/{}/{}", context.session.document()->key(), selection.layer,
                            selection.q_head, options_.n_sink),
                {"Attention sink", Lane::quick},
                [head, n = options_.n_sink](JobContext&) { return sink_share_of(*head, n); });
  awaits_sink_ = view.is_pending();
  if (view.fresh && view.value) has_sink_ = view.value->is_sink();
}

/// Without a sink nothing is masked, whatever the switch says.
MapOptions AttentionMapPanel::options_here() const {
  MapOptions here = options_;
  here.mask_sinks = here.mask_sinks && has_sink_;
  return here;
}

void AttentionMapPanel::report(const PanelContext& context) {
  const JobStatus status = status_of(context.session.selection());
  const bool is_fine = status.state == JobState::done;
  ImGui::SetCursorScreenPos(canvas_.low());  // over the map, whatever was drawn last
  if (is_fine) {
    overlay_.report(context);
    return;
  }
  report_job(context, *tiles_, status, picture_.overview != nullptr, is_fine);
}

void AttentionMapPanel::forget_picture() {
  picture_ = {};
  subject_.clear();
  textures_.clear();
  overlay_.hide();
}

JobStatus AttentionMapPanel::status_of(const Selection& selection) const {
  const MapProgress progress = tiles_->progress();
  JobStatus status;
  status.title =
      fmt::format("Attention map of layer {}, head {}", selection.layer, selection.q_head);
  if (progress.phase == MapProgress::Phase::failed) {
    status.state = JobState::failed;
    status.error = progress.error;
  } else if (progress.phase == MapProgress::Phase::stopped) {
    status.state = JobState::cancelled;
  } else {
    status.state = picture_.overview ? JobState::done : JobState::running;
    status.progress = {"reading queries and keys", 0, 0, ""};
  }
  return status;
}

void AttentionMapPanel::draw_map(PanelContext& context) {
  Session& session = context.session;
  scale_.update(context, picture_, view_, options_here(), subject_, moving_);
  if (options_.overlay) {
    overlay_.ask(context, view_, moving_, options_.lost);
  } else {
    overlay_.hide();
  }
  const MapOverview& overview = *picture_.overview;
  const MapTile* whole =
      options_.minimap ? overview.tile({overview.grid().top_level(), 0, 0}) : nullptr;
  std::vector<const MapTile*> wanted;
  if (whole != nullptr) wanted.push_back(whole);
  for (const auto& tile : picture_.tiles) wanted.push_back(tile);
  textures_whole_ = textures_.prepare(context.textures, wanted, scale_.colours(), options_.pooling,
                                      scale_.version());
  if (!textures_whole_) context.requests.redraw = true;

  MapScene scene{overview.grid(), picture_, scale_.colours(), textures_};
  scene.overlay = overlay_.texture();
  scene.hides_kept = options_.overlay && options_.lost;
  scene.overlay_part = overlay_.part();
  scene.whole = whole;
  scene.query = session.selection().query;
  scene.key = session.selection().key;
  scene.bookmarks = session.bookmarks_here();
  scene.bar_title = options_.scale == MapScaleKind::percentile ? "by rank"
                    : options_.pooling == MapPooling::max      ? "max weight"
                                                               : "mean weight";
  scene.left_words = left_words();
  scene.right_words = right_words();
  const MapGesture gesture = canvas_.draw(context, view_, scene);
  if (is_stale_)  // another head's, until this one is read
    ImGui::GetWindowDrawList()->AddRectFilled(canvas_.low(), canvas_.high(),
                                              packed(plot::with_alpha(context.look.surface, 0.5)));
  act(context, gesture);
  const bool hovers = gesture.hovered && !is_stale_;
  if (hovers && !ImGui::IsMouseDown(ImGuiMouseButton_Left)) tooltip(context, *gesture.hovered);
  scale_.popup(context, options_, has_sink_);
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
    const MapPair pair = clicked_pair(*gesture.clicked);
    session.select_pair("attention map", pair.query,
                        pair.key <= pair.query ? std::optional(pair.key) : std::nullopt);
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
  if (gesture.bar_clicked) ImGui::OpenPopup(MapScale::kPopup);
}

MapPair AttentionMapPanel::clicked_pair(MapPair pair) const {
  const auto head = tiles_->head();
  if (!head || is_stale_ || picture_.level == 0) return pair;
  const auto cell = cell_at(picture_, head->grid(), pair);
  if (!cell) return pair;
  return heaviest_pair(*head, *cell).value_or(pair);
}

// ---- words ----

void AttentionMapPanel::tooltip(const PanelContext& context, MapPair pair) const {
  const auto document = context.session.document();
  const auto head = tiles_->head();
  if (!head) return;
  const MapGrid& grid = head->grid();
  std::vector<std::pair<std::string, std::string>> lines;
  if (const auto weight = head->weight(pair.query, pair.key)) {
    lines.emplace_back("weight", number_text(*weight));
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
          "its weights",
          fmt::format("max {}, mean {}{}", number_text(static_cast<double>(cell->max)),
                      number_text(static_cast<double>(cell->mean)),
                      cell->state == RowState::sampled ? " (sampled)" : ""));
    }
  }
  if (const auto keeps = overlay_.keeps(pair)) {
    lines.emplace_back(context.session.selection().selector.text(),
                       *keeps ? "keeps it" : "drops it");
  }
  detail_tooltip(lines, {.query = pair.query, .keys = {pair.key, pair.key + 1}});
}

std::string AttentionMapPanel::left_words() const {
  const Index side = Index{1} << picture_.level;
  if (picture_.level == 0) return "a cell is one weight";
  return fmt::format("a cell is the {} of {} x {} weights",
                     options_.pooling == MapPooling::max ? "largest" : "mean", side, side);
}

std::string AttentionMapPanel::right_words() const {
  if (!overlay_.words().empty()) return overlay_.words();
  if (is_stale_) return "reading the selected head";
  const MapProgress progress = tiles_->progress();
  const bool is_sampling = progress.phase == MapProgress::Phase::sampling;
  if (is_sampling || progress.phase == MapProgress::Phase::computing) {
    return fmt::format("{} {:.0f} %", is_sampling ? "sampled; exact" : "exact",
                       100.0 * static_cast<double>(progress.rows_exact) /
                           static_cast<double>(std::max<Index>(1, progress.n_rows)));
  }
  if (picture_.n_missing > 0) return fmt::format("{} tiles to come", picture_.n_missing);
  return {};
}

// ---- the contract ----

std::optional<plot::Figure> AttentionMapPanel::figure() const {
  if (!picture_.overview || !scale_.has_colours()) return std::nullopt;
  return map_figure(picture_, picture_.overview->grid(), view_, options_here(), scale_.colours(),
                    names_, query_, key_);
}

nlohmann::ordered_json AttentionMapPanel::options() const {
  nlohmann::ordered_json json = fields_to_json(options_);
  const bool wants_part =
      wanted_view_ && wanted_view_->tokens_per_pixel < MapPlace().tokens_per_pixel;
  const bool sees_part = !wanted_view_ && tiles_ && !view_.is_fitted();
  if (wants_part || sees_part) {
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

std::vector<PanelChoice> AttentionMapPanel::choices() const {
  return choices_of(options_);
}

bool AttentionMapPanel::is_busy() const {
  if (!tiles_) return false;
  using Phase = MapProgress::Phase;
  const Phase phase = tiles_->progress().phase;
  if (phase == Phase::failed || phase == Phase::stopped || phase == Phase::nothing) return false;
  const bool is_whole =
      phase == Phase::complete && picture_.n_missing == 0 && textures_whole_ && !scale_.is_behind();
  return !is_whole || awaits_sink_ || overlay_.is_busy();
}

Places AttentionMapPanel::landmarks() const {
  const ImVec2 low = canvas_.low();
  const ImVec2 high = canvas_.high();
  Places places = {{"map low corner", low},
                   {"map high corner", high},
                   {"colour bar", {high.x + 20.0f, (low.y + high.y) / 2}}};
  if (query_) {
    const auto query = static_cast<double>(*query_) + 0.5;
    const double key = key_ ? static_cast<double>(*key_) + 0.5 : query;
    places.emplace_back("selected pair", ImVec2{low.x + static_cast<float>(view_.x_of(key)),
                                                low.y + static_cast<float>(view_.y_of(query))});
  }
  return places;
}

std::unique_ptr<Panel> make_attention_map_panel() {
  return std::make_unique<AttentionMapPanel>();
}

}  // namespace kvscope::gui
