// kvscope analyze theorem-b1: the bounds on the cosine of a key with its query.
#include "analysis/cli/inspect/analyze_one.hpp"
#include "analysis/kinds/theorem_b1.hpp"

namespace kvscope::cli {

KVSCOPE_COMMAND(
    202, AnalyzeOne<TheoremB1Options>, analyze_theorem_b1,
    AnalysisCard{
        .kind = "theorem-b1",
        .summary = "Theorem B.1: cosines against the printed and the repaired bounds",
        .columns = {{"rows", "rows"},
                    {"cos_mean", "mean cos"},
                    {"printed_violations", "printed violated"},
                    {"repaired_violations", "repaired violated"},
                    {"jensen_violations", "Jensen violated"},
                    {"worst_violations", "worst violated"},
                    {"jensen_mean_gap", "Jensen gap"},
                    {"worst_mean_gap", "worst gap"}},
        .headline = "{rows} rows: printed bound violated {printed_violations} times, repaired "
                    "{repaired_violations}, Jensen {jensen_violations}, worst case "
                    "{worst_violations}; mean Jensen gap {jensen_mean_gap:3}",
        .must_be_zero = "violations_of_proved_bounds",
        .has_items = true})

}  // namespace kvscope::cli
