// Quest on one decode step of one KV group: bounds, true page maxima, and what the selected pages
// hold.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/quest_bounds.hpp"
#include "core/attention/page_bounds.hpp"
#include "core/attention/score_rows.hpp"

namespace kvscope {

inline constexpr std::array<QuestSemantics, 2> kQuestSemantics = {QuestSemantics::eval,
                                                                  QuestSemantics::kernel};
inline constexpr std::array<std::string_view, 2> kQuestSemanticsNames = {"eval", "kernel"};

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
  double gap_mean = 0.0;  // mean of scale * (U - true maximum), logits
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

/// q: the position's query per head of the group, each [d_head]; keys: those of `boxes`, unscaled.
QuestGroupStep quest_group_step(std::span<const std::span<const float>> q, const PageBoxes& boxes,
                                const KeyTable& keys, TokenRange visible, double scale,
                                const QuestOptions& options, ScoreRows& scratch);

}  // namespace kvscope
