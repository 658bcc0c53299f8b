// oracle-pages: the best whole pages, from exact attention. The ceiling of every method that keeps
// pages.
//
// Idea: rank pages by the attention their tokens really get (score=mass), or by their largest exact
// score (score=max, the oracle of Quest's figure 3), and keep the best whole pages under Quest's
// page rules.
//
// Cost: full scoring, 2 n_q n_tok T d FLOPs and one read of all keys. Stores nothing.
//
// Not a method: it looks at what it should predict. score=mass keeps the most attention per row in
// decode with lists per query head; shared lists (chunks, groups) keep the most in the mean over
// rows and heads.
#include <algorithm>
#include <limits>

#include "core/selectors/cost_units.hpp"
#include "core/selectors/page_lists.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

enum class PageScore { mass, max };

class OraclePages final : public PageSelector {
 public:
  OraclePages() : PageSelector(/*n_dense=*/0) {}
  PageScore score_ = option(score_, "score", PageScore::mass,
                            "a page's exact attention, or its largest exact score");

  HostRows host_rows() const override { return HostRows::none; }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    return exact_scoring_cost(call, call_range(call), call.n_tok);
  }

 protected:
  void page_scores(const SelectCall& call, const ListHeads& heads, TokenRange pages,
                   ScoreWorker& worker, std::span<const std::span<double>> rows) override {
    const std::span<double> scores = rows.front();
    const bool takes_max = owner_ == PageOwner::group_max && call.n_tok == 1;
    std::fill(scores.begin(), scores.end(),
              takes_max ? -std::numeric_limits<double>::infinity() : 0.0);
    for (Index q_head = heads.q_heads.begin; q_head < heads.q_heads.end; ++q_head) {
      for_each_score_row(call, q_head, heads.kv_head, all_rows(call), worker.dots,
                         [&](Index row, std::span<double> values) {
                           const std::vector<double> row_scores =
                               scores_of_row(call, q_head, heads.kv_head, row, values, pages);
                           for (std::size_t p = 0; p < scores.size(); ++p) {
                             scores[p] = takes_max ? std::max(scores[p], row_scores[p])
                                                   : scores[p] + row_scores[p];
                           }
                         });
    }
  }

 private:
  std::vector<double> scores_of_row(const SelectCall& call, Index q_head, Index kv_head, Index row,
                                    std::span<double> values, TokenRange pages) const {
    const TokenRange visible = row_range(call, row);
    const bool takes_mass = score_ == PageScore::mass;
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    if (takes_mass) {
      softmax_over_visible(call, kv_head, row, visible, values, sink_logit_of(call, q_head));
    } else {
      mask_dead(call, kv_head, visible, values);
    }
    std::vector<double> scores(static_cast<std::size_t>(pages.size()), takes_mass ? 0.0 : kNone);
    const Index end = std::min(pages.end * page_size_, visible.end);
    for (Index pos = visible.begin; pos < end; ++pos) {
      double& score = scores[static_cast<std::size_t>(pos / page_size_ - pages.begin)];
      const double value = values[static_cast<std::size_t>(pos - visible.begin)];
      score = takes_mass ? score + value : std::max(score, value);
    }
    return scores;
  }
};

}  // namespace

void register_oracle_pages(SelectorRegistry& registry) {
  registry.add<OraclePages>("oracle-pages", "Oracle: the best pages", "control",
                            "keeps the pages that really get the most attention");
}

}  // namespace kvscope
