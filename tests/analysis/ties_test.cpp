// The census of ties: cuts by hand, counts against loops, and what must not change it.
#include "analysis/kinds/ties.hpp"

#include "analysis/kinds/tie_cut.hpp"
#include "core/sim/replay.hpp"
#include "tests/analysis/kit.hpp"

namespace kvscope::ties_test {

constexpr double kNone = -std::numeric_limits<double>::infinity();

TiesOptions options_for(const std::string& selector, Index budget, Index steps) {
  return TiesOptions{.selectors = {selector},
                     .budget = {Budget::Kind::tokens, static_cast<double>(budget)},
                     .steps = steps};
}

constexpr test::OnPool run{analyze_ties};

TEST_CASE("ties: the cut by hand") {
  const TieCut none = tie_cut(std::vector<double>{5, 4, 3, kNone}, 2);
  CHECK(none.has_cut);
  CHECK(!none.has_tie);
  CHECK(none.tied == 1);
  CHECK(none.changed == 0);
  CHECK(none.gap == 1.0);
  // 4 4 4 4 below one 5: three of them come in, one stays out
  const TieCut tie = tie_cut(std::vector<double>{4, 4, 5, 4, 1, 4}, 4);
  CHECK(tie.has_tie);
  CHECK(tie.tied == 4);
  CHECK(tie.changed == 1);
  CHECK(tie.gap == 0.0);
  CHECK(tie_cut(std::vector<double>{4, 4, 5, 4, 1, 4}, 3).changed == 2);
  CHECK(tie_cut(std::vector<double>{7, 7, 7, 7, 7}, 2).tied == 5);  // a row of equal scores
  CHECK(tie_cut(std::vector<double>{7, 7, 7, 7, 7}, 2).changed == 2);
  CHECK(!tie_cut(std::vector<double>{1, 2, kNone}, 2).has_cut);  // all candidates are kept
  CHECK(!tie_cut(std::vector<double>{1, 2}, 0).has_cut);
  CHECK(!tie_cut(std::vector<double>{}, 3).has_cut);
  CHECK(std::isnan(tie_cut(std::vector<double>{1, 2}, 2).gap));
  const TieCut with_nan = tie_cut(std::vector<double>{std::nan(""), 2, 1, 2}, 1);
  CHECK(with_nan.has_tie);
  CHECK(with_nan.tied == 2);
}

TEST_CASE("ties: the oracle's counts are those of loops, and what another order really changes") {
  test::PlantOptions plant{.n_tokens = 64};
  for (Index i = 0; i < 20; ++i) plant.duplicates.emplace_back(i, i + 21);
  plant.zero_keys = {50, 51, 52, 53};
  const MemoryTrace trace = test::planted_trace(plant);
  MemoryResult result;
  const auto summary = run(trace, options_for("oracle-topk", 12, 1000), result);
  REQUIRE(summary["rows"].size() == 12);  // own units, pages of 16 and 64, four types each
  double n_ties = 0.0;
  double n_tied = 0.0;
  double n_rows = 0.0;
  double n_changed = 0.0;
  for (Index layer = 0; layer < 2; ++layer) {
    for (Index head = 0; head < 4; ++head) {
      for (Index pos = 32; pos < 64; ++pos) {
        std::vector<double> scores = test::naive_scores(trace, layer, head, pos);
        std::sort(scores.rbegin(), scores.rend());
        const double kth = scores[11];
        const auto n_equal = static_cast<double>(std::ranges::count(scores, kth));
        const auto n_above =
            static_cast<double>(std::ranges::count_if(scores, [&](double x) { return x > kth; }));
        n_rows += 1.0;
        if (scores[12] != kth) continue;
        n_ties += 1.0;
        n_tied += n_equal;
        n_changed += std::min(12.0 - n_above, n_equal - (12.0 - n_above));
      }
    }
  }
  REQUIRE(n_ties > 10.0);
  const auto& exact = summary["rows"][0];
  CHECK(exact["scores"] == "f64");
  CHECK(exact["rows"].get<double>() == n_rows);
  CHECK(exact["ties"].get<double>() == n_ties);
  CHECK(exact["tied"].get<double>() == Approx(n_tied / n_ties));
  CHECK(exact["changed"].get<double>() == Approx(n_changed / n_rows));

  // Lists of both orders, by a replay.
  ThreadPool pool(1);
  ReplayOptions replay{.calls = {.phase = Phase::decode, .steps = 1000}};
  std::set<KeyPos> first;
  double n_differ = 0.0;
  replay.on_row = [&](const MeasuredRow& row) {
    std::vector<KeyPos> only;
    std::ranges::set_difference(row.kept[0], row.kept[1], std::back_inserter(only));
    n_differ += static_cast<double>(only.size());
  };
  replay_layers(trace, nullptr, {0, 1},
                {{"oracle-topk+coarsen:scores=fp8", Budget::parse("12")},
                 {"oracle-topk+coarsen:scores=fp8,ties=last", Budget::parse("12")}},
                replay, pool);
  CHECK(summary["rows"][3]["scores"] == "fp8");
  CHECK(summary["rows"][3]["changed"].get<double>() == Approx(n_differ / n_rows));
  CHECK(summary["rows"][3]["ties"].get<double>() >= n_ties);
  CHECK(summary["rows"][3]["close_share"].get<double>() >=
        summary["rows"][2]["close_share"].get<double>());

  // The last line is of one number type at a time: of its rows with all sizes of pages.
  for (std::size_t type = 1; type < 4; ++type) {
    const auto name = summary["rows"][type]["scores"].get<std::string>();
    double rows = 0.0;
    double ties = 0.0;
    for (const auto& row : summary["rows"]) {
      if (row["scores"] != name) continue;
      rows += row["rows"].get<double>();
      ties += row["ties"].get<double>();
    }
    CHECK(summary["totals"]["tie_share_" + name].get<double>() == Approx(ties / rows));
  }
  CHECK_FALSE(summary["totals"].contains("tie_share"));
}

TEST_CASE("ties: other steps do not change what is written for a step") {
  test::PlantOptions plant{.n_tokens = 96, .duplicates = {{1, 9}, {2, 30}, {5, 31}}};
  const MemoryTrace trace = test::planted_trace(plant);
  for (const std::string selector :
       {"quest:page-size=4", "loki", "quoka", "sparq:mean-value=false"}) {
    INFO(selector);
    MemoryResult one;
    MemoryResult few;
    run(trace, options_for(selector, 16, 1000), one);
    run(trace, options_for(selector, 16, 5), few);
    const auto all_pos = one.values<std::int64_t>("step_pos");
    const auto few_pos = few.values<std::int64_t>("step_pos");
    const std::size_t n_cases = one.values<double>("gap_steps").size() / 2;
    for (const std::string array : {"rows", "ties", "tied", "changed", "close"}) {
      for (std::size_t row = 0; row < 2 * n_cases; ++row) {
        for (std::size_t s = 0; s < few_pos.size(); ++s) {
          const auto at =
              static_cast<std::size_t>(std::ranges::find(all_pos, few_pos[s]) - all_pos.begin());
          const double a = few.values<double>(array)[row * few_pos.size() + s];
          const double b = one.values<double>(array)[row * all_pos.size() + at];
          CHECK((a == b || (std::isnan(a) && std::isnan(b))));
        }
      }
    }
  }
}

TEST_CASE(
    "ties: equal rows are all tied, a NaN is refused by name, methods without scores say so") {
  test::PlantOptions plant{.n_tokens = 64, .key_scale = 0.0};
  MemoryTrace flat = test::planted_trace(plant);
  MemoryResult result;
  const auto equal = run(flat, options_for("oracle-topk", 10, 4), result);
  CHECK(equal["rows"][0]["tie_share"].get<double>() == 1.0);
  CHECK(equal["rows"][0]["changed"].get<double>() == 10.0);

  plant.key_scale = 1.0;
  MemoryTrace broken = test::planted_trace(plant);
  broken.q(1)(2, 63, 3) = std::numeric_limits<float>::quiet_NaN();  // the last step of layer 1
  MemoryResult unused;
  CHECK_SAYS(run(broken, options_for("quoka", 10, 4), unused),
             "q head 2: value nan at position 63");

  MemoryResult refused;
  const auto none = run(flat, options_for("streamingllm", 10, 4), refused);
  CHECK_HAS(none["rows"][0]["refused"].get<std::string>(), "gives no score");
  CHECK(none["rows"][0]["tie_share"].is_null());
  CHECK_SAYS(run(flat, options_for("quest", 10, 1), refused), "steps");
  TiesOptions mass = options_for("quest", 10, 4);
  mass.budget = Budget::parse("p=0.5");
  CHECK_SAYS(run(flat, mass, refused), "expected tokens=N");
}

}  // namespace kvscope::ties_test
