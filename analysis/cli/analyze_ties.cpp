// kvscope analyze ties: how often the cut of a top-k lies among equal scores, and what their order
// decides.
#include "core/base/fields_json.hpp"

#include "analysis/cli/analyze_command.hpp"
#include "analysis/cli/kit.hpp"
#include "analysis/cli/list_options.hpp"
#include "analysis/cli/model_source.hpp"
#include "analysis/kinds/ties.hpp"
#include "core/model/model_hash.hpp"
#include "core/selectors/spec_lists.hpp"

namespace kvscope::cli {
namespace {

AnalysisCard ties_card() {
  AnalysisCard card;
  card.kind = "ties";
  card.summary = "ties at the cut of a top-k, by number type of scores and page size";
  card.about =
      "Engines rank keys by scores of f32, bf16 or fp8 (e4m3, with a power of two as scale of a "
      "row). Where the k-th and the next score are equal, either may come in, and programs "
      "differ. For each method, number type and size of pages: rows with such a tie, how many "
      "units are tied, how many keys change between the two extreme orders, and the gap between "
      "the k-th and the next exact score in steps of the type.";
  card.columns = {
      {"tie_share_f32", "with a tie, f32"}, {"tie_share_bf16", "bf16"}, {"tie_share_fp8", "fp8"},
      {"changed_f32", "keys changed, f32"}, {"changed_bf16", "bf16"},   {"changed_fp8", "fp8"}};
  return card;
}

class AnalyzeTies final : public AnalyzeCommand {
 public:
  AnalyzeTies() : AnalyzeCommand(ties_card()) {}
  std::vector<Example> examples() const override {
    return {{"kvscope analyze ties trace.h5 --out ties.h5", "five methods at 256 tokens"},
            {"kvscope analyze ties trace.h5 --selector quoka,quest:page-size=32 --budget 128 "
             "--steps 64",
             "two methods, every step of 64"},
            {"kvscope analyze ties trace.h5 --model verifier --new-tokens 200",
             "also decodes with both orders: change of logits, first differing token"}};
  }

 private:
  void declare_kind(OptionSet& options) override {
    options.add("selector", "NAME[,NAME]",
                "methods that give a score per key or page "
                "[quest,quoka,loki,sparq:mean-value=false,oracle-topk]",
                selectors_);
    options.add("budget", "BUDGET", "tokens=256, ratio=0.1, ...; a bare number is tokens [256]",
                budget_);
    options.add("layers", "LIST", "layers to include, as 0,4-7 [all]", layers_);
    options.add("model", "DIR",
                "the recorded model (verifier, draft or a folder): decodes on after the prompt "
                "with both orders of ties",
                model_);
    options.fields(options_);
  }
  TiesOptions ties_options() const {
    TiesOptions options = options_;
    options.selectors = selectors_of(selectors_);
    if (budget_) options.budget = Budget::parse(*budget_);
    if (layers_) options.layers = index_list_of(*layers_, "layers");
    return options;
  }
  Json options_json() const override {
    const TiesOptions options = ties_options();
    Json json = {{"selectors", Json::array()},
                 {"budget", options.budget.to_string()},
                 {"layers", layers_ ? Json(options.layers) : Json(nullptr)},
                 {"model", model_ ? Json(*model_) : Json(nullptr)}};
    if (model_) json["model_hash"] = model_hash(model_dir(*model_));
    for (const MethodSpec& method :
         options.selectors.empty() ? default_tie_methods() : options.selectors)
      json["selectors"].push_back(method.text());
    json.update(fields_to_json(options));
    return json;
  }
  Json call(const Traces& traces, const AnalysisRun& run) const override {
    TiesOptions options = ties_options();
    std::optional<Transformer> model;
    if (model_) {
      model.emplace(load_transformer(model_dir(*model_), {}));
      options.model = &*model;
    }
    return analyze_ties(traces[0], options, run);
  }
  std::string more_text(const Json& summary) const override {
    TextTable table({"method", "ranks", "scores", "rows", "with a tie", "tied set", "keys changed",
                     "gap below a step", "median gap", ""});
    for (const Json& row : summary["rows"]) {
      const auto page = row["page"].get<Index>();
      table.add_row({row["selector"].get<std::string>(),
                     page == 1 ? std::string("tokens") : fmt::format("pages of {}", page),
                     row["scores"].get<std::string>(), number_cell(row, "rows"),
                     percent_cell(row, "tie_share"), number_cell(row, "tied"),
                     number_cell(row, "changed"), percent_cell(row, "close_share"),
                     number_cell(row, "gap_steps"),
                     row["refused"] == "" ? std::string()
                                          : "not taken: " + row["refused"].get<std::string>()});
    }
    return "\n" + table.text() + closed_loop_text(summary);
  }
  static std::string closed_loop_text(const Json& summary) {
    TextTable table({"decoded with both orders", "scores", "tokens", "first other logits",
                     "first other token", "largest change of a logit"});
    const auto step = [](const Json& row, const char* key) {
      const auto value = row[key].get<double>();
      return value < 0.0 ? std::string("none") : number_text(value);
    };
    for (const Json& row : summary["rows"]) {
      if (!row.contains("live_steps") || !row["live_steps"].is_number()) continue;
      table.add_row({row["selector"].get<std::string>(), row["scores"].get<std::string>(),
                     step(row, "live_steps"), step(row, "live_first_changed"),
                     step(row, "live_first_token"),
                     number_text(row["live_logit_change"].get<double>())});
    }
    return table.empty() ? std::string() : "\n" + table.text();
  }
  std::string headline(const Json& totals) const override {
    std::string text;
    for (const char* type : {"f32", "bf16", "fp8"}) {
      const std::string share = fmt::format("tie_share_{}", type);
      if (!totals.contains(share) || !totals.at(share).is_number()) continue;
      text += fmt::format("{}in {} {} ({} keys)", text.empty() ? "" : ", ", type,
                          percent_cell(totals, share),
                          number_cell(totals, fmt::format("changed_{}", type)));
    }
    if (text.empty()) return "no row has a cut";
    return fmt::format(
        "rows with a tie at the cut, and keys per row that another order of ties "
        "changes, mean over methods and sizes of pages: {}",
        text);
  }

  std::vector<std::string> selectors_;
  std::optional<std::string> budget_;
  std::optional<std::string> layers_;
  std::optional<std::string> model_;
  TiesOptions options_;
};

}  // namespace

KVSCOPE_COMMAND(210, AnalyzeTies)

}  // namespace kvscope::cli
