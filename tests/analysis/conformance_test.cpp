// What every analysis of a trace must do, on a trace with attention sinks, a window and groups of
// heads: the same bits for any number of threads and from layers that were measured elsewhere, one
// token is enough or refused in a sentence, a stop stops.
#include <cstring>
#include <functional>
#include <map>

#include "analysis/base/layer_store.hpp"
#include "analysis/kinds/attention_map.hpp"
#include "analysis/kinds/coverage.hpp"
#include "analysis/kinds/geometry.hpp"
#include "analysis/kinds/heads.hpp"
#include "analysis/kinds/ladder.hpp"
#include "analysis/kinds/layer_map.hpp"
#include "analysis/kinds/overlap.hpp"
#include "analysis/kinds/pruning.hpp"
#include "analysis/kinds/query_selection.hpp"
#include "analysis/kinds/quest_bounds.hpp"
#include "analysis/kinds/quoka.hpp"
#include "analysis/kinds/theorem_b1.hpp"
#include "analysis/kinds/ties.hpp"
#include "tests/analysis/kit.hpp"

namespace kvscope::conformance_test {

struct Analysis {
  std::string name;
  std::function<nlohmann::ordered_json(const TraceSource&, const AnalysisRun&)> run;
  bool by_layer = true;       // layers can be measured elsewhere
  bool takes_a_token = true;  // a trace of one token is enough
};

Analysis analysis(std::string name, auto function, auto options, bool by_layer = true,
                  bool takes_a_token = true) {
  const auto call = [function, options](const TraceSource& trace, const AnalysisRun& run) {
    return function(trace, options, run);
  };
  return {std::move(name), call, by_layer, takes_a_token};
}

std::vector<Analysis> analyses() {
  QuestOptions quest;
  quest.budget = 32;
  quest.steps = 9;
  QuokaOptions quoka;
  quoka.chunk = 32;
  quoka.budget = 20;
  PruningOptions pruning{.budget = 16, .chunk = 16};
  HeadsOptions heads;
  heads.budget = "32";
  heads.chunk = 64;
  heads.pooling = MapPooling::mean;
  const auto map_to_itself = [](const TraceSource& trace, auto&&... rest) {
    return analyze_layer_map(trace, trace, rest...);
  };
  CoverageOptions coverage;
  coverage.selectors = {"quoka", "quest", "lessismore", "snapkv"};
  coverage.budgets = {Budget::parse("16")};
  const auto coverage_of_itself = [](const TraceSource& trace, auto&&... rest) {
    return analyze_coverage(trace, &trace, rest...);
  };
  LadderOptions ladder;
  ladder.selector = "quest:page-size=4";
  ladder.budget = Budget::parse("12");
  TiesOptions ties;
  ties.budget = Budget::parse("16");
  OverlapOptions overlap;
  overlap.selector = "quest:page-size=4,quoka";
  overlap.budget = "32";
  return {analysis("quest", analyze_quest, quest),
          analysis("theorem-b1", analyze_theorem_b1, TheoremB1Options{}),
          analysis("quoka", analyze_quoka, quoka),
          analysis("geometry", analyze_geometry, GeometryOptions{}),
          analysis("query-selection", analyze_query_selection, QuerySelectionOptions{}),
          analysis("heads", analyze_heads, heads),
          analysis("pruning", analyze_pruning, pruning, true, false),
          analysis("overlap", analyze_overlap, overlap, false),
          analysis("coverage", coverage_of_itself, coverage, false, false),
          analysis("ladder", analyze_ladder, ladder, false, false),
          analysis("ties", analyze_ties, ties, false, false),
          analysis("attention-map", analyze_attention_map, AttentionMapOptions{}, false),
          analysis("layer-map", map_to_itself, LayerMapOptions{}, false, false)};
}

/// Layer 1 has a window.
MemoryTrace windowed_trace(Index n_tokens) {
  test::PlantOptions plant{.n_layers = 3, .n_q = 8, .n_tokens = n_tokens, .has_sink_logits = true};
  MemoryTrace trace = test::planted_trace(plant, [](TraceInfo& info) { info.window[1] = 20; });
  std::vector<TokenId> tokens;
  for (Index t = 0; t < n_tokens; ++t) tokens.push_back(static_cast<TokenId>(t % 13));
  trace.set_tokens(tokens);
  return trace;
}

/// Keeps the layers of a first run, and knows them in those that follow.
class Stored final : public ResultWriter, public LayerStore {
 public:
  using Layers = std::map<std::pair<std::string, Index>, std::vector<std::byte>>;
  Stored(MemoryResult& to, Layers& layers)
      : to_(to), layers_(layers), knows_all_(!layers.empty()) {}
  bool knows(Index) const override { return knows_all_; }
  void restore(const std::string& name, Index slot, std::span<std::byte> values) const override {
    const auto& from = layers_.at({name, slot});
    REQUIRE(from.size() == values.size());
    std::copy(from.begin(), from.end(), values.begin());
  }
  void keep(const std::string& name, Index slot, std::span<const std::byte> values) override {
    layers_[{name, slot}].assign(values.begin(), values.end());
  }
  void begin(const ResultInfo& info) override { to_.begin(info); }
  void declare(const ResultArray& array) override { to_.declare(array); }
  void add_plot(const ResultPlot& plot) override { to_.add_plot(plot); }
  void finish(const nlohmann::ordered_json& summary) override { to_.finish(summary); }

 protected:
  void write_raw(std::string_view name, ResultType type, Index first, const void* data,
                 Index n_elements) override {
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      to_.write<T>(name, first,
                   std::span(static_cast<const T*>(data), static_cast<std::size_t>(n_elements)));
    });
  }

 private:
  MemoryResult& to_;
  Layers& layers_;
  bool knows_all_;
};

void require_same(const MemoryResult& a, const MemoryResult& b) {
  CHECK(a.summary().dump() == b.summary().dump());
  REQUIRE(a.arrays().size() == b.arrays().size());
  for (const ResultArray& array : a.arrays()) {
    INFO(array.name);
    with_type(array.type, [&](auto zero) {
      using T = decltype(zero);
      const auto one = a.values<T>(array.name);
      const auto other = b.values<T>(array.name);
      REQUIRE(one.size() == other.size());
      CHECK(std::memcmp(one.data(), other.data(), one.size_bytes()) == 0);
    });
  }
}

TEST_CASE("analyses: the same bits with 1 and 3 threads, and from layers measured elsewhere") {
  const MemoryTrace trace = windowed_trace(300);
  ThreadPool one_thread(1);
  ThreadPool three_threads(3);
  for (const Analysis& analysis : analyses()) {
    INFO(analysis.name);
    MemoryResult one, three, first, again;
    const auto summary = analysis.run(trace, {one, one_thread});
    CHECK(summary.dump() == one.summary().dump());
    analysis.run(trace, {three, three_threads});
    require_same(one, three);

    if (!analysis.by_layer) continue;
    Stored::Layers layers;
    Stored keeps(first, layers);
    analysis.run(trace, {keeps, one_thread});
    REQUIRE(!layers.empty());
    Stored knows(again, layers);
    analysis.run(trace, {knows, one_thread});
    require_same(one, first);
    require_same(one, again);
  }
}

TEST_CASE("analyses: one token is enough, or refused in a sentence") {
  const MemoryTrace trace = windowed_trace(1);
  ThreadPool pool(2);
  for (const Analysis& analysis : analyses()) {
    INFO(analysis.name);
    MemoryResult result;
    if (analysis.takes_a_token) {
      CHECK_NOTHROW(analysis.run(trace, {result, pool}));
      CHECK(result.summary().value("layers", nlohmann::ordered_json::array({0, 1, 2})).size() == 3);
    } else {
      CHECK_THROWS_AS(analysis.run(trace, {result, pool}), ConfigError);
    }
  }
}

TEST_CASE("analyses: a stop ends them") {
  const MemoryTrace trace = windowed_trace(300);
  ThreadPool pool(2);
  std::stop_source stop;
  stop.request_stop();
  for (const Analysis& analysis : analyses()) {
    INFO(analysis.name);
    MemoryResult result;
    CHECK_THROWS_AS(analysis.run(trace, {result, pool, {}, stop.get_token()}), Interrupted);
  }
}

}  // namespace kvscope::conformance_test
