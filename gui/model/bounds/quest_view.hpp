// Quest's page bounds of one head, as the panel shows them: many steps as a cloud, one query page
// by page; what is drawn of them (quest_figures.cpp), and both as CSV.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/kinds/quest_step.hpp"
#include "analysis/plot/figure.hpp"
#include "core/trace/source.hpp"
#include "gui/model/jobs/jobs.hpp"

namespace kvscope::gui {

/// What decides the numbers.
struct QuestRequest {
  Index layer = 0;
  Index q_head = 0;
  Index page_size = 16;
  Index budget = 256;  // tokens
  StepSource steps = StepSource::automatic;
  std::optional<Index> query;  // this one alone, and not those of `steps`
  /// For keys of a cache.
  std::string key() const;
};

/// What one reading of the budget keeps (by QuestSemantics).
struct QuestChoice {
  std::vector<std::uint8_t> kept;  // [n_pages], 0 or 1
  double mass = 0.0;               // attention on the kept pages
  double recall = 0.0;             // share of the ten heaviest keys on them
};

/// The pages that one query sees. Bounds and maxima are unscaled q.k in f32, as results hold them.
struct QuestPages {
  Index query = 0;
  Index first_page = 0;
  Index page_size = 1;
  TokenRange visible;
  std::vector<float> bound;            // [n_pages]
  std::vector<float> true_max;         // [n_pages]
  std::vector<std::uint8_t> violated;  // [n_pages], 0 or 1
  std::array<QuestChoice, 2> choices;
  double gap_mean = 0.0;          // logits
  double rank_correlation = 0.0;  // Spearman over the pages; NaN where it is not defined
  Index best_rank = 0;            // place of the truly best page by the bound; 0 is first
  Index violations = 0;

  std::size_t n_pages() const { return bound.size(); }
  const QuestChoice& choice(QuestSemantics semantics) const {
    return choices[static_cast<std::size_t>(semantics)];
  }
  Index n_kept(QuestSemantics semantics) const;
  /// Visible positions of the page at `slot`.
  TokenRange keys_of(std::size_t slot) const;
  /// Slot of the page that holds a position; empty if the query does not see it.
  std::optional<std::size_t> slot_of(Index position) const;
  /// Slot of the page with the largest true maximum, the first among equals.
  std::size_t best() const;
};

/// The same for many steps of one head, or for one query.
struct QuestSteps {
  std::string trace;  // file name
  QuestRequest request;
  std::vector<QuestPages> steps;  // ascending by query
  bool decoded = false;           // decoded positions, else prompt positions
  double scale = 1.0;             // logits per unit of q.k
  Index violations = 0;
  std::size_t n_points() const;
  /// Page `n` of all of them, and its slot: points of the cloud stand for these numbers.
  std::pair<const QuestPages*, std::size_t> page(std::size_t n) const;
  std::size_t bytes() const;
};

/// analyze_quest over the head's KV group. Throws what that throws; for a single query ConfigError
/// if its position, layer or head was not recorded.
QuestSteps quest_steps(const TraceSource& trace, const QuestRequest& request, JobContext& job);

/// More points than this are thinned to one per cell of a fine grid, which the caption says.
inline constexpr std::size_t kMostCloudPoints = 20000;

/// Bound against true maximum with the line y = x. Kept pages stand apart from the others;
/// violations come on top and are never thinned. Points are of QuestSteps::page.
plot::Figure quest_cloud(const QuestSteps& steps, QuestSemantics semantics);

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
  Index query = 0;
  Index first_key = 0;
  std::string sentence;  // "query 17, page 3 (keys 48 to 63): bound ... below ..."
};

/// At most `most` of them.
std::vector<QuestViolation> quest_violations(const QuestSteps& steps, std::size_t most);

}  // namespace kvscope::gui
