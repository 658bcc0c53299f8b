// What the side bar says about an open trace: its state in words, and the grid of its layers and
// heads.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/trace/info.hpp"
#include "gui/model/traces/document.hpp"

namespace kvscope::gui {

/// "complete", or "interrupted: 3 of 9 chunks and steps".
std::string status_words(const TraceInfo& info, const TraceInfo& planned);

/// "verifier · 4160 tokens · complete", or "live · 7680 of 16384 tokens · 140 / s" while it grows:
/// the second line of a trace in a list.
std::string trace_summary(const Document& document);

/// The longest form "beginning…end" of the text that `fits` accepts, the text itself if it does;
/// cut between characters. "…" if nothing fits. Longer texts must not fit where shorter ones do
/// not.
std::string shortened_middle(std::string_view text,
                             const std::function<bool(std::string_view)>& fits);

/// One layer of the grid.
struct GridLayer {
  Index layer = 0;
  bool is_recorded = false;
  std::string marks;               // "w" sliding window, "e" experts, "n" no rotary positions
  std::vector<std::string> words;  // "sliding window of 128 tokens", "32 experts, 4 per token"
};

/// Layers x query heads of the model; what was recorded can be selected.
struct HeadGrid {
  std::vector<GridLayer> layers;     // [n_layers]
  std::vector<bool> recorded_heads;  // [n_q]
  Index group = 1;                   // query heads per KV head, drawn side by side
  /// (letter, meaning) of the marks that occur.
  std::vector<std::pair<std::string, std::string>> legend;
  bool is_recorded(Index layer, Index q_head) const;
};

HeadGrid head_grid(const TraceInfo& info);

}  // namespace kvscope::gui
