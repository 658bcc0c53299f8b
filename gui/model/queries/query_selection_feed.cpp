#include "gui/model/queries/query_selection_feed.hpp"

#include <fmt/format.h>

#include "core/base/fields_json.hpp"

#include <nlohmann/json.hpp>

namespace kvscope::gui {

namespace {
/// Multiply-adds of one layer up to which all layers are computed unasked: about a second each.
constexpr double kCheapLayer = 2e10;
}  // namespace

void QuerySelectionFeed::update(const Session& session, const QuerySelectionSwitches& switches) {
  waiting_ = false;
  const Now now{session, session.document(), options_of(switches, session.parameters().chunk)};
  ask_head(now);
  picks_ = switches.picks && session.phase() == Phase::prefill ? ask_picks(now) : nullptr;
  const Selection& selected = session.selection();
  const MeasureRequest request{selected.layer, selected.q_head, {selected.query}, now.options};
  const auto view = ask(now, selected_slot_, request,
                        {fmt::format("Largest weight of query {}", selected.query), Lane::quick},
                        measure_queries);
  selected_ = view.fresh ? view.value : nullptr;
  ask_layers(now, switches.span);
}

void QuerySelectionFeed::forget() {
  head_.clear();
  picks_slot_.clear();
  selected_slot_.clear();
  shown_ = {};
  picks_.reset();
  selected_.reset();
  all_layers_ = false;
}

void QuerySelectionFeed::ask_head(const Now& now) {
  const Selection& selected = now.session.selection();
  const QuerySelectionRequest request{selected.layer, {selected.q_head}, now.options};
  if (auto known = known_query_selection(now.session.bench().cache, now.document->key(),
                                         now.document->info(), request)) {
    shown_ = {std::move(known), /*fresh=*/true, {}};
    head_.retry();  // whatever ran for another head is not wanted any more
    return;
  }
  auto view =
      ask(now, head_, request,
          {fmt::format("Largest weights of layer {}, head {}", selected.layer, selected.q_head),
           Lane::heavy, /*urgent=*/true},
          query_selection_view);
  if (!view.fresh) view.value = shown_.value;
  shown_ = std::move(view);
}

std::shared_ptr<const ChunkPicks> QuerySelectionFeed::ask_picks(const Now& now) {
  const Selection& selected = now.session.selection();
  const ChunkPicksRequest request{selected.layer, selected.q_head, now.session.call(),
                                  now.session.parameters().n_queries, now.options};
  const auto view = ask(now, picks_slot_, request,
                        {fmt::format("Queries that QuoKA keeps of {} to {}", request.chunk.begin,
                                     request.chunk.end - 1),
                         Lane::quick},
                        chunk_picks);
  return view.fresh ? view.value : nullptr;  // those of another chunk or head would be misread
}

void QuerySelectionFeed::ask_layers(const Now& now, QuerySpan span) {
  const std::string key = fmt::format("{}{}{}", now.document->key(),
                                      fields_to_json(now.options).dump(), enum_name(span));
  if (key != layers_key_) {
    layers_key_ = key;
    layers_.clear();
    ++layers_version_;
    layer_.clear();
  }
  const TraceInfo& info = now.document->info();
  const Index selected = now.session.selection().layer;
  const bool all = all_layers_ || query_selection_cost(info, now.options) <= kCheapLayer;
  std::optional<Index> next;
  if (!layers_.contains(selected)) next = selected;
  for (const Index layer : info.layers) {
    if (!next && all && !layers_.contains(layer)) next = layer;
  }
  layer_problem_.clear();
  layer_at_work_.reset();
  if (!next) return;
  const auto view =
      ask(now, layer_, QuerySelectionRequest{*next, info.q_heads, now.options},
          {fmt::format("Query correlations of layer {}", *next)}, query_selection_view);
  if (view.fresh) {
    layers_[*next] = correlations_of(*view.value, span);
    ++layers_version_;
    waiting_ = waiting_ || (all && layers_.size() < info.layers.size());
  } else if (view.failed()) {
    layer_problem_ = view.status.error;
  } else if (view.is_pending()) {
    layer_at_work_ = *next;
  }
}

}  // namespace kvscope::gui
