// Which keys a method keeps for the queries of one head: what overlays, underlines and comparisons
// show.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/attention/selection.hpp"
#include "core/sim/replay.hpp"
#include "gui/model/jobs/jobs.hpp"
#include "gui/model/session/session.hpp"

namespace kvscope::gui {

/// The attended keys of one measured query.
struct KeptRow {
  Index pos = 0;
  TokenRange visible;
  std::vector<KeyPos> keys;  // ascending; all visible ones where the layer stays dense
  double mass = 0.0;         // dense attention on them
};

/// One method, one budget, one head, over the measured queries of one phase.
struct KeptRows {
  std::vector<KeptRow> rows;  // ascending
  bool is_dense = false;      // the method left the layer dense
  std::size_t bytes() const;
  /// The measured row nearest to the position; null if there is none.
  const KeptRow* nearest(Index pos) const;
};

struct KeptRequest {
  Index layer = 0;
  Index q_head = 0;
  Phase phase = Phase::prefill;
  Index chunk = 128;
  MethodSpec spec;
  std::optional<Budget> budget;  // empty for methods that take none
  Index dense_layers = 0;
  /// Measured queries per prefill chunk, evenly spaced; empty = all of them.
  std::optional<Index> rows_per_chunk;
  /// Everything that determines the result, as a cache key.
  std::string key() const;
  /// Of all heads; at most 1024 of the decoded steps.
  ReplayOptions replay(const TraceInfo& info) const;
};

/// Rows per chunk that keep the lists of a whole trace small: all up to 8192 tokens, then fewer.
std::optional<Index> rows_per_chunk_for(Index n_tokens);

/// The replay that tells which keys a method keeps for the session's selection: its layer and head,
/// the phase of its query, these sliders. The budget is empty for methods that take none.
KeptRequest kept_request(const Session& session, const MethodSpec& method,
                         const Parameters& parameters);

/// What to compute for it, and of which files.
struct KeptQuestion {
  KeptRequest request;
  std::shared_ptr<const Document> trace;
  std::shared_ptr<const Document> draft;  // null for methods that need none
  std::string obstacle;                   // a sentence: why there is no answer; empty if there is
  std::string key;                        // of the cache
};
/// In the phase of the selected query, or in another one. Needs an open trace.
KeptQuestion kept_question(const Session& session, const MethodSpec& method);
KeptQuestion kept_question(const Session& session, const MethodSpec& method, Phase phase);

/// Replays the method through the layer. draft: for methods that need it; null = none. Throws what
/// replay_layers throws.
KeptRows kept_rows(const TraceSource& trace, const TraceSource* draft, const KeptRequest& request,
                   JobContext& job);

}  // namespace kvscope::gui
