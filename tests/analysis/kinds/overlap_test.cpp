// What methods share, against lists written down by hand and exact rows by three loops.
#include "analysis/kinds/overlap.hpp"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include "analysis/base/statistics.hpp"
#include "core/attention/topk.hpp"
#include "core/sim/replay_calls.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/kinds/on_pool.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::overlap_test {

using Keys = std::set<Index>;

constexpr test::OnPool run{analyze_overlap};

/// Eight keys of a step at `pos`, by the controls' own definitions.
Keys recent(Index pos, Index n = 8) {
  Keys keys;
  for (Index key = pos - n; key < pos; ++key) keys.insert(key);
  return keys;
}
Keys sink_recent(Index pos) {
  Keys keys = recent(pos, 4);
  keys.insert({0, 1, 2, 3});
  return keys;
}
Keys strided(Index pos) {
  Keys keys;
  for (Index key = 0; key < pos; key += (pos - 1) / 8 + 1) keys.insert(key);
  return keys;
}

struct Shares {
  double jaccard, shared, first, second;
};
Shares shares_of(const Keys& a, const Keys& b, const std::vector<double>& row) {
  Shares out{};
  double n_both = 0.0, n_either = 0.0;
  for (Index key = 0; key < static_cast<Index>(row.size()); ++key) {
    const bool in_a = a.contains(key), in_b = b.contains(key);
    n_both += in_a && in_b;
    n_either += in_a || in_b;
    (in_a && in_b ? out.shared : in_a ? out.first : out.second) += in_a || in_b ? row[key] : 0.0;
  }
  out.jaccard = n_both / n_either;
  return out;
}

TEST_CASE("overlap: couples and all others are counted as by hand") {
  test::PlantOptions plant{.sink = 2.0, .has_sink_logits = true};
  const MemoryTrace trace = test::planted_trace(plant);
  OverlapOptions options;
  options.selector = "recent,sink-recent,strided";
  options.budget = "8";
  options.phase = Phase::decode;
  options.steps = 5;
  MemoryResult result;
  const auto summary = run(trace, options, result);
  REQUIRE(summary["couples"].size() == 6);
  CHECK(summary["couples"][3]["second"] == "others");

  const auto calls = plan_calls(trace.info(), {.phase = Phase::decode, .steps = 5}, "");
  std::size_t at = 0;
  for (Index layer = 0; layer < plant.n_layers; ++layer) {
    for (Index head = 0; head < plant.n_q; ++head) {
      for (int couple = 0; couple < 6; ++couple, ++at) {
        Shares mean{};
        for (const TokenRange& call : calls) {
          const Keys lists[] = {recent(call.begin), sink_recent(call.begin), strided(call.begin)};
          Keys others;
          for (int m = 0; m < 3; ++m)
            if (m != couple - 3) others.insert(lists[m].begin(), lists[m].end());
          const int firsts[] = {0, 0, 1, 0, 1, 2}, seconds[] = {1, 2, 2};
          const Shares one =
              shares_of(lists[firsts[couple]], couple < 3 ? lists[seconds[couple]] : others,
                        test::naive_row(trace, layer, head, call.begin));
          const auto n = static_cast<double>(calls.size());
          mean = {mean.jaccard + one.jaccard / n, mean.shared + one.shared / n,
                  mean.first + one.first / n, mean.second + one.second / n};
        }
        CAPTURE(layer, head, couple);
        CHECK(result.values<float>("jaccard")[at] == Approx(mean.jaccard));
        CHECK(result.values<float>("shared_mass")[at] == Approx(mean.shared));
        CHECK(result.values<float>("first_mass")[at] == Approx(mean.first));
        CHECK(result.values<float>("second_mass")[at] == Approx(mean.second));
      }
    }
  }
  CHECK(at == result.values<float>("jaccard").size());
}

TEST_CASE("overlap: the call's own keys count nowhere, and budgets do not mix") {
  const MemoryTrace trace = test::planted_trace({});
  OverlapOptions options;
  options.selector = "recent,strided,full";
  options.budget = "4,8";
  options.chunk = 16;
  MemoryResult result;
  const auto summary = run(trace, options, result);
  REQUIRE(summary["couples"].size() == 2 * (3 + 3));
  for (const auto& one : summary["couples"]) {
    if (one["second"] == "full") CHECK(one["first_mass"] == 0.0);
    CHECK(one["jaccard"].get<double>() < 1.0);
  }
  // full is the last one of each budget: the more its others keep, the less it keeps alone
  const auto& small = summary["couples"][5];
  const auto& large = summary["couples"][11];
  CHECK(small["first"] == "full");
  CHECK(small["second"] == "others");
  CHECK(small["budget"] == "tokens=4");
  CHECK(large["budget"] == "tokens=8");
  CHECK(small["first_mass"].get<double>() > large["first_mass"].get<double>());
  CHECK(small["shared_mass"].get<double>() + small["first_mass"].get<double>() ==
        Approx(large["shared_mass"].get<double>() + large["first_mass"].get<double>()));
}

TEST_CASE("row sharing: keys of the rows of a verification are counted as by hand") {
  const MemoryTrace trace = test::planted_trace({});
  RowSharingOptions options;
  options.selector = "oracle-topk,recent";
  options.budget = "8";
  MemoryResult result;
  test::OnPool{analyze_row_sharing}(trace, options, result);
  Mean of_row, of_call, share, jaccard;
  for (const TokenRange& call : plan_calls(trace.info(), {.phase = Phase::verify}, "")) {
    std::map<Index, int> keepers;
    double n_kept = 0.0;
    for (Index pos = call.begin; pos < call.end; ++pos) {
      for (const Index key : top_k(test::naive_row(trace, 1, 2, pos), 8))
        if (key < call.begin && ++keepers[key] > 0) n_kept += 0.25;
    }
    const auto n = static_cast<double>(keepers.size());
    of_row.add(n_kept);
    of_call.add(n);
    share.add(n_kept / n);
    jaccard.add(static_cast<double>(std::ranges::count(keepers | std::views::values, 4)) / n);
  }
  const std::size_t at = (trace.info().q_heads.size() + 2) * 2;  // layer 1, head 2
  CHECK(result.values<float>("row_keys")[at] == Approx(of_row.value()));
  CHECK(result.values<float>("call_keys")[at] == Approx(of_call.value()));
  CHECK(result.values<float>("row_share")[at] == Approx(share.value()));
  CHECK(result.values<float>("jaccard")[at] == Approx(jaccard.value()));
  CHECK(jaccard.value() < 1.0);
  CHECK(result.values<float>("jaccard")[at + 1] == 1.0f);  // recent: one list for all rows
}

}  // namespace kvscope::overlap_test
