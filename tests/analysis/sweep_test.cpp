// The sweep: same bytes for any thread count, any workers and any interruption; answers that cannot
// be trusted.
#include "analysis/sweep/sweep.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "analysis/sweep/sweep_rows.hpp"
#include "analysis/sweep/sweep_work.hpp"
#include "core/base/progress.hpp"
#include "core/trace/result.hpp"
#include "tests/support/planted_trace.hpp"
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

SweepResult run(const SweepPlan& sweep, int threads = 1) {
  ThreadPool pool(threads);
  Store store;
  return run_sweep(sweep, store, pool);
}

/// Every array of the result file as bytes.
std::string arrays_of(const SweepResult& result) {
  MemoryResult output;
  write_sweep(result, output, "test");
  std::string all = output.summary().dump() + output.info().config.dump();
  const auto append = [&](const auto& values) {
    all.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  };
  for (const ResultArray& array : output.arrays()) {
    all += array.name;
    if (array.type == ResultType::f32) append(output.values<float>(array.name));
    if (array.type == ResultType::f64) append(output.values<double>(array.name));
    if (array.type == ResultType::i32) append(output.values<std::int32_t>(array.name));
    if (array.type == ResultType::i64) append(output.values<std::int64_t>(array.name));
  }
  return all;
}

TEST_CASE("threads, workers and interruptions change no byte of a sweep") {
  const TempDir dir;
  const SweepPlan sweep = plan();
  const SweepResult whole = run(sweep);
  CHECK(whole.blocks.size() == 2 * 3 * 7);  // traces, layers, pairs: full takes no budget
  CHECK_HAS(sweep_csv(whole), "\n\"b,\"\"odd\"\".h5\",prefill,full,none,");
  const auto is_whole = [&](const SweepResult& result) {
    CHECK(sweep_csv(result) == sweep_csv(whole));
    CHECK(sweep_json(result) == sweep_json(whole));
    CHECK(arrays_of(result) == arrays_of(whole));
  };
  is_whole(run(sweep, 3));

  // several at once in one folder, of which each does what the others are not at
  std::vector<std::jthread> workers;
  for (int w = 0; w < 3; ++w) {
    workers.emplace_back([&] {
      ThreadPool pool(1);
      Store store(dir.path() / "shared");
      run_items(sweep_work(sweep, pool), store, OnFailure::keep, {}, {});
    });
  }
  workers.clear();
  ThreadPool pool(1);
  const Work work = sweep_work(sweep, pool);
  is_whole(sweep_result(sweep, work, Store(dir.path() / "shared")));
  CHECK(fs::is_empty(dir.path() / "shared" / "leases"));

  // a worker's file cut anywhere behind its first line: whole answers stay, the torn one is made
  // again
  Store alone(dir.path() / "alone");
  run_sweep(sweep, alone, pool);
  const fs::path segment = fs::directory_iterator(alone.folder() / "answers")->path();
  const std::string text = read_file(segment);
  const std::size_t header = text.find('\n') + 1;
  for (const std::size_t cut :
       {header, header + 1, header + (text.size() - header) / 2, text.size() - 1}) {
    const fs::path folder = dir.path() / fmt::format("cut-{}", cut);
    fs::create_directories(folder / "answers");
    std::ofstream(folder / "answers" / "w.journal", std::ios::binary) << text.substr(0, cut);
    Store store(folder);
    CHECK(store.n_known() < work.keys.size());
    is_whole(run_sweep(sweep, store, pool));
  }
}

TEST_CASE("a stop keeps the finished items and a resumed sweep goes on") {
  const TempDir dir;
  const SweepPlan sweep = plan();
  std::stop_source stop;
  ThreadPool pool(1);
  Store store(dir.path() / "s");
  CHECK_THROWS_AS(run_sweep(
                      sweep, store, pool,
                      [&](const Progress& p) {
                        if (p.done > p.total / 2) stop.request_stop();
                      },
                      stop.get_token()),
                  Interrupted);
  CHECK(store.n_known() > 0);
  CHECK(store.n_known() < sweep.items.size());
  CHECK(sweep_csv(run_sweep(sweep, store, pool)) == sweep_csv(run(sweep)));
}

TEST_CASE("answers with missing or foreign rows are refused") {
  const SweepPlan sweep = plan();
  ThreadPool pool(1);
  const Work work = sweep_work(sweep, pool);
  Store whole;
  run_sweep(sweep, whole, pool);
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
