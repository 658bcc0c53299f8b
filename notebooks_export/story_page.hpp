// A story as one HTML page that needs nothing else: no network, no other file; what is text in the
// trace or the story is text in the page.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "analysis/base/analysis.hpp"
#include "core/base/progress.hpp"
#include "notebooks_export/story_plan.hpp"

namespace kvscope {

/// What a page holds besides its text.
struct StoryPage {
  std::string html;
  Index n_heads = 0;               // of the largest atlas, or maps
  Index n_cells = 0;               // per side of the largest map
  Index block = 1;                 // its cells' side in tokens
  std::vector<std::string> notes;  // sentences for whoever asked: what a method does not answer
};

/// Throws ConfigError for options out of range, heads, positions or methods that a trace does not
/// have, figures that cannot be drawn, or maps that do not fit into max_size; Interrupted on a
/// stop.
StoryPage make_story_page(const Story& story, const StoryPageOptions& options,
                          const TraceOpener& open, ThreadPool& pool, const ProgressFn& progress,
                          const std::stop_token& stop, const ResultProvenance& provenance);

/// The story of one step that shows all chosen heads of a trace: what `kvscope export --html` is.
Story atlas_story(const TraceSource& trace, const std::filesystem::path& path,
                  const TraceSelection& selection);

}  // namespace kvscope
