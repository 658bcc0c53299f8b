// kvscope analyze quoka: QuoKA replayed on a recorded prefill.
#include <nlohmann/json.hpp>

#include "analysis/cli/inspect/analyze_one.hpp"
#include "analysis/kinds/quoka.hpp"

namespace kvscope::cli {
namespace {

AnalysisCard quoka_card() {
  AnalysisCard card;
  card.kind = "quoka";
  card.summary = "QuoKA: representative queries of a chunk, key scores, kept keys";
  card.columns = {
      {"mass_mean", "attention kept"},         {"mass_p05", "5th percentile"},
      {"oracle_recall", "oracle recall"},      {"sink_selected", "sink kept"},
      {"reduction_per_kv_head", "keys saved"}, {"pearson_log_mean", "r(S_q, log weight)"}};
  card.headline =
      "kept keys hold {mass_mean:%} of the attention (5th percentile of the rows: "
      "{mass_p05:%}) and save {reduction_per_kv_head:%} of the key reads";
  card.one_shape = true;
  card.has_items = true;
  return card;
}

class AnalyzeQuoka final : public AnalyzeOne<QuokaOptions> {
 public:
  AnalyzeQuoka() : AnalyzeOne(analyze_quoka, quoka_card()) {}

 private:
  std::string headline(const Json& totals) const override {
    if (totals.value("rows_where_the_budget_cuts", Index{1}) == 0)
      return "the budget covers the past keys of every chunk, or no layer is chosen from: nothing "
             "is left out, so nothing is measured; give a smaller --budget, or record more tokens";
    return AnalyzeOne::headline(totals);
  }
};

}  // namespace

KVSCOPE_COMMAND(201, AnalyzeQuoka)

}  // namespace kvscope::cli
