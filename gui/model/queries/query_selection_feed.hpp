// What the query-selection panel waits for: the selected head, the queries kept of its chunk, and,
// one layer after another, the correlations of all heads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gui/model/jobs/async_value.hpp"
#include "gui/model/queries/query_selection_view.hpp"
#include "gui/model/session/session.hpp"

namespace kvscope::gui {

class QuerySelectionFeed {
 public:
  /// Asks for what the session and the switches mean now; call in every frame with a trace.
  void update(const Session& session, const QuerySelectionSwitches& switches);

  /// What belongs to the trace that was open.
  void forget();

  /// The selected head's, or the last one's while that is computed; null if there was none yet.
  const std::shared_ptr<const QuerySelectionView>& value() const { return shown_.value; }
  bool is_fresh() const { return shown_.fresh; }
  /// Of the job that computes the head.
  const JobStatus& status() const { return shown_.status; }
  void retry() { head_.retry(); }
  void cancel() { head_.cancel(); }

  /// Of the selected head and chunk; null in decode, if switched off, or while they are computed.
  const std::shared_ptr<const ChunkPicks>& picks() const { return picks_; }

  /// The selected query, measured whether it was sampled or not; null while it is computed.
  const std::shared_ptr<const MeasuredQueries>& selected() const { return selected_; }

  /// What is known of the map of heads; `version` grows with it. Layers are computed unasked: the
  /// selected one always, all if a layer takes about a second, or after ask_all_layers().
  const LayerCorrelations& layers() const { return layers_; }
  std::uint64_t layers_version() const { return layers_version_; }
  void ask_all_layers() { all_layers_ = true; }
  /// The layer that is computed now.
  std::optional<Index> layer_at_work() const { return layer_at_work_; }
  /// Why the last layer failed; empty if it did not.
  const std::string& layer_problem() const { return layer_problem_; }
  void retry_layer() { layer_.retry(); }

  /// Something that was asked for is still computed.
  bool is_waiting() const { return waiting_; }

 private:
  /// What is selected in this frame.
  struct Now {
    const Session& session;
    std::shared_ptr<const Document> document;
    QuerySelectionOptions options;
  };
  template <class T, class Request, class Compute>
  AsyncView<T> ask(const Now& now, AsyncValue<T>& slot, const Request& request,
                   const JobRequest& job, Compute compute) {
    auto view = slot.ask(now.session.bench(), now.document->key() + request.key(), job,
                         on_trace(now.document, request, compute));
    waiting_ = waiting_ || view.is_pending();
    return view;
  }
  void ask_head(const Now& now);
  std::shared_ptr<const ChunkPicks> ask_picks(const Now& now);
  void ask_layers(const Now& now, QuerySpan span);

  AsyncValue<QuerySelectionView> head_;
  AsyncValue<QuerySelectionView> layer_;
  AsyncValue<ChunkPicks> picks_slot_;
  AsyncValue<MeasuredQueries> selected_slot_;
  AsyncView<QuerySelectionView> shown_;
  std::shared_ptr<const ChunkPicks> picks_;
  std::shared_ptr<const MeasuredQueries> selected_;
  LayerCorrelations layers_;
  std::string layers_key_;
  std::uint64_t layers_version_ = 0;
  bool all_layers_ = false;
  std::optional<Index> layer_at_work_;
  std::string layer_problem_;
  bool waiting_ = false;
};

}  // namespace kvscope::gui
