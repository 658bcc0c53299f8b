// Every analysis of a trace: what tests of all of them walk.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "analysis/base/analysis.hpp"
#include "analysis/kinds/attention_map.hpp"
#include "analysis/kinds/coverage.hpp"
#include "analysis/kinds/geometry.hpp"
#include "analysis/kinds/heads.hpp"
#include "analysis/kinds/ladder.hpp"
#include "analysis/kinds/layer_map.hpp"
#include "analysis/kinds/overlap.hpp"
#include "analysis/kinds/query_selection.hpp"
#include "analysis/kinds/quest_bounds.hpp"
#include "analysis/kinds/quoka.hpp"
#include "analysis/kinds/theorem_b1.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test {

struct Analysis {
  std::string name;
  std::function<nlohmann::ordered_json(const TraceSource&, const AnalysisRun&)> run;
  bool by_layer = true;       // layers can be measured elsewhere
  bool takes_a_token = true;  // a trace of one token is enough
};

inline Analysis analysis(std::string name, auto function, auto options, bool by_layer = true,
                         bool takes_a_token = true) {
  const auto call = [function, options](const TraceSource& trace, const AnalysisRun& run) {
    return function(trace, options, run);
  };
  return {std::move(name), call, by_layer, takes_a_token};
}

/// Every analysis of a trace, with options that suit a small one.
inline std::vector<Analysis> analyses() {
  QuestOptions quest;
  quest.budget = 32;
  quest.steps = 9;
  QuokaOptions quoka;
  quoka.chunk = 32;
  quoka.budget = 20;
  HeadsOptions heads;
  heads.budget = "32";
  heads.chunk = 64;
  heads.pooling = MapPooling::mean;
  const auto map_to_itself = [](const TraceSource& trace, auto&&... rest) {
    return analyze_layer_map(trace, trace, rest...);
  };
  CoverageOptions coverage{.selectors = {"quoka", "quest", "lessismore", "snapkv"},
                           .budgets = {Budget::parse("16")}};
  const auto coverage_of_itself = [](const TraceSource& trace, auto&&... rest) {
    return analyze_coverage(trace, &trace, rest...);
  };
  LadderOptions ladder{.selector = "quest:page-size=4", .budget = Budget::parse("12")};
  OverlapOptions overlap;
  overlap.selector = "quest:page-size=4,quoka";
  overlap.budget = "32";
  return {analysis("quest", analyze_quest, quest),
          analysis("theorem-b1", analyze_theorem_b1, TheoremB1Options{}),
          analysis("quoka", analyze_quoka, quoka),
          analysis("geometry", analyze_geometry, GeometryOptions{}),
          analysis("query-selection", analyze_query_selection, QuerySelectionOptions{}),
          analysis("heads", analyze_heads, heads),
          analysis("overlap", analyze_overlap, overlap, false),
          analysis("row-sharing", analyze_row_sharing, RowSharingOptions{}, false, false),
          analysis("coverage", coverage_of_itself, coverage, false, false),
          analysis("ladder", analyze_ladder, ladder, false, false),
          analysis("attention-map", analyze_attention_map, AttentionMapOptions{}, false),
          analysis("layer-map", map_to_itself, LayerMapOptions{}, false, false)};
}

}  // namespace kvscope::test
