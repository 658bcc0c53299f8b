// What the Quest panel draws and writes: the cloud of bound against truth, one query along its
// context, and both as CSV.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "gui/model/bounds/quest_view.hpp"

namespace kvscope::gui {

/// One point of the cloud: a page that a query sees.
struct QuestPlace {
  Index query = 0;
  std::size_t slot = 0;  // of QuestPages
  bool operator==(const QuestPlace&) const = default;
};

/// A figure whose points can be asked what they are.
struct QuestCloud {
  plot::Figure figure;
  std::vector<std::vector<QuestPlace>> places;  // [mark][point]; empty for marks without points
  std::optional<QuestPlace> at(std::size_t mark, std::size_t point) const;
};

/// More points than this are thinned to one per cell of a fine grid, which the caption says.
inline constexpr std::size_t kMostCloudPoints = 20000;

/// Bound against true maximum with the line y = x. Kept pages stand apart from the others;
/// violations come on top and are never thinned.
QuestCloud quest_cloud(const QuestSteps& steps, QuestSemantics semantics);

/// Adds the pages of one query to the cloud's figure, that with `key` larger.
void mark_query(plot::Figure& cloud, const QuestPages& pages, std::optional<Index> key);

/// Bound and truth of each page of a single query over its context, kept pages filled.
plot::Figure quest_profile(const QuestSteps& query, QuestSemantics semantics);

/// Boxes the page that holds `key` in the profile's figure; nothing if the query does not see it.
void mark_page(plot::Figure& profile, const QuestPages& pages, Index key);

/// One line per page: query,page,first_key,last_key,bound,true_max,gap_logits,kept,violated.
std::string quest_csv(const QuestSteps& steps, QuestSemantics semantics);

/// A page whose bound is below its true maximum.
struct QuestViolation {
  QuestPlace place;
  Index first_key = 0;
  std::string sentence;  // "query 17, page 3 (keys 48 to 63): bound ... below ..."
};

/// At most `most` of them.
std::vector<QuestViolation> quest_violations(const QuestSteps& steps, std::size_t most);

}  // namespace kvscope::gui
