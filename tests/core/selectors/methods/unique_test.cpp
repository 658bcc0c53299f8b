// UNIQUE against moments by two loops.
#include <random>

#include "tests/core/selectors/call_fixture.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::unique_test {

/// The score of the keys of one KV head in [begin, end) that are alive, for one query.
double naive_unique_score(const CallFixture& f, Index q_head, Index row, Index begin, Index end,
                          double a) {
  const Index kv_head = q_head / f.group();
  double score = 0.0;
  for (Index c = 0; c < f.q.dim(2); ++c) {
    double mean = 0.0;
    double n = 0.0;
    for (Index t = begin; t < end; ++t) {
      if (!f.alive.is_alive(kv_head, static_cast<KeyPos>(t))) continue;
      mean += static_cast<double>(f.k(kv_head, t, c));
      n += 1.0;
    }
    mean /= n;
    double variance = 0.0;
    for (Index t = begin; t < end; ++t) {
      if (!f.alive.is_alive(kv_head, static_cast<KeyPos>(t))) continue;
      variance += std::pow(static_cast<double>(f.k(kv_head, t, c)) - mean, 2.0) / n;
    }
    const auto q = static_cast<double>(f.q(q_head, row, c));
    score += q * mean + a * std::abs(q) * std::sqrt(variance);
  }
  return score;
}

/// Positions of pages of 8, from the page `first` on.
std::vector<KeyPos> unique_pages(const std::vector<KeyPos>& pages, Index first) {
  std::vector<KeyPos> keys;
  for (const KeyPos page : pages) {
    for (Index t = (page + first) * 8; t < (page + first + 1) * 8; ++t)
      keys.push_back(static_cast<KeyPos>(t));
  }
  return keys;
}

constexpr std::string_view kUnique = "unique:page-size=8,sink=8,recent=20,deviations=1.5";

TEST_CASE("unique: loops agree in decode, per query head, by the group's sum and its largest") {
  CallFixture fixture({.n_q = 4, .n_kv = 2, .n_past = 90, .n_tok = 1, .phase = Phase::decode});
  fixture.call.budget = Budget::parse("tokens=31");  // 3 whole pages of 8
  // 91 keys; the last 20 are 71 to 90, which begin in page 8: pages 1 to 7 compete
  std::vector<std::vector<double>> scores(4);
  for (Index h = 0; h < 4; ++h) {
    for (Index p = 1; p < 8; ++p)
      scores[h].push_back(naive_unique_score(fixture, h, 0, p * 8, p * 8 + 8, 1.5));
  }
  std::vector<KeyPos> forced = positions(0, 8);
  for (const KeyPos pos : positions(64, 91)) forced.push_back(pos);
  SelectionTrace trace;
  fixture.call.trace = &trace;
  const Selection per_head = made(kUnique, fixture)->select(fixture.call);
  CHECK(trace.scored == TokenRange{1, 8});
  for (Index h = 0; h < 4; ++h) {
    const auto& expected = scores[h];
    CHECK(per_head.list(h, 0).scored() == unique_pages(naive_top_k(expected, 3), 1));
    CHECK(per_head.list(h, 0).forced() == forced);
    for (std::size_t p = 0; p < 7; ++p)
      CHECK(trace.scores[h][p] == Catch::Approx(expected[p]).epsilon(1e-6));
  }
  const Selection summed =
      made(std::string(kUnique) + ",owner=group_sum", fixture)->select(fixture.call);
  const Selection largest =
      made(std::string(kUnique) + ",owner=group_max", fixture)->select(fixture.call);
  for (std::size_t kv = 0; kv < 2; ++kv) {
    std::vector<double> sums, maxima;
    for (std::size_t p = 0; p < 7; ++p) {
      sums.push_back(scores[2 * kv][p] + scores[2 * kv + 1][p]);
      maxima.push_back(std::max(scores[2 * kv][p], scores[2 * kv + 1][p]));
    }
    CHECK(summed.at(static_cast<Index>(kv)).scored() == unique_pages(naive_top_k(sums, 3), 1));
    CHECK(largest.at(static_cast<Index>(kv)).scored() == unique_pages(naive_top_k(maxima, 3), 1));
  }
}

TEST_CASE("unique: a chunk is scored by evenly sampled queries; dead keys leave the moments") {
  CallFixture fixture({.n_q = 4, .n_kv = 2, .n_past = 60, .n_tok = 10});
  fixture.call.budget = Budget::parse("pages=2");
  for (const KeyPos pos : {9, 10, 17, 30}) fixture.alive.kill(1, pos);
  for (KeyPos pos = 24; pos < 32; ++pos) fixture.alive.kill(0, pos);  // a whole page
  const Selection selection =
      made(std::string(kUnique) + ",n-queries=4", fixture)->select(fixture.call);
  CHECK(selection.owner == ListOwner::kv_head);
  for (Index kv = 0; kv < 2; ++kv) {
    std::vector<double> sums;
    for (Index p = 1; p < 5; ++p) {  // recent: 61 - 20 = 41 on, which is in page 5
      double sum = 0.0;
      for (Index h = 2 * kv; h < 2 * kv + 2; ++h) {
        for (const Index row : {0, 2, 5, 7})
          sum += naive_unique_score(fixture, h, row, p * 8, p * 8 + 8, 1.5);
      }
      if (kv == 0 && p == 3) sum = -std::numeric_limits<double>::infinity();
      sums.push_back(sum);
    }
    std::vector<KeyPos> expected = unique_pages(naive_top_k(sums, 2), 1);
    std::erase_if(expected, [&](KeyPos pos) { return !fixture.alive.is_alive(kv, pos); });
    CHECK(selection.at(kv).scored() == expected);
    CHECK(selection.at(kv).forced().back() == 69);
  }
}

}  // namespace kvscope::test::unique_test
