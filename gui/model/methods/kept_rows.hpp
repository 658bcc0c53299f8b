// Which replay tells what a method keeps or loses for what is selected: of overlays, underlines and
// comparisons.
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

/// What to compute for the session's selection, its layer and head and its sliders, and of which
/// files. The budget is empty for methods that take none.
struct KeptQuestion {
  KeptRequest request;
  std::shared_ptr<const Document> trace;
  std::shared_ptr<const Document> draft;  // null for methods that need none
  std::string obstacle;                   // a sentence: why there is no answer; empty if there is
};
/// Needs an open trace.
KeptQuestion kept_question(const Session& session, const MethodSpec& method, Phase phase);

}  // namespace kvscope::gui
