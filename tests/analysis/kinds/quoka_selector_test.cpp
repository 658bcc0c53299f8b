// `analyze quoka` against the selector of the same name, asked in the order of a replay: the same
// keys for every layer, KV head, chunk and query.
#include "analysis/kinds/quoka.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/progress.hpp"
#include "core/sim/protocol.hpp"
#include "core/trace/result.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::quoka_selector_test {

struct Question {
  const char* spec;
  const char* budget;
  const char* options;  // the analysis' own words for the same, as its results keep them
};

const std::vector<Question> kQuestions = {
    {"quoka", "tokens=10", "{}"},
    {"quoka:n-queries=4", "ratio=0.3", R"({"n_queries":4,"budget_kind":"ratio","ratio":0.3})"},
    {"quoka:n-queries=4,mean=unit,pairing=position_sorted", "tokens=10",
     R"({"n_queries":4,"mean":"unit","pairing":"position_sorted"})"},
    {"quoka:n-queries=3,pairing=shared_tokens,dense-layers=1", "tokens=10",
     R"({"n_queries":3,"pairing":"shared_tokens","dense_layers":1})"},
    {"quoka:n-queries=4,queries=nearest,aggregate=mean", "tokens=10",
     R"({"n_queries":4,"queries":"nearest","aggregate":"mean"})"},
    {"quoka:queries=all,similarity=dot", "tokens=10", R"({"queries":"all","similarity":"dot"})"},
    {"quoka:n-queries=4,scope=whole", "tokens=10", R"({"n_queries":4,"scope":"whole_cache"})"},
    {"quoka:n-queries=4,scope=whole,mask-scores=false", "ratio=0.2",
     R"({"n_queries":4,"scope":"whole_cache","mask_scores":false,"budget_kind":"ratio",
         "ratio":0.2})"},
    {"quoka:n-queries=4,scope=whole,force-self=false,eps=0.5", "tokens=40",
     R"({"n_queries":4,"scope":"whole_cache","force_self":false,"eps":0.5,"budget":40})"},
};

/// What the analysis says that the query at `pos` of a chunk attends to.
std::vector<KeyPos> kept_by_analysis(const MemoryResult& result, const QuokaOptions& options,
                                     std::size_t place, std::size_t chunk, Index n_kept,
                                     Index begin, Index pos) {
  const auto offsets = result.values<std::int64_t>("selected/offsets");
  const auto selected = result.values<std::int32_t>("selected/positions")
                            .subspan(place * static_cast<std::size_t>(n_kept));
  std::vector<bool> is_kept(static_cast<std::size_t>(pos) + 1, false);
  for (auto i = offsets[chunk]; i < offsets[chunk + 1]; ++i) {
    const std::int32_t key = selected[i];
    if (key >= 0 && key <= pos) is_kept[key] = true;
  }
  if (options.scope == QuokaScope::past_plus_chunk) {
    std::fill(is_kept.begin() + begin, is_kept.end(), true);
  } else if (options.force_self) {
    is_kept.back() = true;
  }
  std::vector<KeyPos> kept;
  for (Index key = 0; key <= pos; ++key) {
    if (is_kept[key]) kept.push_back(static_cast<KeyPos>(key));
  }
  return kept;
}

TEST_CASE("quoka: the analysis keeps what the selector keeps, key by key") {
  test::PlantOptions plant{.n_q = GENERATE(2, 8),
                           .n_tokens = 64,
                           .sink = 1.0,
                           .duplicates = {{3, 20}, {5, 40}},
                           .zero_keys = {7},
                           .has_sink_logits = GENERATE(false, true)};
  plant.score_cap = plant.has_sink_logits ? 2.5 : 0.0;
  // and seven decoded tokens
  MemoryTrace trace = test::planted_trace(plant, [](TraceInfo& info) { info.n_prompt = 57; });
  const TraceInfo& info = trace.info();

  for (const Question& question : kQuestions) {
    INFO(question.spec << ", " << question.budget << ", n_q " << plant.n_q);
    QuokaOptions options;
    options.chunk = 25;
    options.budget = 10;
    fields_from_json(nlohmann::json::parse(question.options), options);
    MemoryResult result;
    ThreadPool pool(2);
    analyze_quoka(trace, options, {result, pool});
    const auto begins = result.values<std::int64_t>("chunk_begin");
    REQUIRE(begins.size() == 3 + 7);
    const Index n_kept = result.values<std::int64_t>("selected/offsets").back();

    SelectorRun run(MethodSpec(question.spec).make(),
                    {.n_layers = info.n_layers,
                     .n_q = info.n_q,
                     .n_kv = info.n_kv,
                     .d_head = info.d_head,
                     .max_tokens = info.n_tokens,
                     .score_scale = info.score_scale},
                    {Budget::parse(question.budget)});
    for (std::size_t c = 0; c < begins.size(); ++c) {
      const Index begin = begins[c];
      const Index end = c + 1 < begins.size() ? begins[c + 1] : info.n_tokens;
      run.begin_call(begin < info.n_prompt ? Phase::prefill : Phase::decode, end - begin);
      for (Index layer = 0; layer < info.n_layers; ++layer) {
        const Selection& selection =
            run.layer_call({.layer = layer,
                            .q = trace.q(layer).range(1, begin, end),
                            .k = trace.k(layer).range(1, 0, end),
                            .v = {},
                            .window = std::nullopt,
                            .sink_logits = info.layer_sink_logits(layer)})[0];
        if (layer < options.dense_layers) {
          REQUIRE(selection.is_dense);
          continue;
        }
        for (Index kv_head = 0; kv_head < info.n_kv; ++kv_head) {
          const auto place = static_cast<std::size_t>(layer * info.n_kv + kv_head);
          for (Index pos = begin; pos < end; ++pos) {
            const auto keys = selection.list(kv_head, pos - begin).keys;
            std::vector<KeyPos> seen;
            for (const KeyPos key : keys) {
              if (key <= pos) seen.push_back(key);
            }
            REQUIRE(kept_by_analysis(result, options, place, c, n_kept, begin, pos) == seen);
          }
        }
      }
    }
  }
}

}  // namespace kvscope::quoka_selector_test
