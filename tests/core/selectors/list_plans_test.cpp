// The plans that a backend may follow instead of a method: given for exactly the options that they
// hold for. What a backend does with them: tests/cuda/live_test.cpp.
#include "core/attention/list_plan.hpp"
#include "core/sim/live_stats.hpp"
#include "core/sim/protocol.hpp"
#include "tests/core/selectors/kit.hpp"

namespace kvscope::test::list_plans_test {

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
  CHECK_FALSE(plan_of("quest:bound-bits=4", "tokens=64", Phase::decode));
  for (const Phase phase : {Phase::prefill, Phase::verify}) {
    const auto plan = plan_of("quest:pages=hub,owner=q_head", "tokens=64", phase);
    REQUIRE(plan);
    CHECK(plan->by == ListPlan::By::page_bounds);
    CHECK(plan->pages == ListPlan::Pages::hub);
    CHECK(plan->owner == ListPlan::Owner::group_sum);
    CHECK((plan->forces_own && plan->joins_rows));
    CHECK_FALSE(plan_of("quest", "ratio=0.5", phase));
  }
}

TEST_CASE("list plans: SparQ's say in steps what is kept by rule and what stands for the rest") {
  const auto plan = plan_of("sparq:n-channels=16,local-share=0.5");
  REQUIRE(plan);
  CHECK(plan->by == ListPlan::By::channels);
  CHECK(plan->n_channels == 16);
  CHECK((plan->forces_own && plan->joins_rows));
  CHECK(plan_of("sparq")->channel_share == 0.5);
  CHECK((plan->n_latest == 0 && !plan->adds_mean));
  const auto step = plan_of("sparq:local-share=0.3", "tokens=64", Phase::decode);
  REQUIRE(step);
  CHECK((step->n_latest == 19 && step->adds_mean));
  CHECK_FALSE(plan_of("sparq:mean-value=false", "tokens=64", Phase::decode)->adds_mean);
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
  CHECK(plan_in("sparq", Phase::decode));
  CHECK(plan_in("quest:dense-layers=0", Phase::decode));
  CHECK(plan_in("quest:dense-layers=0", Phase::prefill));
}

TEST_CASE("list plans: shares, levels, exact pages, columns and diagonals") {
  const auto share = plan_of("oracle-topp", "p=0.9");
  REQUIRE(share);
  CHECK((share->by == ListPlan::By::attention && share->mass == 0.9 && !share->has_budget()));
  CHECK_FALSE(plan_of("oracle-topp", "p=1"));
  const auto level = plan_of("ceiling:level=0.01");
  REQUIRE(level);
  CHECK((level->by == ListPlan::By::attention && level->least_weight == 0.01));
  CHECK_FALSE(plan_of("ceiling:level=0"));
  CHECK_FALSE(plan_of("ceiling:of=output"));
  const auto pages = plan_of("oracle-pages:pages=eval", "tokens=64", Phase::decode);
  REQUIRE(pages);
  CHECK((pages->by == ListPlan::By::page_attention && pages->pages == ListPlan::Pages::eval));
  CHECK((pages->takes_pages() && !pages->forces_own));
  CHECK_FALSE(plan_of("oracle-pages:score=max"));
  const auto slashes = plan_of("minference-vertical-slash:n-vertical=7,n-slash=60,n-voters=9");
  REQUIRE(slashes);
  CHECK((slashes->by == ListPlan::By::slashes && slashes->n_voters == 9));
  CHECK((slashes->n_columns == 30 && slashes->n_slashes == 60));  // at least 30
  CHECK((is_kept_by_rule(*slashes, 29, 500, 490) && !is_kept_by_rule(*slashes, 30, 500, 490)));
  CHECK((is_kept_by_rule(*slashes, 401, 500, 490) && !is_kept_by_rule(*slashes, 400, 500, 490)));
  CHECK_FALSE(plan_of("minference-vertical-slash-kernel"));
  CHECK_FALSE(plan_of("minference-vertical-slash:sizes=budget"));
}

TEST_CASE("list plans: what looks at tensors that no plan names has none") {
  for (const char* method : {"h2o", "loki", "oracle-topp", "flexprefill"}) {
    INFO(method);
    CHECK_FALSE(plan_of(method));
  }
  // another method's lists, changed by a wrapper
  CHECK_FALSE(plan_of("oracle-topk+every=2"));
  CHECK_FALSE(plan_of("streamingllm+every=3"));
}

TEST_CASE("list plans: a method that rests needs no lists, but for one with a history") {
  const AttentionShape shape{.n_layers = 2, .n_q = 4, .n_kv = 2, .d_head = 8, .max_tokens = 16};
  const auto plan_in_dense_layer = [&](const char* method) {
    SelectorRun run(MethodSpec(method).make(), shape, {{Budget::Kind::tokens, 4.0}},
                    /*dense_layers=*/1, ScorePrecision::f32);
    run.begin_call(Phase::prefill, 4);
    return run.plan(0);
  };
  for (const char* method : {"quest", "rocket2", "sparq"}) {
    INFO(method);
    const auto plan = plan_in_dense_layer(method);
    REQUIRE(plan);
    CHECK(plan->by == ListPlan::By::nothing);
  }
  for (const char* method : {"tova", "snapkv", "keydiff"}) {
    INFO(method);
    CHECK_FALSE(plan_in_dense_layer(method));
  }
}

TEST_CASE("list plans: keys are counted by the plan as their lists would be") {
  const auto compare = [](const ListPlan& plan, const Selection& lists, TokenRange call) {
    INFO(fmt::format("rows {} to {}", call.begin, call.end));
    REQUIRE(KeptTotals::are_known(plan));
    const KeptTotals expected = KeptTotals::of(lists, 4, 2, call);
    const KeptTotals found = KeptTotals::of_plan(plan, nullptr, 4, 2, call);
    CHECK(found.attended == expected.attended);
    CHECK(found.visible == expected.visible);
    CHECK(found.loaded == expected.loaded);
    CHECK(found.available == expected.available);
    CHECK(found.n_calls == expected.n_calls);
  };
  Selection joined(ListOwner::kv_head, 3, 3);
  for (int kv_head = 0; kv_head < 2; ++kv_head) joined.add(KeyList{{0, 2, 3}, {5, 6, 7}, {}});
  ListPlan plan{.by = ListPlan::By::far_cosines, .budget = 3, .joins_rows = true};
  compare(plan, joined, {5, 8});

  const Sequence sequence = random_sequence({.n_tokens = 40, .n_decode = 0, .seed = 4});
  for (const char* method :
       {"streamingllm:n-sink=0", "streamingllm:n-sink=3", "quest:dense-layers=0,page-size=4",
        "quest:dense-layers=0,page-size=8,pages=hub", "quest-frontier:page-size=8",
        "quest:dense-layers=0,page-size=2,pages=eval", "oracle-pages:page-size=4"}) {
    INFO(method);
    // calls that end among the first tokens, where nothing is left out, and where much is
    SelectorRun run(make_selector(method, sequence), sequence.shape, {{Budget::Kind::tokens, 8.0}},
                    std::nullopt, ScorePrecision::f32);
    for (const Index n_tok : {2, 1, 5, 9, 1, 20, 2}) {
      run_call(run, sequence, Phase::prefill, n_tok);
      compare(*run.plan(0), run.last_answer(), {run.n_keys() - n_tok, run.n_keys()});
    }
  }
  Selection all(ListOwner::layer, 3, 3);
  all.is_dense = true;
  compare(ListPlan{}, all, {5, 8});
}

TEST_CASE("a run goes on where another one stands, a verification that is taken back included") {
  const Sequence sequence = random_sequence({.n_tokens = 60, .n_decode = 12, .seed = 4});
  const std::vector<Budget> budget{{Budget::Kind::tokens, 6.0}};
  SelectorRun first(make_selector("knorm", sequence), sequence.shape, budget);
  run_call(first, sequence, Phase::prefill, 20);
  run_call(first, sequence, Phase::verify, 3);
  SelectorRun second(make_selector("knorm", sequence), sequence.shape, budget);
  second.go_on_from(first);
  const Index at_most = first.alive(0).n_alive(0);
  first.rollback(21);
  second.rollback(21);
  for (Index layer = 0; layer < sequence.shape.n_layers; ++layer) {
    for (Index head = 0; head < sequence.shape.n_kv; ++head)
      CHECK(second.alive(layer).n_alive(head) == first.alive(layer).n_alive(head));
  }
  CHECK(first.alive(0).n_alive(0) > at_most - 2);  // what the verification evicted came back
  CHECK(second.n_keys() == 21);
  SelectorRun h2o(make_selector("h2o", sequence), sequence.shape, budget);
  CHECK_SAYS(h2o.go_on_from(first), "remembers");
}

}  // namespace kvscope::test::list_plans_test
