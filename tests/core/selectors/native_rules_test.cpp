// The rules that a backend may follow instead of a method: given for exactly the options that they
// hold for. What a backend does with them: tests/cuda/live_test.cpp.
#include <catch2/catch_test_macros.hpp>

#include "core/attention/native_rule.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/sim/protocol.hpp"

namespace kvscope::test::native_rules_test {
namespace {

std::optional<NativeRule> rule_of(const char* method, const char* budget = "tokens=64") {
  return MethodSpec(method).make()->native_rule(Budget::parse(budget));
}

TEST_CASE("native rules: StreamingLLM says its sinks, where a query sees itself") {
  const auto rule = rule_of("streamingllm");
  REQUIRE(rule);
  CHECK(rule->method == NativeRule::Method::streaming);
  CHECK(rule->budget == 64);
  CHECK(rule->n_sink == 4);
  CHECK(rule_of("streamingllm:n-sink=63")->n_sink == 63);
  CHECK(rule_of("streamingllm:n-sink=0")->n_sink == 0);
  CHECK_FALSE(rule_of("streamingllm:n-sink=64"));
  CHECK_FALSE(rule_of("streamingllm", "ratio=0.5"));
}

TEST_CASE("native rules: the oracle of keys says who owns a list and what competes") {
  using Owner = NativeRule::Owner;
  struct Case {
    const char* method;
    Owner owner;
    bool forces_own, joins_rows;
  };
  for (const Case& c :
       {Case{"oracle-topk", Owner::q_head, false, false},
        Case{"oracle-topk-past", Owner::q_head, true, false},
        Case{"oracle-topk-group", Owner::group_sum, false, false},
        Case{"oracle-topk:variant=per_group_max,scope=past", Owner::group_max, true, false},
        Case{"oracle-topk-chunk", Owner::group_sum, true, true}}) {
    INFO(c.method);
    const auto rule = rule_of(c.method);
    REQUIRE(rule);
    CHECK(rule->method == NativeRule::Method::best);
    CHECK(rule->budget == 64);
    CHECK(rule->owner == c.owner);
    CHECK(rule->forces_own == c.forces_own);
    CHECK(rule->joins_rows == c.joins_rows);
    CHECK_FALSE(rule_of(c.method, "ratio=0.5"));
  }
}

TEST_CASE("native rules: QuoKA and Quest with the options that the kernels do not know") {
  CHECK(rule_of("quoka")->method == NativeRule::Method::quoka);
  CHECK_FALSE(rule_of("quoka:scope=whole"));
  CHECK_FALSE(rule_of("quoka", "ratio=0.5"));
  CHECK(rule_of("quest")->method == NativeRule::Method::quest);
  CHECK_FALSE(rule_of("quest:bound-bits=4"));
}

TEST_CASE("native rules: SparQ's holds outside of decode steps") {
  const auto rule = rule_of("sparq:n-channels=16,local-share=0.5");
  REQUIRE(rule);
  CHECK(rule->method == NativeRule::Method::sparq);
  CHECK(rule->n_channels == 16);
  CHECK((rule->forces_own && rule->joins_rows));
  CHECK(rule_of("sparq")->channel_share == 0.5);
  CHECK_FALSE(rule_of("sparq", "ratio=0.5"));
  const AttentionShape shape{.n_layers = 1, .n_q = 4, .n_kv = 2, .d_head = 8, .max_tokens = 16};
  const auto rule_in = [&](const char* method, Phase phase) {
    SelectorRun run(MethodSpec(method).make(), shape, {{Budget::Kind::tokens, 12.0}}, std::nullopt,
                    ScorePrecision::f32);
    run.begin_call(phase, 1);
    return run.native_rule(0).has_value();
  };
  CHECK(rule_in("sparq", Phase::prefill));
  CHECK(rule_in("sparq", Phase::verify));
  CHECK_FALSE(rule_in("sparq", Phase::decode));
  CHECK(rule_in("quest:dense-layers=0", Phase::decode));
  CHECK_FALSE(rule_in("quest:dense-layers=0", Phase::prefill));
}

TEST_CASE("native rules: what looks at tensors that no rule names has none") {
  for (const char* method : {"h2o", "loki", "oracle-topp", "oracle-pages"}) {
    INFO(method);
    CHECK_FALSE(rule_of(method));
  }
  // another method's lists, changed by a wrapper
  CHECK_FALSE(rule_of("oracle-topk+every=2"));
  CHECK_FALSE(rule_of("streamingllm+every=3"));
}

}  // namespace
}  // namespace kvscope::test::native_rules_test
