// What methods refuse, by the words that name it: options out of their range, a budget that is
// none of theirs, a call before they have learned, a call without values.

#include "core/selectors/registry.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::refusals_test {

/// Of a call of the phase that the method works in.
CallFixture& fixture_for(std::string_view spec) {
  static CallFixture chunk;
  static CallFixture step({.n_past = 60, .n_tok = 1, .phase = Phase::decode});
  return selector_registry().make(spec)->caps().prefill ? chunk : step;
}

TEST_CASE("methods refuse options out of range") {
  struct Row {
    const char* spec;
    const char* word;
  };
  for (const Row& row : {
           Row{"adakv:kernel=4", "kernel"},
           Row{"adakv:floor=1.1", "floor"},
           Row{"blockmean:stride=64", "at most kernel = 32"},
           Row{"blockmean:pool=mean", "sum or max"},
           Row{"blockmean:n-local=0", "n-local"},
           Row{"moba:pool=sum", "expected mean"},
           Row{"moba:compressed=true", "compressed"},
           Row{"doublep:refine=0", "refine"},
           Row{"doublesparsity:share=2", "share"},
           Row{"doublesparsity:bits=0", "bits"},
           Row{"duoattention:share=1.5", "share"},
           Row{"flexprefill:gamma=1.2", "gamma"},
           Row{"indexer:block=0", "block"},
           Row{"indexer:index-share=2", "index-share"},
           Row{"kascade:anchors=2/1", "ascending layers as 0/2/8"},
           Row{"kascade:anchors=0/x", "ascending layers as 0/2/8"},
           Row{"kascade:anchors=0,map=x.json", "contradict"},
           Row{"loki:rank=-1", "rank"},
           Row{"magicpig:bits=13", "bits"},
           Row{"magicpig:needed=3", "needed"},
           Row{"pqcache:bits=9", "bits"},
           Row{"pqcache:parts=0", "parts"},
           Row{"quest:page-size=0", "page-size"},
           Row{"quoka:n-queries=0", "n-queries"},
           Row{"retroinfer:estimate-share=1.5", "estimate-share"},
           Row{"retroinfer:keys-per-cluster=0", "keys-per-cluster"},
           Row{"rocket2:compression=0.5", "compression"},
           Row{"rocketkv:prompt-budget=p=0.9", "snapkv: budget p=0.9"},
           Row{"rocketkv:kernel=64", "kernel"},
           Row{"shadowkv:outliers=-1", "outliers"},
           Row{"skip-softmax:lambda=1.5", "lambda"},
           Row{"skip-softmax:scale=-1", "scale"},
           Row{"skip-softmax:by=target,lambda=0.1", "lambda"},
           Row{"snapkv:kernel=4", "kernel"},
           Row{"socket:bits=15", "bits"},
           Row{"socket:tau=0", "tau"},
           Row{"sparq:channel-share=1.5", "channel-share"},
           Row{"twilight:base=quest2", "quest2"},
           Row{"twilight:base=h2o", "h2o"},
           Row{"twilight:base=twilight", "twilight"},
           Row{"twilight:base-budget=tokens=0", "tokens=0"},
           Row{"unique:page-size=0", "page-size"},
           Row{"unique:recent=0", "recent"},
           Row{"vattention:base=h2o", "h2o"},
           Row{"vattention:base=snapkv", "snapkv"},
           Row{"vattention:base=vattention", "vattention"},
           Row{"vattention:base=quest,base-budget=p=0.9", "quest: budget p=0.9"},
           Row{"vattention:epsilon=0", "epsilon"},
           Row{"vattention:delta=0.7", "delta"},
           Row{"xattention:block=100", "multiple of stride = 8"},
           Row{"xattention:tau=1.5", "tau"},
       }) {
    INFO(row.spec);
    CHECK_SAYS_AS(ConfigError, selector_registry().make(row.spec), row.word);
  }
}

TEST_CASE("methods refuse budgets of others, and calls before they have learned") {
  struct Row {
    const char* spec;
    const char* budget;
    const char* word;
  };
  for (const Row& row : {
           Row{"blockmean", "p=0.9", "tokens"},
           Row{"doublep", "tokens=9", "p"},
           Row{"flexprefill:sizes=budget", "tokens=16", "p"},
           Row{"kascade:anchors=0", "p=0.5", "tokens"},
           Row{"oracle-topp", "tokens=9", "p"},
           Row{"pqcache", "p=0.9", "tokens"},
           Row{"quest", "p=0.9", "tokens"},
           Row{"quoka", "p=0.9", "tokens"},
           Row{"retroinfer", "p=0.9", "tokens"},
           Row{"rocket2", "p=0.9", "tokens"},
           Row{"rocketkv", "p=0.9", "tokens"},
           Row{"shadowkv", "p=0.9", "tokens"},
           Row{"socket", "p=0.9", "tokens"},
           Row{"unique", "p=0.9", "tokens"},
           Row{"xattention:sizes=budget", "tokens=16", "p"},
           Row{"doublesparsity", "tokens=8", "channels=FILE"},
           Row{"duoattention", "tokens=8", "gates=FILE"},
           Row{"indexer", "tokens=8", "index=FILE"},
           Row{"kascade", "tokens=8", "map=FILE"},
           Row{"loki:basis=calibrated", "tokens=8", "kvscope fit loki"},
           Row{"shadowkv:keys=rebuilt", "tokens=8", "kvscope fit shadowkv"},
           Row{"skip-softmax:by=target", "tokens=8", "fit=FILE"},
       }) {
    INFO(row.spec << ", " << row.budget);
    CallFixture& fixture = fixture_for(row.spec);
    fixture.call.budget = Budget::parse(row.budget);
    CHECK_SAYS_AS(ConfigError, made(row.spec, fixture)->select(fixture.call), row.word);
  }
}

TEST_CASE("methods that look at values say so and refuse a call without") {
  for (const char* spec : {"doublep", "nsa-compressed", "retroinfer", "socket", "sparq"}) {
    INFO(spec);
    CHECK(selector_registry().make(spec)->caps().needs_values);
    CallFixture step({.n_past = 160, .n_tok = 1, .phase = Phase::decode});
    step.call.v = {};
    step.call.budget = Budget::parse(spec == std::string_view("doublep") ? "p=0.9" : "tokens=9");
    CHECK_THROWS_AS(made(spec, step)->select(step.call), ConfigError);
  }
}

}  // namespace kvscope::test::refusals_test
