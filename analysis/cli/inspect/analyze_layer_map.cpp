// kvscope analyze layer-map: which draft layer stands for which verifier layer.
#include <nlohmann/json.hpp>
#include "core/base/fields_json.hpp"

#include "analysis/cli/inspect/analyze_command.hpp"
#include "analysis/kinds/layer_map.hpp"

namespace kvscope::cli {
namespace {

AnalysisCard layer_map_card() {
  AnalysisCard card;
  card.kind = "layer-map";
  card.summary = "SpecAttn: KL(verifier || draft) of all layer pairs, layer maps";
  card.columns = {{"draft_layer", "mapped to"},           {"kl", "KL"},
                  {"total_variation", "total variation"}, {"pinsker_floor", "Pinsker floor"},
                  {"argmax_draft_layer", "nearest"},      {"argmax_kl", "its KL"}};
  card.headline =
      "mean KL of the mapped layers {kl_mean_mapped:3} nat; monotone map costs "
      "{monotone_cost:3}, the unconstrained one {argmax_cost:3}";
  return card;
}

class AnalyzeLayerMap final : public AnalyzeCommand {
 public:
  AnalyzeLayerMap() : AnalyzeCommand(layer_map_card(), /*n_traces=*/2) {}

 private:
  void declare_kind(OptionSet& options) override { options.fields(options_); }
  Json options_json() const override { return fields_to_json(options_); }
  Json call(const Traces& traces, const AnalysisRun& run) const override {
    return analyze_layer_map(traces[0], traces[1], options_, run);
  }

  LayerMapOptions options_;
};

}  // namespace

KVSCOPE_COMMAND(204, AnalyzeLayerMap)

}  // namespace kvscope::cli
