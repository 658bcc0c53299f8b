// kvscope analyze theorem-b1: the bounds on the cosine of a key with its query.
#include <nlohmann/json.hpp>

#include "analysis/cli/analyze_one.hpp"
#include "analysis/theorem_b1.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
namespace {

class AnalyzeTheoremB1 final : public AnalyzeOne<TheoremB1Options> {
 public:
  AnalyzeTheoremB1()
      : AnalyzeOne("theorem-b1", "Theorem B.1: cosines against the printed and the repaired bounds",
                   analyze_theorem_b1) {}

 private:
  std::vector<Index> unit_layers(const Traces& traces) const override { return all_layers(traces); }
  std::vector<ReportColumn> columns() const override {
    return {{"rows", "rows"},
            {"cos_mean", "mean cos"},
            {"printed_violations", "printed violated"},
            {"repaired_violations", "repaired violated"},
            {"jensen_violations", "Jensen violated"},
            {"worst_violations", "worst violated"},
            {"jensen_mean_gap", "Jensen gap"},
            {"worst_mean_gap", "worst gap"}};
  }
  std::string headline(const Json& totals) const override {
    return fmt::format(
        "{} rows: printed bound violated {} times, repaired {}, Jensen {}, worst case {}; mean "
        "Jensen gap {}",
        number_text(total_of(totals, "rows")), number_text(total_of(totals, "printed_violations")),
        number_text(total_of(totals, "repaired_violations")),
        number_text(total_of(totals, "jensen_violations")),
        number_text(total_of(totals, "worst_violations")),
        number_text(total_of(totals, "jensen_mean_gap"), 3));
  }
  bool checks_bounds() const override { return true; }
  std::int64_t violations(const Json& totals) const override {
    return totals.value("violations_of_proved_bounds", std::int64_t{0});
  }
};

}  // namespace

std::unique_ptr<Command> make_analyze_theorem_b1_command() {
  return std::make_unique<AnalyzeTheoremB1>();
}

}  // namespace kvscope::cli
