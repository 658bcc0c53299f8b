// What the Quest panel draws and writes: the cloud of bound against truth, one query along its
// context, and both as CSV.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "gui/model/quest_view.hpp"

namespace kvscope::gui {

/// Where numbers come from, for captions.
struct QuestWords {
  std::string trace;
  Index layer = 0;
  Index q_head = 0;
  Index budget = 0;
};

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

/// Bound against true maximum with the line y = x. Kept pages stand apart from the others; those of
/// `selected` (may be null) and its page with `key` are highlighted; violations come on top.
QuestCloud quest_cloud(const QuestSteps& steps, const QuestPages* selected,
                       std::optional<Index> key, QuestSemantics semantics, const QuestWords& words);

/// Bound and truth of each page of one query over the positions of its context, kept pages filled.
plot::Figure quest_profile(const QuestPages& pages, std::optional<Index> key,
                           QuestSemantics semantics, const QuestWords& words);

/// One line per page: query,page,first_key,last_key,bound,true_max,gap_logits,kept,violated.
std::string quest_csv(std::span<const QuestPages* const> pages, double scale,
                      QuestSemantics semantics);

/// The pages that break the bound, as sentences "query 17, page 3 (keys 48 to 63): ...", at most
/// `most` of them.
std::vector<std::string> quest_violations(std::span<const QuestPages* const> pages,
                                          std::size_t most);

}  // namespace kvscope::gui
