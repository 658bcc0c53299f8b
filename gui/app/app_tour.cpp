// The App's tour of six steps: when it begins, and where its steps point.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/fields_json.hpp"

#include "gui/app/app.hpp"

namespace kvscope::gui {

std::optional<Area> App::place_of(const std::string& target) const {
  if (const auto area = cells_.area_of(target)) return area;
  for (const Landmark& mark : landmarks_) {
    if (mark.name != target) continue;
    const float edge = look_.px(3);
    return Area{mark.low.x - edge, mark.low.y - edge, mark.high.x - mark.low.x + 2 * edge,
                mark.high.y - mark.low.y + 2 * edge};
  }
  return std::nullopt;
}

/// The first trace shows what it makes interesting, unless somebody was faster or said otherwise.
void App::choose_opening() {
  if (!opens_on_interest_) return;
  const auto document = session_->document();
  if (!document) return;
  const bool has_heads = document->info().capture.qkv && !document->is_being_recorded();
  if (!opened_on_) opened_on_ = session_->selection();
  if (!has_heads || session_->selection() != *opened_on_ || tour_.step()) {
    opens_on_interest_ = false;
    opening_.cancel();
    return;
  }
  const auto key_of = [&](const HeadsOptions& options) {  // as the panel asks: computed once
    return documents_key(*document, nullptr) + head_atlas_key(options);
  };
  const auto atlas_of = [&](const HeadsOptions& options) {
    return std::function<HeadAtlas(JobContext&)>(on_trace(document, options, head_atlas_of));
  };
  const HeadsOptions options = plain_atlas_options();
  const HeadsOptions rough = rough_atlas_options();
  const auto view = opening_.ask(session_->bench(), key_of(options),
                                 {fmt::format("Heads of {}", document->name()), Lane::heavy},
                                 atlas_of(options), key_of(rough), atlas_of(rough));
  opens_on_interest_ = view.is_pending();
  if (view.value == nullptr || view.value == opened_by_) return;  // the atlas says what is wrong
  opened_by_ = view.value;
  const AtlasOpening opening = opening_of(*view.value);
  Panel* heads = find_panel("heads");
  AtlasChoice choice;
  if (heads->options() == fields_to_json(opened_with_.value_or(choice))) {
    choice.number = opening.number;
    choice.sort = AtlasSort::largest;
    heads->set_options(fields_to_json(choice));
    opened_with_ = choice;
  }
  if (opening.strongest) {
    session_->select_head("opening", opening.strongest->layer, opening.strongest->q_head);
    flash(fmt::format(
        "layer {} head {} {}: selected", opening.strongest->layer, opening.strongest->q_head,
        opening.number == AtlasNumber::retrieval ? "retrieves most" : "looks back farthest"));
    opened_on_ = session_->selection();
  }
  requests_.redraw = true;
}

void App::draw_tour() {
  if (awaited_traces_ > 0 && !session_->is_opening()) {
    if (session_->documents().size() >= awaited_traces_) tour_.start();
    awaited_traces_ = 0;
  }
  const auto document = session_->document();
  if (!document) tour_.leave();
  if (!tour_.step()) {
    shown_step_.reset();
    tour_facts_.clear();
    return;
  }
  // One that fails leaves the words without numbers; the atlas says what is wrong.
  const auto view = tour_facts_.ask(
      session_->bench(), document->key() + "tour", {"Heads for the tour", Lane::heavy},
      [document](JobContext& job) { return tour_facts_of(document->source(), job); });
  const TourFacts* facts = view.fresh ? view.value.get() : nullptr;
  const auto steps = tour_steps(facts, [&](Index pos) { return document->token_text(pos); });
  const TourStep& step = steps[*tour_.step()];
  if (shown_step_ != tour_.step()) {
    shown_step_ = tour_.step();
    selects_pair_ = step.target == "attention-map";
    settings_.show_sidebar = true;
    if (step.target == "heads") find_panel("heads")->set_options({{"number", "retrieval"}});
    if (step.target == "why") {  // the heaviest that was dropped, not one that was selected before
      session_->select("tour", [](Selection& s) { s.key.reset(); });
    }
    const bool is_layout = std::any_of(layouts_.begin(), layouts_.end(), [&](const Layout& layout) {
      return layout.name == step.shows;
    });
    if (is_layout) {
      show_layout(step.shows);
    } else if (!step.shows.empty()) {
      bring_up(step.shows);
    }
    requests_.redraw = true;  // what it points at is drawn in the next frame
    return;
  }
  if (selects_pair_ && facts != nullptr && facts->retrieving) {
    selects_pair_ = false;
    session_->select("tour", [&](Selection& s) {
      s.layer = facts->retrieving->layer;
      s.q_head = facts->retrieving->q_head;
      if (facts->pair) s.query = facts->pair->query, s.key = facts->pair->key;
    });
  }
  if (tour_.draw(look_, step, [this](const std::string& target) { return place_of(target); })) {
    requests_.redraw = true;
    if (!tour_.step()) settings_.tour_done = true;
  }
}

}  // namespace kvscope::gui
