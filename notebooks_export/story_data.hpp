// The numbers of a story's page: what was planned, computed and encoded.
#pragma once

#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "analysis/base/analysis.hpp"
#include "core/base/progress.hpp"
#include "notebooks_export/story_plan.hpp"

namespace kvscope {

struct StoryData {
  nlohmann::ordered_json json;            // the page's own words, see page/story.js
  std::string scripts;                    // <script type="text/plain"> with encoded numbers
  std::vector<std::string> alts;          // by step: what its map shows, in sentences
  std::vector<std::string> method_words;  // by method of the plan; "" where there is nothing to say
};

/// The tokens of a trace as the page holds them: cleaned texts, or ids.
nlohmann::ordered_json page_tokens(const TraceSource& trace);

/// Throws what the analyses throw; Interrupted on a stop.
StoryData compute_story(const Story& story, const StoryPlan& plan, const StoryPageOptions& options,
                        ThreadPool& pool, const ProgressFn& progress, const std::stop_token& stop);

}  // namespace kvscope
