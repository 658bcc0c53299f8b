// kvscope analyze quest: page bounds against the true maxima.
#include <nlohmann/json.hpp>

#include "analysis/cli/analyze_one.hpp"
#include "analysis/quest_bounds.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
namespace {

class AnalyzeQuest final : public AnalyzeOne<QuestOptions> {
 public:
  AnalyzeQuest()
      : AnalyzeOne("quest", "Quest: page bounds against the true maxima, kept attention",
                   analyze_quest) {}

 private:
  std::vector<Index> unit_layers(const Traces& traces) const override { return all_layers(traces); }
  std::vector<ReportColumn> columns() const override {
    return {{"violations", "violated"},
            {"gap_mean", "bound gap"},
            {"rank_correlation", "rank corr."},
            {"eval_mass", "mass (eval)"},
            {"eval_best_page_kept", "best page kept"},
            {"kernel_mass", "mass (kernel)"},
            {"kernel_best_page_kept", "best page kept"},
            {"eval_reduction_per_kv_head", "keys saved"}};
  }
  std::string headline(const Json& totals) const override {
    return fmt::format(
        "bound violated {} times in {} rows; kept pages hold {} of the attention (kernel rule: {}) "
        "and save {} of the key reads",
        number_text(total_of(totals, "violations")), number_text(total_of(totals, "rows")),
        percent_text(total_of(totals, "eval_mass")), percent_text(total_of(totals, "kernel_mass")),
        percent_text(total_of(totals, "eval_reduction_per_kv_head")));
  }
  bool checks_bounds() const override { return true; }
  std::int64_t violations(const Json& totals) const override {
    return totals.value("violations", std::int64_t{0});
  }
};

}  // namespace

std::unique_ptr<Command> make_analyze_quest_command() {
  return std::make_unique<AnalyzeQuest>();
}

}  // namespace kvscope::cli
