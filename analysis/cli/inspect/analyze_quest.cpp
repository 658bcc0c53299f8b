// kvscope analyze quest: page bounds against the true maxima.
#include "analysis/cli/inspect/analyze_one.hpp"
#include "analysis/kinds/quest_bounds.hpp"

namespace kvscope::cli {

KVSCOPE_COMMAND(
    203, AnalyzeOne<QuestOptions>, analyze_quest,
    AnalysisCard{
        .kind = "quest",
        .summary = "Quest: page bounds against the true maxima, kept attention",
        .columns = {{"violations", "violated"},
                    {"gap_mean", "bound gap"},
                    {"rank_correlation", "rank corr."},
                    {"eval_mass", "mass (eval)"},
                    {"eval_best_page_kept", "best page kept"},
                    {"kernel_mass", "mass (kernel)"},
                    {"kernel_best_page_kept", "best page kept"},
                    {"eval_reduction_per_kv_head", "keys saved"}},
        .headline =
            "bound violated {violations} times in {rows} rows; kept pages hold {eval_mass:%} "
            "of the attention (kernel rule: {kernel_mass:%}) and save "
            "{eval_reduction_per_kv_head:%} of the key reads",
        .must_be_zero = "violations",
        .one_shape = true,
        .has_items = true})

}  // namespace kvscope::cli
