// The sweep: answers that cannot be trusted. That threads, workers and interruptions change no byte
// is for the program to show (tests/cli/runs/sweep_test.cpp, tests/cli/runs/stores_test.cpp).
#include "analysis/sweep/sweep.hpp"

#include <nlohmann/json.hpp>

#include "analysis/sweep/sweep_work.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/run_sweep.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::sweep_test {

SweepTrace planted(const std::string& name, std::uint64_t seed) {
  return {name,
          [seed] {
            PlantOptions plant{.n_layers = 3, .n_tokens = 60};
            plant.sink = plant.band = 1.0;
            plant.seed = seed;
            return std::make_unique<MemoryTrace>(test::planted_trace(plant));
          },
          {}};
}

SweepOptions options() {
  SweepOptions sweep;
  sweep.selectors = {"full", "oracle-topk", "streamingllm", "lessismore:dense-layers=1"};
  sweep.budgets = {Budget::parse("4"), Budget::parse("ratio=0.5")};
  sweep.replay.calls.chunk = 16;
  sweep.n_resamples = 20;
  return sweep;
}

SweepPlan plan(SweepOptions sweep = options()) {
  return plan_sweep({planted("a.h5", 1), planted("b,\"odd\".h5", 2)}, std::move(sweep));
}

TEST_CASE("answers with missing or foreign rows are refused") {
  const SweepPlan sweep = plan();
  ThreadPool pool(1);
  const Work work = sweep_work(sweep, pool);
  Store whole;
  const SweepResult result = run_sweep(sweep, whole, pool);
  CHECK(result.blocks.size() == 2 * 3 * 7);  // traces, layers, pairs: full takes no budget
  CHECK_HAS(sweep_csv(result), "\n\"b,\"\"odd\"\".h5\",prefill,full,none,");
  const auto refuses = [&](const char* words,
                           const std::function<void(nlohmann::ordered_json&)>& change) {
    nlohmann::ordered_json answer = answer_in(whole, work.keys[0]);
    change(answer[0]);
    Store store;
    store.add(answer_of(work.keys[0], answer));
    CHECK_SAYS(run_sweep(sweep, store, pool), words);
  };
  refuses("lacks rows", [](auto& block) { block["rows"].erase(1); });
  refuses("lacks rows", [](auto& block) { block["rows"] = nlohmann::ordered_json::array(); });
  refuses("lacks rows", [](auto& block) { block["rows"].push_back(block["rows"][0]); });
  refuses("another layer or head",
          [](auto& block) { std::swap(block["rows"][0], block["rows"][1]); });
  refuses("another layer or head", [](auto& block) { block["rows"][0][1][0] = 77; });
  refuses("another size", [](auto& block) { block["ages"].erase(0); });
}

TEST_CASE("absurd numbers of resamples are refused before memory is taken") {
  SweepOptions options = plan().options;
  options.n_resamples = 99'999'999'999;
  CHECK_SAYS(plan(options), "at most 10000 resamples");
}

}  // namespace kvscope::test::sweep_test
