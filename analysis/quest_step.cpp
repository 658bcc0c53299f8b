#include "analysis/quest_step.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "analysis/statistics.hpp"
#include "core/attention/exact_rows.hpp"
#include "core/attention/topk.hpp"

namespace kvscope {

namespace {

constexpr Index kRecallKeys = 10;  // the "top-10 recall" of Quest's figure 4

/// Bounds and true maxima of every visible page, and how they compare.
QuestHeadStep measure_pages(std::span<const float> q, const PageBoxes& boxes, TokenRange visible,
                            std::span<const double> dots, double scale) {
  QuestHeadStep head;
  const TokenRange pages = boxes.pages_of(visible);
  head.first_page = pages.begin;
  Mean gap;
  for (Index page = pages.begin; page < pages.end; ++page) {
    const TokenRange keys = boxes.keys_of(page, visible);
    const PageBoxes::Bound bound = boxes.bound(q, page, visible);
    const double truth = max_of(dots.subspan(static_cast<std::size_t>(keys.begin - visible.begin),
                                             static_cast<std::size_t>(keys.size())));
    const bool is_violated = bound.value < truth - bound.slack;
    head.violated.push_back(is_violated ? 1 : 0);
    head.violations += is_violated ? 1 : 0;
    head.bound.push_back(bound.value);
    head.true_max.push_back(truth);
    gap.add(scale * (bound.value - truth));
  }
  const Index best = arg_max(head.true_max);
  head.gap_mean = gap.value();
  head.gap_best = scale * (head.bound[static_cast<std::size_t>(best)] -
                           head.true_max[static_cast<std::size_t>(best)]);
  head.rank_correlation = spearman(head.bound, head.true_max);
  head.best_rank = rank_of(head.bound, best);
  return head;
}

/// The values that pages are ranked by: each head's own bounds, or the group's.
std::vector<double> ranking_of(const std::vector<QuestHeadStep>& heads, std::size_t head,
                               GroupShared shared) {
  if (shared == GroupShared::none) return heads[head].bound;
  std::vector<double> ranking = heads[0].bound;
  for (std::size_t h = 1; h < heads.size(); ++h) {
    for (std::size_t p = 0; p < ranking.size(); ++p) {
      ranking[p] = shared == GroupShared::max ? std::max(ranking[p], heads[h].bound[p])
                                              : ranking[p] + heads[h].bound[p];
    }
  }
  if (shared == GroupShared::mean) {
    for (double& value : ranking) value /= static_cast<double>(heads.size());
  }
  return ranking;
}

/// Mass and recall of the pages at `selected` (counted from the first visible page).
QuestKept measure_kept(const QuestHeadStep& head, std::span<const Index> selected,
                       const PageBoxes& boxes, TokenRange visible, std::span<const double> probs,
                       std::span<const Index> heaviest) {
  QuestKept kept;
  std::vector<char> is_kept(head.bound.size(), 0);
  for (Index index : selected) {
    const Index page = head.first_page + index;
    const TokenRange keys = boxes.keys_of(page, visible);
    kept.pages.push_back(page);
    kept.loaded += keys.size();
    kept.mass += sum_of(probs.subspan(static_cast<std::size_t>(keys.begin - visible.begin),
                                      static_cast<std::size_t>(keys.size())));
    is_kept[static_cast<std::size_t>(index)] = 1;
  }
  Index hits = 0;
  for (Index key : heaviest) {
    const Index page = (visible.begin + key) / boxes.page_size();
    hits += is_kept[static_cast<std::size_t>(page - head.first_page)];
  }
  kept.recall = static_cast<double>(hits) / static_cast<double>(heaviest.size());
  kept.best_kept = is_kept[static_cast<std::size_t>(arg_max(head.true_max))] != 0;
  return kept;
}

}  // namespace

QuestGroupStep quest_group_step(std::span<const std::span<const float>> q, const PageBoxes& boxes,
                                const KeyTable& keys, TokenRange visible, double scale,
                                const QuestOptions& options, ScoreRows& scratch) {
  const auto n_heads = static_cast<Index>(q.size());
  scratch.compute(widened_rows(q), n_heads, keys, visible);

  QuestGroupStep step;
  for (Index h = 0; h < n_heads; ++h) {
    step.heads.push_back(measure_pages(q[static_cast<std::size_t>(h)], boxes, visible,
                                       scratch.row(h, visible), scale));
  }
  std::array<std::set<Index>, 2> loaded_pages;
  for (std::size_t h = 0; h < q.size(); ++h) {
    const std::span<double> probs = scratch.row(static_cast<Index>(h), visible);
    const std::vector<Index> heaviest = top_k(probs, kRecallKeys);
    for (double& value : probs) value *= scale;
    softmax_in_place(probs);
    const std::vector<double> ranking = ranking_of(step.heads, h, options.group_shared);
    for (std::size_t s = 0; s < kQuestSemantics.size(); ++s) {
      const std::vector<Index> selected = quest_select_pages(
          kQuestSemantics[s], ranking, options.budget, boxes.page_size(), visible.size());
      QuestKept& kept = step.heads[h].kept[s];
      kept = measure_kept(step.heads[h], selected, boxes, visible, probs, heaviest);
      loaded_pages[s].insert(kept.pages.begin(), kept.pages.end());
    }
  }
  for (std::size_t s = 0; s < kQuestSemantics.size(); ++s) {
    for (Index page : loaded_pages[s]) step.union_loaded[s] += boxes.keys_of(page, visible).size();
  }
  return step;
}

}  // namespace kvscope
