// Rows of a sweep's table for one method in some layers: the unit in which recall curves and
// coverage maps are computed, cached and added up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/base/table.hpp"
#include "analysis/sweep/sweep_table.hpp"
#include "core/sim/replay.hpp"
#include "gui/model/jobs/jobs.hpp"
#include "gui/model/session/selection.hpp"

namespace kvscope::gui {

struct MethodRowsRequest {
  std::vector<Index> layers;  // ascending
  Phase phase = Phase::prefill;
  Index chunk = 128;
  MethodSpec spec;
  std::vector<Budget> budgets;  // all of kinds that the method takes; empty if it takes none
  Index dense_layers = 0;
  std::optional<Index> rows_per_chunk;
  /// Everything beside the traces that determines the result, as a cache key.
  std::string key() const;
};

/// As `kvscope sweep` writes them: per budget and layer the layer's row, then its heads.
struct MethodRows {
  std::vector<SweepRow> rows;
  std::size_t bytes() const;
};

/// The calls that are replayed: chunks of the prompt; or single steps, at most 128 of the decoded
/// ones, evenly spaced, or as many as the command line measures where nothing was decoded.
CallPlan call_plan(const TraceInfo& info, Phase phase, Index chunk);

/// What a replay for display measures per chunk: as the command line does up to 8192 tokens, fewer
/// rows for longer traces, so that the cost grows with the length and not with its square.
Index display_rows_per_chunk(Index n_tokens);
/// Which rows those are, for a caption.
std::string measured_sentence(Phase phase, Index chunk, Index n_tokens);

/// Replays the method over the layers. draft: for methods that need it; null = none. Throws what
/// replay_layers throws.
MethodRows method_rows(const TraceSource& trace, const TraceSource* draft,
                       const MethodRowsRequest& request, JobContext& job);

/// Requests that together cover `layers`: one per layer, so that answers come layer by layer; a
/// single one for methods that pass context between layers.
std::vector<MethodRowsRequest> split_by_layer(const MethodRowsRequest& request);

/// "layer 3", "layers 0 to 7": for titles of jobs and captions.
std::string layer_words(const std::vector<Index>& layers);

}  // namespace kvscope::gui
