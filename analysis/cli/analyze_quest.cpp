// kvscope analyze quest: page bounds against the true maxima.
#include "analysis/cli/analyze_one.hpp"
#include "analysis/kinds/quest_bounds.hpp"

namespace kvscope::cli {

std::unique_ptr<Command> make_analyze_quest_command() {
  AnalysisCard card;
  card.kind = "quest";
  card.place = 3;
  card.summary = "Quest: page bounds against the true maxima, kept attention";
  card.columns = {{"violations", "violated"},
                  {"gap_mean", "bound gap"},
                  {"rank_correlation", "rank corr."},
                  {"eval_mass", "mass (eval)"},
                  {"eval_best_page_kept", "best page kept"},
                  {"kernel_mass", "mass (kernel)"},
                  {"kernel_best_page_kept", "best page kept"},
                  {"eval_reduction_per_kv_head", "keys saved"}};
  card.headline =
      "bound violated {violations} times in {rows} rows; kept pages hold {eval_mass:%} "
      "of the attention (kernel rule: {kernel_mass:%}) and save "
      "{eval_reduction_per_kv_head:%} of the key reads";
  card.must_be_zero = "violations";
  card.has_units = true;
  return std::make_unique<AnalyzeOne<QuestOptions>>(analyze_quest, std::move(card));
}

}  // namespace kvscope::cli
