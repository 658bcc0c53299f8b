// The plans that a backend may follow instead of a method: given for exactly the options that they
// hold for. What a backend does with them: tests/cuda/live_test.cpp.
#include <catch2/catch_test_macros.hpp>

#include "core/attention/list_plan.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/sim/protocol.hpp"

namespace kvscope::test::list_plans_test {
namespace {

std::optional<ListPlan> plan_of(const char* method, const char* budget = "tokens=64",
                                Phase phase = Phase::prefill) {
  return MethodSpec(method).make()->plan(Budget::parse(budget), phase);
}

TEST_CASE("list plans: StreamingLLM says its sinks, where a query sees itself") {
  const auto plan = plan_of("streamingllm");
  REQUIRE(plan);
  CHECK(plan->by == ListPlan::By::place);
  CHECK(plan->budget == 64);
  CHECK(plan->n_sink == 4);
  CHECK(plan_of("streamingllm:n-sink=63")->n_sink == 63);
  CHECK(plan_of("streamingllm:n-sink=0")->n_sink == 0);
  CHECK_FALSE(plan_of("streamingllm:n-sink=64"));
  CHECK_FALSE(plan_of("streamingllm", "ratio=0.5"));
}

TEST_CASE("list plans: the oracle of keys says who owns a list and what competes") {
  using Owner = ListPlan::Owner;
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
    const auto plan = plan_of(c.method);
    REQUIRE(plan);
    CHECK(plan->by == ListPlan::By::attention);
    CHECK(plan->budget == 64);
    CHECK(plan->owner == c.owner);
    CHECK(plan->forces_own == c.forces_own);
    CHECK(plan->joins_rows == c.joins_rows);
    CHECK_FALSE(plan_of(c.method, "ratio=0.5"));
  }
}

TEST_CASE("list plans: QuoKA and Quest with the options that the kernels do not know") {
  CHECK(plan_of("quoka")->by == ListPlan::By::far_cosines);
  CHECK_FALSE(plan_of("quoka:scope=whole"));
  CHECK_FALSE(plan_of("quoka", "ratio=0.5"));
  CHECK(plan_of("quest", "tokens=64", Phase::decode)->by == ListPlan::By::page_bounds);
  CHECK_FALSE(plan_of("quest"));
  CHECK_FALSE(plan_of("quest:bound-bits=4", "tokens=64", Phase::decode));
}

TEST_CASE("list plans: SparQ's holds outside of decode steps") {
  const auto plan = plan_of("sparq:n-channels=16,local-share=0.5");
  REQUIRE(plan);
  CHECK(plan->by == ListPlan::By::channels);
  CHECK(plan->n_channels == 16);
  CHECK((plan->forces_own && plan->joins_rows));
  CHECK(plan_of("sparq")->channel_share == 0.5);
  CHECK_FALSE(plan_of("sparq", "ratio=0.5"));
  const AttentionShape shape{.n_layers = 1, .n_q = 4, .n_kv = 2, .d_head = 8, .max_tokens = 16};
  const auto plan_in = [&](const char* method, Phase phase) {
    SelectorRun run(MethodSpec(method).make(), shape, {{Budget::Kind::tokens, 12.0}}, std::nullopt,
                    ScorePrecision::f32);
    run.begin_call(phase, 1);
    return run.plan(0).has_value();
  };
  CHECK(plan_in("sparq", Phase::prefill));
  CHECK(plan_in("sparq", Phase::verify));
  CHECK_FALSE(plan_in("sparq", Phase::decode));
  CHECK(plan_in("quest:dense-layers=0", Phase::decode));
  CHECK_FALSE(plan_in("quest:dense-layers=0", Phase::prefill));
}

TEST_CASE("list plans: what looks at tensors that no plan names has none") {
  for (const char* method : {"h2o", "loki", "oracle-topp", "oracle-pages"}) {
    INFO(method);
    CHECK_FALSE(plan_of(method));
  }
  // another method's lists, changed by a wrapper
  CHECK_FALSE(plan_of("oracle-topk+every=2"));
  CHECK_FALSE(plan_of("streamingllm+every=3"));
}

}  // namespace
}  // namespace kvscope::test::list_plans_test
