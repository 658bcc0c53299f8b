// One query under two answers, one row in two traces.
#include "gui/model/compare/compare_query.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "core/base/error.hpp"
#include "support/planted_trace.hpp"

namespace kvscope::gui::test::compare_query_test {

using Catch::Approx;
using kvscope::test::planted_trace;

AttentionRow row_of(std::vector<float> probs, Index begin = 0) {
  AttentionRow row{.visible = {begin, begin + static_cast<Index>(probs.size())}};
  row.query = row.visible.end - 1;
  row.probs = std::move(probs);
  row.max_key = begin + (std::max_element(row.probs.begin(), row.probs.end()) - row.probs.begin());
  return row;
}

TEST_CASE("keys are split into both, only A and only B, with their attention") {
  const QueryKeys q = split_keys(row_of({0.1F, 0.2F, 0.3F, 0.15F, 0.25F}), {0, 1, 4}, {1, 2});
  CHECK(q.both.keys == std::vector<KeyPos>{1});
  CHECK(q.only_a.keys == std::vector<KeyPos>{0, 4});
  CHECK(q.only_b.keys == std::vector<KeyPos>{2});
  CHECK(q.both.mass == Approx(0.2));
  CHECK(q.mass_a() == Approx(0.55));
  CHECK(q.mass_b() == Approx(0.5));
  CHECK(q.jaccard == Approx(0.25));
  const auto noted = most_attended_differences(q, 2);
  REQUIRE(noted.size() == 2);
  CHECK(noted[0].pos == 2);
  CHECK(noted[0].part == NotedKey::Part::only_b);
  CHECK(noted[1].pos == 4);
  CHECK(noted[1].part == NotedKey::Part::only_a);
  CHECK(split_keys(row_of({1.0F}), {}, {}).jaccard == 1.0);
}

TEST_CASE("the query that both measured is taken, with its exact row") {
  const MemoryTrace trace = planted_trace({});
  const auto kept = [](std::vector<Index> positions) {
    KeptRows rows;
    for (const Index pos : positions) {
      KeptRow row{.pos = pos, .visible = {0, pos + 1}, .keys = {0, static_cast<KeyPos>(pos)}};
      rows.rows.push_back(row);
    }
    return rows;
  };
  const KeptRows rows = kept({15, 31, 47});
  const QueryKeys q = compare_query_keys(trace, 1, 3, rows, rows, 33);
  CHECK(q.row.query == 31);
  const auto naive = kvscope::test::naive_row(trace, 1, 3, 31);
  CHECK(q.both.mass == Approx(naive[0] + naive[31]).epsilon(1e-5));
  CHECK_THROWS_AS(compare_query_keys(trace, 1, 3, rows, kept({16}), 33), ConfigError);
  CHECK_THROWS_AS(compare_query_keys(trace, 1, 3, rows, {}, 33), ConfigError);
}

TEST_CASE("total variation and KL are those of a loop, also with sinks and a window") {
  const AttentionRow a = row_of({0.5F, 0.25F, 0.25F});
  const AttentionRow b = row_of({0.25F, 0.25F, 0.5F});
  const RowDifference d = compare_rows(a, b);
  CHECK(d.total_variation == Approx(0.25));
  CHECK(d.kl_a_b == Approx(0.5 * std::log(2.0) + 0.25 * std::log(0.5)));
  CHECK(d.kl_b_a == Approx(0.25 * std::log(0.5) + 0.5 * std::log(2.0)));
  CHECK(d.difference == std::vector<float>{0.25F, 0.0F, -0.25F});
  const auto noted = largest_differences(d, 1);
  REQUIRE(noted.size() == 1);
  CHECK(noted[0].pos == 0);

  // B sees the last two keys only: A's first key is impossible there.
  const RowDifference windowed = compare_rows(a, row_of({0.5F, 0.5F}, 1));
  CHECK(std::isinf(windowed.kl_a_b));
  CHECK(std::isfinite(windowed.kl_b_a));
  CHECK(windowed.total_variation == Approx(0.5));

  AttentionRow with_sink = row_of({0.25F, 0.125F, 0.125F});
  with_sink.sink_weight = 0.5;
  const RowDifference sink_weight = compare_rows(a, with_sink);
  CHECK(sink_weight.total_variation == Approx(0.5));
  CHECK(std::isinf(sink_weight.kl_b_a));
  CHECK(sink_weight.kl_a_b == Approx(std::log(2.0)));

  const RowDifference tiny = compare_rows(a, row_of({0.5F, 0.5F, 0.0F}));
  CHECK(tiny.has_underflow);
  CHECK(std::isfinite(tiny.kl_a_b));
  CHECK_FALSE(d.has_underflow);
  const RowDifference same = compare_rows(a, a);
  CHECK(same.total_variation == 0.0);
  CHECK(same.kl_a_b == 0.0);
}

}  // namespace kvscope::gui::test::compare_query_test
