// kvscope analyze coverage: where the attention lies, what selections keep of it, how few keys
// would do.
#include "core/base/fields_json.hpp"

#include <filesystem>

#include "analysis/base/mapped.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/inspect/analyze_command.hpp"
#include "analysis/cli/runs/replay_arguments.hpp"
#include "analysis/kinds/coverage.hpp"
#include "core/base/json.hpp"
#include "core/base/lists.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

/// "0.5,0.9" as numbers; the analysis checks their range.
std::vector<double> parse_shares(std::string_view text) {
  std::vector<double> shares;
  for (const std::string& word : split_words(text, ',')) {
    double share = 0.0;
    detail::set_value("--p", word, share);
    shares.push_back(share);
  }
  return shares;
}

AnalysisCard coverage_card() {
  AnalysisCard card;
  card.kind = "coverage";
  card.summary = "attention kept per layer, head and page; nucleus sizes, smallest budgets";
  card.columns = {{"keys p=0.5", "{nucleus_0.5}"},
                  {"p=0.9", "{nucleus_0.9}"},
                  {"p=0.99", "{nucleus_0.99}"},
                  {"target: mean", "{budget_mean}"},
                  {"p95", "{budget_p95}"},
                  {"max", "{budget_max}"},
                  {"shared", "{budget_shared}"},
                  {"KL to draft", "{kl}"},
                  {"Pinsker floor", "{pinsker_floor}"},
                  {"TV floor", "{tv_floor}"},
                  {"on nucleus", "{nucleus_mass}"},
                  {"SpecAttn", "{specattn_mass}"},
                  {"keys kept", "{specattn_kept}"},
                  {"violated", "{violations}"}};
  card.must_be_zero = "violations";
  card.more_of = "pairs";
  card.more = {{"selection", "{pair}"},          {"kept keys", "{kept_keys}"},
               {"mass", "{mass_mean}"},          {"p5 by layer", "{mass_p05}"},
               {"worst layer", "{worst_layer}"}, {"head", "{worst_head}"},
               {"its mass", "{worst_mass}"}};
  return card;
}

class AnalyzeCoverage final : public AnalyzeCommand {
 public:
  AnalyzeCoverage() : AnalyzeCommand(coverage_card()) {}
  CommandCard card() const override {
    return {"analyze coverage",
            kind_card().summary,
            "Replays selectors on the recorded q, k and v and maps what they keep of the true "
            "attention: layer x head, and query block x page. Counts how many keys hold a share p "
            "of a row's attention (nucleus sizes) and the smallest budgets with which an oracle "
            "keeps the target mass: per row (mean, p95, max) and one budget shared by all rows and "
            "heads of a layer, by mean mass. With --draft also SpecAttn's kept mass and its "
            "lower bound p - sqrt(KL / 2) from Pinsker's inequality. Maps and distributions go "
            "to --out. Exit code 5 if the bound was violated.",
            {{"kvscope analyze coverage trace.h5", "nucleus sizes and smallest budgets"},
             {"kvscope analyze coverage trace.h5 --selector quoka,quest --budget 64,128 --out c.h5",
              "four selections, their heat maps to a file"},
             {"kvscope analyze coverage verifier.h5 --draft draft.h5 --nucleus 0.97",
              "SpecAttn against its Pinsker bound"}}};
  }

 private:
  void declare_kind(OptionSet& options) override {
    options.add("draft", "TRACE", "the draft model's trace over the same tokens", draft_);
    replay_.declare(options);
    options.add("p", "LIST", "shares whose nucleus sizes are counted [0.5,0.8,0.9,0.95,0.99]",
                shares_);
    options.fields(options_);
  }
  CoverageOptions coverage_options() const {
    CoverageOptions options = options_;
    options.selectors = replay_.selectors();
    options.budgets = replay_.budgets();
    options.replay = replay_.replay();
    options.layers = replay_.layers();
    if (shares_) options.shares = parse_shares(*shares_);
    return options;
  }
  std::optional<fs::path> other_trace() const override { return draft_; }
  std::vector<MethodSpec> methods() const override { return coverage_options().selectors; }
  Json options_json() const override {
    const CoverageOptions options = coverage_options();
    const auto selectors = mapped<std::string>(options.selectors, &MethodSpec::text);
    Json json = {{"draft", draft_ ? Json(draft_->string()) : Json(nullptr)},
                 {"selectors", selectors},
                 {"p", options.shares}};
    for (const Budget& budget : options.budgets) json["budgets"].push_back(budget.to_string());
    json["phase"] = std::string(enum_name(options.replay.calls.phase));
    json.update(fields_to_json(options));
    return json;
  }
  Json call(const Traces& traces, const AnalysisRun& run) const override {
    const CoverageOptions options = coverage_options();
    std::optional<TraceFile> draft;
    if (draft_) {
      draft.emplace(TraceFile::open(*draft_, {}));
      for (const auto& warning : draft->warnings())
        note("kvscope: {}: {}", draft_->string(), warning);
    }
    return analyze_coverage(traces[0], draft ? &*draft : nullptr, options, run);
  }

  std::string headline(const Json& totals) const override {
    Json told = totals;
    told["of"] =
        totals.value("has_sinks", false) ? "what keys get beside sink logits" : "the attention";
    const std::string budget = filled_in(
        "an oracle needs {budget_mean} keys per row for {target_mass:%} of {of} ({budget_max} in "
        "the worst row); one budget for all: {budget_shared}",
        told);
    if (!totals.contains("specattn_mass")) return budget;
    return budget +
           filled_in(
               "; SpecAttn, one list for all heads, keeps {specattn_mass:%} of what all of them "
               "attend to, floor {pinsker_floor:%}, violated {violations} times",
               totals);
  }

  std::optional<fs::path> draft_;
  std::optional<std::string> shares_;
  ReplayArguments replay_;
  CoverageOptions options_;
};

}  // namespace

KVSCOPE_COMMAND(207, AnalyzeCoverage)

}  // namespace kvscope::cli
