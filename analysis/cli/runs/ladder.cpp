// kvscope ladder: what each restriction of a serving engine costs a method.
#include "analysis/kinds/ladder.hpp"

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/inspect/analyze_command.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"

namespace kvscope::cli {
namespace {

AnalysisCard ladder_card() {
  AnalysisCard card;
  card.kind = "ladder";
  card.summary = "what each simplification in a serving engine costs a method";
  card.columns = {{"mass", "{mass}"},
                  {"output error", "{output_error}"},
                  {"bytes", "{bytes}"},
                  {"all: mass", "{together_mass}"},
                  {"output error", "{together_output_error}"},
                  {"bytes", "{together_bytes}"}};
  card.more_of = "rows";
  card.more = {{"level", "{rung}"},
               {"mass", "{mass}"},
               {"output error", "{output_error}"},
               {"keys", "{kept}"},
               {"KiB", "{bytes:KiB}"},
               {"together: mass", "{together_mass}"},
               {"output error", "{together_output_error}"},
               {"keys", "{together_kept}"},
               {"KiB", "{together_bytes:KiB}"},
               {"with a tie", "{tie_share:%}?"},
               {"keys changed", "{tie_changed}?"},
               {"", "not taken: {refused}?"},
               {"", "not together: {together_refused}?"}};
  return card;
}

class LadderCommand final : public AnalyzeCommand {
 public:
  LadderCommand() : AnalyzeCommand(ladder_card()) {}
  CommandCard card() const override {
    return {
        "ladder",
        kind_card().summary,
        "Papers choose tokens per query head, for every query, by exact scores; engines share "
        "a list among heads, load whole pages, choose at some steps, rank by scores of few "
        "bits or by a mean query, and share a list among the queries of a chunk. Each of "
        "these simplifications is replayed alone, and together with those before it, on the "
        "recorded q, k and v at the same queries: kept attention, output error, bytes read. "
        "For scores of few bits it counts the lists with ties at the cut, and the keys that those "
        "ties decide. What cannot be applied to a method is named with the "
        "reason. Each is also a method for other commands, as quest+coarsen:owner=layer,page=64 "
        "or quest+every=4. kvscope figure ladder draws the result.",
        {{"kvscope ladder trace.h5 --selector quest --budget 256 --out ladder.h5",
          "Quest's ladder, arrays to a file"},
         {"kvscope ladder trace.h5 --selector quest:page-size=1,pages=frontier --budget 256",
          "a method that ranks single tokens takes all levels of pages"}}};
  }

 private:
  void declare_kind(OptionSet& options) override {
    options.add("selector", "NAME", "the method, with options as NAME:option=value", selector_)
        .needed("expected a method, as quest");
    options.add("budget", "BUDGET", "tokens=256, ratio=0.1, ...; a bare number is tokens", budget_);
    options.add("layers", "LIST", "layers to include, as 0,4-7 [all]", layers_);
    options.fields(options_);
  }
  LadderOptions ladder_options() const {
    if (const std::size_t comma = selector_.find(','); comma < selector_.find(':'))
      throw UsageError("--selector: a ladder is of one method, found \"{}\"", selector_);
    LadderOptions options = options_;
    options.selector = selector_;
    if (budget_) options.budget = Budget::parse(*budget_);
    if (layers_) options.layers = index_list_of(*layers_, "layers");
    return options;
  }
  std::vector<MethodSpec> methods() const override { return {ladder_options().selector}; }
  std::vector<Index> item_layers(const Traces& traces) const override {
    const LadderOptions options = ladder_options();
    if (options.selector.caps().cross_layer) return {};
    return ladder_layers(traces[0].info(), options);
  }
  Json options_json() const override {
    const LadderOptions options = ladder_options();
    Json json = {{"selector", options.selector.text()},
                 {"budget", options.budget ? Json(options.budget->to_string()) : Json(nullptr)},
                 {"layers", layers_ ? Json(options.layers) : Json(nullptr)}};
    json.update(fields_to_json(options));
    return json;
  }
  Json call(const Traces& traces, const AnalysisRun& run) const override {
    return analyze_ladder(traces[0], ladder_options(), run);
  }
  std::string headline(const Json& totals) const override {
    return selector_ +
           filled_in(
               " keeps {mass:%} of the attention as it is, {together_mass:%} with "
               "every restriction that it can take but the chunk (means over {queries} queries)",
               totals);
  }

  std::string selector_;
  std::optional<std::string> budget_;
  std::optional<std::string> layers_;
  LadderOptions options_;
};

}  // namespace

KVSCOPE_COMMAND(340, LadderCommand)

}  // namespace kvscope::cli
