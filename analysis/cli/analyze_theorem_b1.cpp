// kvscope analyze theorem-b1: the bounds on the cosine of a key with its query.
#include "analysis/cli/analyze_one.hpp"
#include "analysis/kinds/theorem_b1.hpp"

namespace kvscope::cli {

std::unique_ptr<Command> make_analyze_theorem_b1_command() {
  AnalysisCard card;
  card.kind = "theorem-b1";
  card.place = 2;
  card.summary = "Theorem B.1: cosines against the printed and the repaired bounds";
  card.columns = {{"rows", "rows"},
                  {"cos_mean", "mean cos"},
                  {"printed_violations", "printed violated"},
                  {"repaired_violations", "repaired violated"},
                  {"jensen_violations", "Jensen violated"},
                  {"worst_violations", "worst violated"},
                  {"jensen_mean_gap", "Jensen gap"},
                  {"worst_mean_gap", "worst gap"}};
  card.headline =
      "{rows} rows: printed bound violated {printed_violations} times, repaired "
      "{repaired_violations}, Jensen {jensen_violations}, worst case "
      "{worst_violations}; mean Jensen gap {jensen_mean_gap:3}";
  card.must_be_zero = "violations_of_proved_bounds";
  card.has_units = true;
  return std::make_unique<AnalyzeOne<TheoremB1Options>>(analyze_theorem_b1, std::move(card));
}

}  // namespace kvscope::cli
