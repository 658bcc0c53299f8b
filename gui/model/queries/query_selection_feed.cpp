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
  const auto document = session.document();
  if (!document) {
    forget();
    return;
  }
  const QuerySelectionOptions options = options_of(switches, session.parameters().chunk);
  follow(*document, options, switches.span);
  ask_head(session, document, options);
  if (switches.picks && session.phase() == Phase::prefill) {
    ask_picks(session, document, options);
  } else {
    picks_.reset();
  }
  ask_selected(session, document, options);
  ask_layers(session, document, options, switches.span);
}

void QuerySelectionFeed::forget() {
  document_key_.clear();
  head_.clear();
  picks_slot_.clear();
  selected_slot_.clear();
  value_.reset();
  picks_.reset();
  selected_.reset();
  fresh_ = false;
  status_ = {};
  all_layers_ = false;
}

/// Forgets what belongs to another trace or other options.
void QuerySelectionFeed::follow(const Document& document, const QuerySelectionOptions& options,
                                QuerySpan span) {
  if (document.key() != document_key_) {
    forget();
    document_key_ = document.key();
  }
  const std::string key =
      fmt::format("{}{}{}", document.key(), fields_to_json(options).dump(), enum_name(span));
  if (key == layers_key_) return;
  layers_key_ = key;
  layers_.clear();
  ++layers_version_;
  layer_.clear();
}

void QuerySelectionFeed::ask_head(const Session& session,
                                  const std::shared_ptr<const Document>& document,
                                  const QuerySelectionOptions& options) {
  const Selection& selected = session.selection();
  const QuerySelectionRequest request{selected.layer, {selected.q_head}, options};
  const Workbench bench = session.bench();
  if (auto known = known_query_selection(bench.cache, document->key(), document->info(), request)) {
    value_ = std::move(known);
    fresh_ = true;
    head_.retry();  // whatever ran for another head is not wanted any more
    return;
  }
  const auto view = head_.ask(
      bench, document->key() + request.key(),
      {fmt::format("Largest weights of layer {}, head {}", selected.layer, selected.q_head),
       Lane::heavy, /*urgent=*/true},
      [document, request](JobContext& job) {
        return query_selection_view(document->source(), request, job);
      });
  fresh_ = view.fresh;
  status_ = view.status;
  if (view.fresh) value_ = view.value;
  waiting_ = waiting_ || view.is_pending();
}

void QuerySelectionFeed::ask_picks(const Session& session,
                                   const std::shared_ptr<const Document>& document,
                                   const QuerySelectionOptions& options) {
  const Selection& selected = session.selection();
  const ChunkPicksRequest request{selected.layer, selected.q_head, session.call(),
                                  session.parameters().n_queries, options};
  const auto view = picks_slot_.ask(session.bench(), document->key() + request.key(),
                                    {fmt::format("Queries that QuoKA keeps of {} to {}",
                                                 request.chunk.begin, request.chunk.end - 1),
                                     Lane::quick},
                                    [document, request](JobContext& job) {
                                      return chunk_picks(document->source(), request, job);
                                    });
  waiting_ = waiting_ || view.is_pending();
  // Those of another chunk or head would be misread.
  picks_ = view.fresh ? view.value : nullptr;
}

void QuerySelectionFeed::ask_selected(const Session& session,
                                      const std::shared_ptr<const Document>& document,
                                      const QuerySelectionOptions& options) {
  const Selection& selected = session.selection();
  const MeasureRequest request{selected.layer, selected.q_head, {selected.query}, options};
  const auto view =
      selected_slot_.ask(session.bench(), document->key() + request.key(),
                         {fmt::format("Largest weight of query {}", selected.query), Lane::quick},
                         [document, request](JobContext& job) {
                           return measure_queries(document->source(), request, job);
                         });
  waiting_ = waiting_ || view.is_pending();
  selected_ = view.fresh ? view.value : nullptr;
}

void QuerySelectionFeed::ask_layers(const Session& session,
                                    const std::shared_ptr<const Document>& document,
                                    const QuerySelectionOptions& options, QuerySpan span) {
  const TraceInfo& info = document->info();
  const Index selected = session.selection().layer;
  const bool all = all_layers_ || query_selection_cost(info, options) <= kCheapLayer;
  std::optional<Index> next;
  if (!layers_.contains(selected)) next = selected;
  for (const Index layer : info.layers) {
    if (!next && all && !layers_.contains(layer)) next = layer;
  }
  layer_problem_.clear();
  layer_at_work_.reset();
  if (!next) return;
  const QuerySelectionRequest request{*next, info.q_heads, options};
  const auto view = layer_.ask(session.bench(), document->key() + request.key(),
                               {fmt::format("Query correlations of layer {}", *next)},
                               [document, request](JobContext& job) {
                                 return query_selection_view(document->source(), request, job);
                               });
  if (view.fresh) {
    layers_[*next] = correlations_of(*view.value, span);
    ++layers_version_;
    waiting_ = waiting_ || (all && layers_.size() < info.layers.size());
  } else if (view.failed()) {
    layer_problem_ = view.status.error;
  } else if (!view.status.is_over()) {
    layer_at_work_ = *next;
    waiting_ = true;
  }
}

}  // namespace kvscope::gui
