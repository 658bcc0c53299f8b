// Equal cost: the search on known curves, and sweeps whose measured cost is what was asked for.
#include "analysis/sweep/match.hpp"

#include <fstream>

#include "analysis/sweep/match_replay.hpp"
#include "analysis/sweep/sweep.hpp"
#include "analysis/sweep/sweep_work.hpp"
#include "core/base/progress.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/run_sweep.hpp"
#include "tests/support/test.hpp"

namespace kvscope::match_test {

TEST_CASE("the search ends where the cost is met, from any guess and in either direction") {
  const auto tokens = BudgetSetting::of("oracle-topk", /*by_share=*/false, 4096);
  const MatchTarget target = MatchTarget::parse("keys=200");
  for (const double guess : {1.0, 200.0, 4096.0}) {
    const auto found = search_match(
        *tokens, target, [](double x) { return std::min(4096.0, 0.9 * x + 20.0); }, guess);
    INFO(guess);
    CHECK(found.note.empty());
    CHECK(found.reached == Approx(200.0).epsilon(kMatchTolerance));
    CHECK(found.value == std::round(found.value));
    CHECK(found.n_measured <= 12);
  }
  const auto falling =
      BudgetSetting::of("vattention", true, 4096);  // epsilon: more error, fewer keys
  REQUIRE(falling->falls());
  const auto found = search_match(*falling, target, [](double epsilon) { return 20.0 / epsilon; });
  CHECK(found.note.empty());
  CHECK(found.value == Approx(0.1).epsilon(0.02));
}

TEST_CASE("a cost that a method cannot have is named with what it can") {
  const auto tokens = BudgetSetting::of("quest", /*by_share=*/false, 4096);
  const MatchTarget target = MatchTarget::parse("keys=200");
  const auto pages = search_match(
      *tokens, target, [](double x) { return 16.0 * std::max(1.0, std::floor(x / 16.0)) + 3.0; });
  CHECK(pages.reached == 195.0);  // the nearer side
  CHECK_HAS(pages.note, "it steps from keys=195 with tokens=207 to keys=211 with tokens=208");
  const auto floor = search_match(*tokens, target, [](double x) { return 300.0 + x; });
  CHECK(floor.reached == 301.0);
  CHECK_HAS(floor.note, "not reached: the least is keys=301 with tokens=1");
  const auto ceiling = search_match(*tokens, target, [](double x) { return x / 100.0; });
  CHECK_HAS(ceiling.note, "the most is keys=40.96 with tokens=4096");
  const auto picky = search_match(*tokens, target, [](double x) {
    if (x < 500.0) throw ConfigError("wants 500");
    return x;
  });
  CHECK(picky.reached == 500.0);
  CHECK_HAS(picky.note, "wants 500");
  CHECK_SAYS(search_match(*tokens, target, [](double) -> double { throw ConfigError("never"); }),
             "never");
}

std::unique_ptr<TraceSource> planted(std::uint64_t seed) {
  test::PlantOptions plant{.n_layers = 3, .n_tokens = 160};
  plant.sink = plant.band = 1.0;
  plant.seed = seed;
  return std::make_unique<MemoryTrace>(test::planted_trace(plant));
}

SweepPlan matched_plan(const std::vector<std::string>& targets) {
  SweepOptions sweep{
      .selectors = {"full", "oracle-topk", "streamingllm", "quest:page-size=4,dense-layers=0",
                    "oracle-topp", "vattention", "lessismore:dense-layers=1", "snapkv:window=8"},
      .match = parse_matches(targets)};
  sweep.replay.calls.phase = Phase::decode;
  sweep.replay.calls.steps = 6;
  sweep.replay.dense_layers = std::nullopt;
  sweep.n_resamples = 10;
  return plan_sweep(
      {{"a.h5", [] { return planted(1); }, {}}, {"b.h5", [] { return planted(2); }, {}}},
      std::move(sweep));
}

SweepResult run(const SweepPlan& plan, int threads = 1) {
  ThreadPool pool(threads);
  Store store;
  return run_sweep(plan, store, pool);
}

TEST_CASE("nothing of the same keys holds more than the ceiling, which splits what is lost") {
  SweepPlan plan = matched_plan({"keys=12"});
  SweepOptions options = plan.options;
  options.with_ceiling = true;
  plan = plan_sweep(plan.traces, options);
  CHECK(plan.options.selectors.size() == 9);  // the oracle was there
  const SweepResult result = run(plan);
  CHECK(result.pairs.back() == "ceiling keys=12");
  for (std::size_t t = 0; t < 2; ++t) {
    std::vector<double> mass(plan.pairs.size());
    std::vector<double> choosing(plan.pairs.size());
    std::vector<double> dividing(plan.pairs.size());
    std::vector<bool> is_met(plan.pairs.size());
    for (const SweepBlock& block : result.blocks) {
      if (block.trace != t) continue;
      const SweepRow& row = block.rows.front();
      mass[block.pair] += row.number(SweepNumber::mass_mean) / 3.0;
      choosing[block.pair] += row.number(SweepNumber::lost_choosing) / 3.0;
      dividing[block.pair] += row.number(SweepNumber::lost_dividing) / 3.0;
      is_met[block.pair] = row.text(SweepText::match_note).empty();
      for (const SweepRow& one : block.rows) CHECK(one.number(SweepNumber::lost_choosing) >= 0.0);
    }
    const double most = mass.back();
    for (std::size_t p = 0; p < plan.pairs.size(); ++p) {
      INFO(result.pairs[p] << ": " << mass[p] << " of " << most);
      if (!is_met[p]) continue;
      CHECK(mass[p] + choosing[p] + dividing[p] == Approx(most));
      CHECK(dividing[p] > -0.002);  // costs are met to a hundredth
    }
    CHECK(choosing[1] == Approx(0.0).margin(1e-12));  // oracle-topk
    CHECK(dividing[1] > 0.003);
    CHECK(choosing[2] > 0.05);  // streamingllm
  }
  options.match = parse_matches({"bytes=8000"});
  CHECK(plan_sweep(plan.traces, options).options.selectors.size() == 8);
}

TEST_CASE("keys and bytes are matched as the table counts them") {
  for (const auto& [target, column] :
       {std::pair{"keys=30", SweepNumber::kept}, {"bytes=20000", SweepNumber::bytes}}) {
    SweepPlan plan = matched_plan({target});
    const SweepResult result = run(plan);
    for (std::size_t p = 0; p < result.pairs.size(); ++p) {
      double sum = 0.0;
      double reached = 0.0;
      for (const SweepBlock& block : result.blocks) {
        if (block.trace != 1 || block.pair != p) continue;
        sum += block.rows.front().number(column);
        reached = block.rows.front().number(SweepNumber::match_reached);
      }
      INFO(target << " " << result.pairs[p]);
      CHECK(sum / 3.0 == Approx(reached));
    }
  }
}

TEST_CASE("costs alone are those of a whole replay") {
  const auto trace = planted(4);
  ThreadPool pool(1);
  ReplayOptions options{.calls = {.chunk = 32}};
  const std::vector<ReplayPair> pairs = {{"quest:page-size=4", Budget::parse("24")},
                                         {"snapkv:window=4", Budget::parse("24")}};
  const auto whole = replay_layers(*trace, nullptr, {0, 2}, pairs, options, pool);
  options.only_costs = true;
  const auto costs = replay_layers(*trace, nullptr, {0, 2}, pairs, options, pool);
  for (std::size_t l = 0; l < whole.size(); ++l) {
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      for (const ReplayMetric metric :
           {ReplayMetric::kept, ReplayMetric::forced_share, ReplayMetric::union_keys,
            ReplayMetric::bytes, ReplayMetric::score_flops})
        CHECK(whole[l].pairs[p].of(metric) == costs[l].pairs[p].of(metric));
      CHECK(std::isnan(costs[l].pairs[p].of(ReplayMetric::mass)[0]));
      CHECK(whole[l].pairs[p].is_dense == costs[l].pairs[p].is_dense);
    }
  }
}

}  // namespace kvscope::match_test
