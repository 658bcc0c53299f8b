// kvscope analyze quoka: QuoKA replayed on a recorded prefill.
#include <nlohmann/json.hpp>

#include "analysis/cli/analyze_one.hpp"
#include "analysis/quoka.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
namespace {

class AnalyzeQuoka final : public AnalyzeOne<QuokaOptions> {
 public:
  AnalyzeQuoka()
      : AnalyzeOne("quoka", "QuoKA: representative queries of a chunk, key scores, kept keys",
                   analyze_quoka) {}

 private:
  std::vector<Index> unit_layers(const Traces& traces) const override { return all_layers(traces); }
  std::vector<ReportColumn> columns() const override {
    return {{"mass_mean", "attention kept"},         {"mass_p05", "5th percentile"},
            {"oracle_recall", "oracle recall"},      {"sink_selected", "sink kept"},
            {"reduction_per_kv_head", "keys saved"}, {"pearson_log_mean", "r(S_q, log weight)"}};
  }
  std::string headline(const Json& totals) const override {
    if (totals.value("rows_where_the_budget_cuts", Index{1}) == 0)
      return "the budget covers the past keys of every chunk, or no layer is chosen from: nothing "
             "is left out, so nothing is measured; give a smaller --budget, or record more tokens";
    return fmt::format(
        "kept keys hold {} of the attention (5th percentile of the rows: {}) and save {} of the "
        "key reads",
        percent_text(total_of(totals, "mass_mean")), percent_text(total_of(totals, "mass_p05")),
        percent_text(total_of(totals, "reduction_per_kv_head")));
  }
};

}  // namespace

std::unique_ptr<Command> make_analyze_quoka_command() {
  return std::make_unique<AnalyzeQuoka>();
}

}  // namespace kvscope::cli
