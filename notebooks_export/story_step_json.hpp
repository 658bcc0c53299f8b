// Parts of a story's steps as the page's scripts read them, and in words.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "notebooks_export/story.hpp"
#include "notebooks_export/story_plan.hpp"

namespace kvscope {

/// [begin, end].
nlohmann::ordered_json pair_json(TokenRange range);
nlohmann::ordered_json mark_json(const StoryMark& mark);
/// Words between far keys and the queries, which the text may hide; null if there are few.
nlohmann::ordered_json fold_json(const StoryView& view);

/// What a map shows, for those who cannot see it.
std::string alt_words(const PlannedMap& map);
/// " The heaviest weight, 0.93, is that of query 40 for key 3." Empty without a weight.
std::string heaviest_words(const PlannedMap& map, const std::vector<float>& weights);

}  // namespace kvscope
