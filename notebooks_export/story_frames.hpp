// A story as numbered pictures, from which other programs make a film: one for each step, or one
// for each layer, budget or decode step of what the steps show.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "core/base/progress.hpp"
#include "notebooks_export/pgfplots.hpp"
#include "notebooks_export/story_plan.hpp"

namespace kvscope {

/// What a map or a text goes through.
enum class FramesOver {
  story,    // nothing: a picture for each step
  layers,   // the recorded layers, with the step's head
  budgets,  // of the step's first method: 16, 32, ... tokens up to the context
  steps,    // the decoded tokens: each frame adds a query
};

inline constexpr std::size_t kMostFrames = 2000;

/// frame-0001.png, ... of 1280 x 720 pixels. Throws ConfigError as make_story_page does, if no
/// step has what is gone through, and for more than kMostFrames; Interrupted on a stop.
std::vector<OutputFile> make_story_frames(const Story& story, FramesOver over,
                                          const TraceOpener& open, ThreadPool& pool,
                                          const ProgressFn& progress, const std::stop_token& stop);

}  // namespace kvscope
