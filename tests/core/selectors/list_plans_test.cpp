// The plans that a backend may follow instead of a method: given for exactly the options that they
// hold for. What a backend does with them: tests/cuda/live_test.cpp.
#include "core/attention/list_plan.hpp"
#include "core/selectors/method_spec.hpp"
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
           Row{"quoka:scope=whole"},
           Row{"quoka", "ratio=0.5"},
           Row{"quest", "ratio=0.5"},
           Row{"quest:bound-bits=4", "tokens=64", Phase::decode},
           Row{"quest:choice=random", "tokens=64", Phase::decode},
           Row{"oracle-topk", "ratio=0.5"},
           Row{"oracle-topk-group"},
           Row{"oracle-topp", "p=1"},
           Row{"ceiling:level=0"},
           Row{"ceiling:of=output"},
           // what looks at tensors that no plan names
           Row{"h2o"},
           Row{"oracle-pages"},
           // another method's lists, changed by a wrapper
           Row{"quoka+every=2"},
           Row{"oracle-topk+every=2"},
       }) {
    INFO(row.method << ", " << row.budget);
    CHECK_FALSE(MethodSpec(row.method).make()->plan(Budget::parse(row.budget), row.phase));
  }
}

TEST_CASE("a run goes on where another one stands, a verification that is taken back included") {
  const Sequence sequence = random_sequence({.n_tokens = 60, .n_decode = 12, .seed = 4});
  const std::vector<Budget> budget{{Budget::Kind::tokens, 6.0}};
  SelectorRun first(make_selector("knorm", sequence), sequence.shape, budget);
  run_call(first, sequence, Phase::prefill, 20);
  run_call(first, sequence, Phase::verify, 3);
  SelectorRun second(make_selector("knorm", sequence), sequence.shape, budget);
  second.go_on_from(first);
  for (SelectorRun* run : {&first, &second}) {
    run->rollback(21);
    CHECK(run->alive(0).n_alive(0) == 6 + 1);
    run_call(*run, sequence, Phase::decode, 1);
  }
  for (Index layer = 0; layer < sequence.shape.n_layers; ++layer) {
    for (Index head = 0; head < sequence.shape.n_kv; ++head)
      CHECK(second.alive(layer).n_alive(head) == first.alive(layer).n_alive(head));
  }
  CHECK(second.alive(0).n_alive(0) == 6);
  CHECK(second.n_keys() == 22);
  SelectorRun h2o(make_selector("h2o", sequence), sequence.shape, budget);
  CHECK_SAYS(h2o.go_on_from(first), "remembers");
}

}  // namespace kvscope::test::list_plans_test
