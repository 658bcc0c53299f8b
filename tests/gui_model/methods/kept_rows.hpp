// Which keys a method keeps for the measured queries of one head, row by row as a replay measures
// them: what lists and readings are compared with.
#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

#include "gui/model/tokens/token_losses.hpp"

namespace kvscope::gui::test {

struct KeptRow {
  Index pos = 0;
  TokenRange visible;
  std::vector<KeyPos> keys;  // ascending
  double mass = 0.0;         // dense attention on them
};

/// Ascending.
inline std::vector<KeptRow> kept_rows(const TraceSource& trace, const LossRequest& request,
                                      JobContext& job) {
  std::vector<KeptRow> kept;
  std::mutex mutex;
  ReplayOptions options = request.replay(trace.info());
  options.q_heads = {request.q_head};
  options.on_row = [&](const MeasuredRow& measured) {
    if (measured.layer != request.layer || measured.q_head != request.q_head) return;
    KeptRow row{measured.pos, measured.visible, {}, 0.0};
    row.keys.assign(measured.kept[0].begin(), measured.kept[0].end());
    for (const KeyPos key : row.keys)
      row.mass += measured.probs[static_cast<std::size_t>(key - measured.visible.begin)];
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(row));
  };
  replay_layers(trace, nullptr, {request.layer}, {{request.spec, request.budget}}, options,
                job.pool, job.progress, job.stop);
  std::ranges::sort(kept, {}, &KeptRow::pos);
  return kept;
}

}  // namespace kvscope::gui::test
