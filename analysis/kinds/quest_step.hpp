// Quest on one decode step of one KV group: the bounds that the selector went by, true page maxima,
// and what the pages that it selects hold.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "analysis/kinds/quest_bounds.hpp"
#include "core/attention/score_rows.hpp"
#include "core/selectors/score_engine.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

/// Quest's two published programs, by the selector's names of how many pages a budget buys.
enum class QuestSemantics {
  eval,    // accuracy tables: at least three pages, and every page competes
  kernel,  // speed figures: the last page is always among them
};
inline constexpr std::array<QuestSemantics, 2> kQuestSemantics = {QuestSemantics::eval,
                                                                  QuestSemantics::kernel};
inline constexpr auto kQuestSemanticsNames = EnumNames<QuestSemantics>::value;

/// What one selection keeps.
struct QuestKept {
  std::vector<Index> pages;  // absolute page numbers, ascending
  Index loaded = 0;          // visible tokens of those pages
  double mass = 0.0;         // true probability on them
  double recall = 0.0;       // share of the ten heaviest keys (fewer if fewer are visible)
  bool best_kept = false;    // the page with the truly largest score is among them
};

/// One query head in one step.
struct QuestHeadStep {
  Index first_page = 0;          // number of the first visible page
  std::vector<double> bound;     // U, unscaled, [n_pages]
  std::vector<double> true_max;  // max q.k over the page's visible keys, [n_pages]
  /// 1 where the bound is below the true maximum by more than rounding, [n_pages]
  std::vector<std::uint8_t> violated;
  Index violations = 0;   // how many those are
  double gap_mean = 0.0;  // mean of scale * (U - true maximum), logits before a soft cap
  double gap_best = 0.0;  // the same at the truly best page
  double rank_correlation = 0.0;
  Index best_rank = 0;            // 0 if the truly best page has the largest bound
  std::array<QuestKept, 2> kept;  // by kQuestSemantics
};

/// All heads of a KV group at position `pos`.
struct QuestGroupStep {
  std::vector<QuestHeadStep> heads;
  std::array<Index, 2> union_loaded{};  // tokens that the KV head must load for all its query heads
};

/// One KV group at one position. Keys are those of the KV head from position 0.
struct QuestQuestion {
  Index layer = 0;
  Index pos = 0;
  TensorView<const float> q;  // [group, 1, d_head]
  TensorView<const float> k;  // [> pos, d_head]
  const KeyTable& keys;       // of k
  std::optional<Index> window;
  ScoreRule score;
};

/// Asks the selector, for one thread. It keeps the boxes of one KV head's pages.
class QuestStepper {
 public:
  explicit QuestStepper(const QuestOptions& options);

  QuestGroupStep measure(const QuestQuestion& question);

 private:
  Index page_size_;
  Budget budget_;
  bool shares_lists_;
  std::unique_ptr<Selector> per_head_;                  // their own bounds, if they share lists
  std::array<std::unique_ptr<Selector>, 2> selectors_;  // by kQuestSemantics
  ScoreEngine engine_;
  ScoreRows rows_;
};

/// The positions that an analysis looks at. Throws ConfigError if there is none.
std::vector<Index> quest_step_positions(const TraceSource& trace, const QuestOptions& options);

/// Measures one KV group of a layer at these positions, ascending; `visit` gets the slot of each,
/// from several threads. The trace holds the group whole. Throws Interrupted on a stop.
void for_each_quest_step(const TraceSource& trace, const QuestOptions& options, Index layer,
                         std::size_t kv_slot, std::span<const Index> positions, ThreadPool& pool,
                         std::stop_token stop,
                         const std::function<void(Index, const QuestGroupStep&)>& visit);

}  // namespace kvscope
