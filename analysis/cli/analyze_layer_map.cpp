// kvscope analyze layer-map: which draft layer stands for which verifier layer.
#include <nlohmann/json.hpp>
#include "core/base/fields_json.hpp"

#include "analysis/cli/analyze_command.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/layer_map.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
namespace {

class AnalyzeLayerMap final : public AnalyzeCommand {
 public:
  AnalyzeLayerMap()
      : AnalyzeCommand("layer-map",
                       "SpecAttn: KL(verifier || draft) of all layer pairs, layer maps",
                       /*n_traces=*/2) {}

 private:
  void declare_kind(OptionSet& options) override { options.fields(options_); }
  Json options_json() const override { return fields_to_json(options_); }
  Json call(const Traces& traces, const AnalysisRun& run) const override {
    return analyze_layer_map(traces[0], traces[1], options_, run.output, run.pool, run.progress,
                             run.stop, run.provenance);
  }
  std::vector<ReportColumn> columns() const override {
    return {{"draft_layer", "mapped to"},           {"kl", "KL"},
            {"total_variation", "total variation"}, {"pinsker_floor", "Pinsker floor"},
            {"argmax_draft_layer", "nearest"},      {"argmax_kl", "its KL"}};
  }
  std::string headline(const Json& totals) const override {
    return fmt::format(
        "mean KL of the mapped layers {} nat; monotone map costs {}, the unconstrained one {}",
        number_text(total_of(totals, "kl_mean_mapped"), 3),
        number_text(total_of(totals, "monotone_cost"), 3),
        number_text(total_of(totals, "argmax_cost"), 3));
  }

  LayerMapOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_analyze_layer_map_command() {
  return std::make_unique<AnalyzeLayerMap>();
}

}  // namespace kvscope::cli
