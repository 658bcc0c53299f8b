// The plans that a backend may follow instead of a method: given for exactly the options that they
// hold for. What a backend does with them: tests/cuda/live_test.cpp.
#include <fmt/format.h>

#include "core/attention/list_plan.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/sim/live_stats.hpp"
#include "core/sim/protocol.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::list_plans_test {

TEST_CASE("list plans: options, budgets and methods that no plan holds for have none") {
  struct Row {
    const char* method;
    const char* budget = "tokens=64";
    Phase phase = Phase::prefill;
  };
  for (const Row& row : {
           Row{"streamingllm:n-sink=64"},
           Row{"streamingllm", "ratio=0.5"},
           Row{"oracle-topk", "ratio=0.5"},
           Row{"oracle-topp"},
           Row{"oracle-topp", "p=1"},
           Row{"oracle-pages:score=max"},
           Row{"ceiling:level=0"},
           Row{"ceiling:of=output"},
           Row{"quoka:scope=whole"},
           Row{"quoka", "ratio=0.5"},
           Row{"quest", "ratio=0.5"},
           Row{"quest:bound-bits=4", "tokens=64", Phase::decode},
           Row{"sparq", "ratio=0.5"},
           Row{"minference-vertical-slash-kernel"},
           Row{"minference-vertical-slash:sizes=budget"},
           // what looks at tensors that no plan names
           Row{"h2o"},
           Row{"loki"},
           Row{"flexprefill"},
           // another method's lists, changed by a wrapper
           Row{"oracle-topk+every=2"},
           Row{"streamingllm+every=3"},
       }) {
    INFO(row.method << ", " << row.budget);
    CHECK_FALSE(MethodSpec(row.method).make()->plan(Budget::parse(row.budget), row.phase));
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
      compare(*run.plan(0), run.last_selection(), {run.n_keys() - n_tok, run.n_keys()});
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
