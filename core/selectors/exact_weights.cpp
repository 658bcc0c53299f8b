#include "core/selectors/exact_weights.hpp"

#include "core/selectors/owners.hpp"
#include "core/selectors/shared_scores.hpp"

namespace kvscope {

std::vector<Selection> select_by_exact_weights(const SelectCall& call, std::size_t n_selections,
                                               const PickByWeights& pick) {
  return select_by_owner(
      call, ListOwner::q_head, /*rows_per_list=*/1, n_selections,
      [&](const ListHeads& heads, ScoreWorker& worker, std::span<Selection> selections) {
        const Index q_head = heads.index;
        std::vector<float> weights;
        for_each_score_row(call, q_head, heads.kv_head, all_rows(call), worker.dots,
                           [&](Index row, std::span<double> values) {
                             const TokenRange visible = row_range(call, row);
                             softmax_over_visible(call, heads.kv_head, row, visible, values,
                                                  sink_logit_of(call, q_head));
                             weights.assign(values.begin(), values.end());
                             for (std::size_t i = 0; i < selections.size(); ++i) {
                               KeyList list;
                               for (const Index key : pick({heads.kv_head, visible, weights}, i))
                                 list.scored.push_back(static_cast<KeyPos>(visible.begin + key));
                               selections[i].add(list);
                             }
                           });
      });
}

}  // namespace kvscope
