// QuoKA on the golden vector of its specification, and what its trace says.
#include "core/attention/quoka_scores.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::quoka_test {

/// The golden vector of the specification: 2 query heads, 1 KV head, 5 past keys, 4 queries.
void fill_golden(CallFixture& fixture) {
  const float q[] = {3, -3, -2, 3, 0, 1, 1, -3, -1, 1, 1, -2, 0, 1, -2, -1};
  const float k[] = {1, -2, -2, -1, 1, -1, -3, -3, 0, -3, 9, 9, 9, -9, -9, 9, 9, 0};
  std::copy(std::begin(q), std::end(q), fixture.q.flat().begin());
  std::copy(std::begin(k), std::end(k), fixture.k.flat().begin());
  fixture.call.budget = Budget::parse("tokens=2");
}

std::vector<KeyPos> golden_choice(std::string_view spec) {
  CallFixture fixture({.n_q = 2, .n_kv = 1, .d_head = 2, .n_past = 5, .n_tok = 4});
  fill_golden(fixture);
  const Selection selection = made(spec, fixture)->select(fixture.call);
  CHECK(selection.n_lists() == 1);
  CHECK(selection.at(0).forced() == positions(5, 9));
  return selection.at(0).scored();
}

TEST_CASE("quoka: golden vector and the variants that it separates") {
  CHECK(golden_choice("quoka:n-queries=2") == std::vector<KeyPos>{0, 2});
  CHECK(golden_choice("quoka:n-queries=2,pairing=position_sorted") == std::vector<KeyPos>{1, 3});
  CHECK(golden_choice("quoka:n-queries=2,pairing=shared_tokens") == std::vector<KeyPos>{1, 3});
  CHECK(golden_choice("quoka:n-queries=2,similarity=dot") == std::vector<KeyPos>{0, 4});
  CHECK(golden_choice("quoka:n-queries=2,aggregate=mean") == std::vector<KeyPos>{1, 3});
}

/// S-hat of the golden keys, as the selector says in its trace.
std::vector<double> golden_scores(std::string_view spec, SelectionTrace& trace,
                                  const std::vector<Index>& longer = {}) {
  CallFixture fixture({.n_q = 2, .n_kv = 1, .d_head = 2, .n_past = 5, .n_tok = 4});
  fill_golden(fixture);
  for (const Index pos : longer) {
    for (float& x : fixture.k.sub(0).row(pos)) x *= 64.0f;  // a power of two: exact
  }
  fixture.call.trace = &trace;
  made(spec, fixture)->select(fixture.call);
  CHECK(trace.scored == TokenRange{0, 5});
  return trace.scores.at(0);
}

TEST_CASE("quoka: the trace holds the golden vector's scores, choices and cosines") {
  SelectionTrace trace;
  const auto scores = golden_scores("quoka:n-queries=2", trace);
  const double expected[] = {0.052786, -0.161589, 0.120788, -0.195440, -0.052786};
  for (std::size_t t = 0; t < 5; ++t) CHECK(scores[t] == Catch::Approx(expected[t]).margin(1.5e-6));
  CHECK(trace.picks == std::vector<std::vector<Index>>{{1, 2}, {2, 1}});
  CHECK(trace.cosines[0][1] == Catch::Approx(-0.980581).margin(1.5e-6));
  CHECK(trace.cosines[1][3] == Catch::Approx(1.0));
  CHECK(trace.has_zero_mean == std::vector<std::uint8_t>{0});
  const double of_other_pairings[] = {0.003861, 0.062017, -0.015949, 0.060056, 0.031188};
  for (const char* pairing : {"position_sorted", "shared_tokens"}) {
    const auto other = golden_scores("quoka:n-queries=2,pairing=" + std::string(pairing), trace);
    for (std::size_t t = 0; t < 5; ++t)
      CHECK(other[t] == Catch::Approx(of_other_pairings[t]).margin(1.5e-6));
  }
  SelectionTrace of_long;
  CHECK(golden_scores("quoka:n-queries=2", of_long, {3}) == scores);  // the length does not matter
}

TEST_CASE("quoka: the trace says which head has a zero mean query, and what no slot may score") {
  CallFixture fixture({.n_q = 2, .n_kv = 2, .d_head = 4, .n_past = 8, .n_tok = 4});
  for (Index c = 0; c < 4; ++c) {  // the rows of head 1 cancel
    fixture.q(1, 2, c) = -fixture.q(1, 0, c);
    fixture.q(1, 3, c) = -fixture.q(1, 1, c);
  }
  fixture.call.budget = Budget::parse("tokens=3");
  SelectionTrace trace;
  fixture.call.trace = &trace;
  made("quoka:n-queries=2,scope=whole", fixture)->select(fixture.call);
  CHECK(trace.has_zero_mean == std::vector<std::uint8_t>{0, 1});
  CHECK(trace.picks[1] == std::vector<Index>{0, 1});
  CHECK(trace.scored == TokenRange{0, 12});
  CHECK(trace.scores[1][9] > kQuokaUnscored);
  CHECK(trace.scores[1][10] == kQuokaUnscored);  // later than both chosen queries
}

TEST_CASE("quoka: whole scope spends the budget on chunk keys too and keeps each query's own") {
  CallFixture fixture({.n_q = 4, .n_kv = 2, .n_past = 30, .n_tok = 12});
  fixture.call.budget = Budget::parse("tokens=6");
  const Selection selection = made("quoka:scope=whole,n-queries=4", fixture)->select(fixture.call);
  CHECK(selection.rows_per_list == 1);
  for (Index row = 0; row < 12; ++row) {
    const ListView list = selection.list(1, row);
    CHECK(list.forced() == std::vector<KeyPos>{static_cast<KeyPos>(30 + row)});
    CHECK(list.scored().size() <= 6);
  }
}

}  // namespace kvscope::test::quoka_test
