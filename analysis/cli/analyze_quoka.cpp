// kvscope analyze quoka: QuoKA replayed on a recorded prefill.
#include "analysis/cli/analyze_command.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/quoka.hpp"

namespace kvscope::cli {
namespace {

class AnalyzeQuoka final : public AnalyzeCommand {
 public:
  AnalyzeQuoka()
      : AnalyzeCommand("quoka", "QuoKA: queries that speak for a chunk, key scores, kept keys",
                       /*n_traces=*/1) {}

 private:
  void declare_kind(OptionSet& options) override { options.fields(options_); }
  Json options_json() const override { return fields_to_json(options_); }
  Json call(const Traces& traces, const AnalysisRun& run) const override {
    return analyze_quoka(traces[0], options_, run.sink, run.pool, run.progress, run.stop,
                         run.provenance);
  }
  std::vector<ReportColumn> columns() const override {
    return {{"mass_mean", "attention kept"},         {"mass_p05", "5th percentile"},
            {"oracle_recall", "oracle recall"},      {"sink_selected", "sink kept"},
            {"reduction_per_kv_head", "keys saved"}, {"pearson_log_mean", "r(S_q, log weight)"}};
  }
  std::string headline(const Json& totals) const override {
    return fmt::format(
        "kept keys hold {} of the attention (5th percentile of the rows: {}) and save {} of the "
        "key reads",
        percent(total_of(totals, "mass_mean")), percent(total_of(totals, "mass_p05")),
        percent(total_of(totals, "reduction_per_kv_head")));
  }

  QuokaOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_analyze_quoka_command() {
  return std::make_unique<AnalyzeQuoka>();
}

}  // namespace kvscope::cli
