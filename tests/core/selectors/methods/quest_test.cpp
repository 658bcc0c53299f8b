// Quest: the bounds of the paper's figure, every published rule for pages, chunks, dead keys.
#include "core/selectors/key_dots.hpp"
#include "core/selectors/page_lists.hpp"
#include "core/selectors/page_rows.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::quest_test {

// Figure 5 of the paper; it prints 32 for page B because of a sign slip, the sum is 35.
constexpr float kGoldenQ[] = {-1, 1, 3, 0, 1, 0, -3, 2};
constexpr float kGoldenK[] = {
    4,  -3, 4,  -1, 3, -4, 1,  3,  -3, -2, 0,  3,  0,  -4, -2, -3,  // page A
    -1, 3,  -1, 3,  1, -4, -4, -3, -2, -4, 0,  3,  -1, 2,  -3, -4,
    -4, 0,  3,  3,  3, 3,  -2, 3,  2,  2,  -3, -3, -3, 3,  -2, -2,  // page B
    -3, -3, 0,  2,  0, 2,  0,  4,  -2, -1, -1, -3, 2,  2,  -3, -1};

double naive_bound(const CallFixture& f, Index q_head, Index row, Index begin, Index end) {
  double sum = 0.0;
  for (Index c = 0; c < f.q.dim(2); ++c) {
    float low = f.k(q_head / f.group(), begin, c);
    float high = low;
    for (Index t = begin; t < end; ++t) {
      low = std::min(low, f.k(q_head / f.group(), t, c));
      high = std::max(high, f.k(q_head / f.group(), t, c));
    }
    const auto q = static_cast<double>(f.q(q_head, row, c));
    sum += std::max(q * static_cast<double>(low), q * static_cast<double>(high));
  }
  return sum;
}

/// Bounds of all pages for one query, in f64.
std::vector<double> bounds_of(const PageTable& table, std::span<const float> q) {
  std::vector<double> doubled(2 * q.size(), 0.0);
  PageBox::add_doubled(q, doubled);
  KeyDots dots;
  dots.compute(doubled, 1, table.rows(), {0, table.n_pages()});
  const auto row = dots.row(0);
  return {row.begin(), row.end()};
}

TEST_CASE("quest: bounds of the paper's figure, and the page that hides the best key") {
  PageTable table(8, 4, 16);
  table.append_up_to(TensorView<const float>(kGoldenK, {8, 8}));
  const auto bounds = bounds_of(table, kGoldenQ);
  CHECK(bounds[0] == 39.0);
  CHECK(bounds[1] == 35.0);

  CallFixture fixture(
      {.n_q = 1, .n_kv = 1, .d_head = 8, .n_past = 8, .n_tok = 1, .phase = Phase::decode});
  std::copy(std::begin(kGoldenQ), std::end(kGoldenQ), fixture.q.flat().begin());
  std::copy(std::begin(kGoldenK), std::end(kGoldenK), fixture.k.flat().begin());
  fixture.call.budget = Budget::parse("pages=1");
  const Selection selection = made("quest-frontier:page-size=4", fixture)->select(fixture.call);
  CHECK(selection.at(0).scored() == positions(0, 4));
  CHECK(selection.at(0).forced() == std::vector<KeyPos>{8});
}

TEST_CASE("quest: pages drawn at random are as many, of the same rule, and each equally often") {
  // 12 pages of 4 keys and the step's own: the current page is kept, two of the others are drawn
  std::vector<int> n_drawn(12, 0);
  constexpr int kSteps = 600;
  for (int step = 0; step < kSteps; ++step) {
    CallShape shape = step_shape(48);
    shape.layer = 2 + step;
    CallFixture fixture(shape);
    fixture.call.budget = Budget::parse("pages=3");
    const Selection drawn = made("quest:page-size=4,choice=random", fixture)->select(fixture.call);
    CHECK(drawn.at(0).size() ==
          made("quest:page-size=4", fixture)->select(fixture.call).at(0).size());
    for (const KeyPos pos : drawn.at(0).keys)
      n_drawn[std::min<std::size_t>(pos / 4, 11)] += pos < 48;
  }
  // 2 of 12 pages of 4 keys; a page's standard deviation is 9.1 steps, or 37 keys
  for (const int n : n_drawn) CHECK(std::abs(n - kSteps * 4 / 6) < 4 * 37);
}

TEST_CASE("pages kept: each published rule, and all of them where the budget covers the keys") {
  using enum PageRule;
  // "budget 32" of the passkey table is 3 pages = 48 tokens in the evaluation
  CHECK(pages_kept(eval, 32, 16, 10000, 625) == 3);
  CHECK(pages_kept(kernel, 32, 16, 10000, 625) == 2);
  CHECK(pages_kept(frontier, 40, 16, 10000, 625) == 2);
  CHECK(pages_kept(hub, 40, 16, 10000, 625) == 3);
  // the published quotient would be 6 and drop a page although the budget covers the context
  for (const PageRule rule : {eval, kernel, frontier, hub}) {
    CHECK(pages_kept(rule, 1024, 16, 100, 7) == 7);
    CHECK(pages_kept(rule, 100, 16, 100, 7) == 7);
    CHECK(pages_kept(rule, 1024, 16, 10, 1) == 1);
  }
  CHECK(pages_kept(eval, 99, 16, 100, 7) == 6);
  CHECK(pages_kept(kernel, 8, 16, 10000, 625) == 1);
  CHECK(pages_kept(kernel, 1 << 20, 16, 10000, 625) == 625);
}

TEST_CASE(
    "quest: chunked prefill sums bounds over queries and group and forces the chunk's pages") {
  CallFixture fixture({.n_q = 4, .n_kv = 2, .n_past = 43, .n_tok = 6});
  fixture.call.budget = Budget::parse("pages=2");
  const Selection selection = made("quest:page-size=8", fixture)->select(fixture.call);
  CHECK(selection.owner == ListOwner::kv_head);
  for (Index kv = 0; kv < 2; ++kv) {
    std::vector<double> sums(5, 0.0);
    for (Index p = 0; p < 5; ++p) {
      for (Index h = kv * 2; h < kv * 2 + 2; ++h) {
        for (Index row = 0; row < 6; ++row)
          sums[p] += naive_bound(fixture, h, row, p * 8, (p + 1) * 8);
      }
    }
    CHECK(selection.list(kv, 0).scored() == keys_of_pages(naive_top_k(sums, 2), 8, 49));
    CHECK(selection.list(kv, 0).forced() == positions(40, 49));
  }
}

TEST_CASE("quest: one-token pages rank as exact scores do; dead keys leave the boxes") {
  CallFixture fixture({.n_q = 2, .n_kv = 1, .n_past = 50, .n_tok = 1, .phase = Phase::decode});
  fixture.call.budget = Budget::parse("tokens=6");
  auto selector = made("quest-frontier:page-size=1,owner=q_head", fixture);
  const auto scores_of = [&](Index h) {
    std::vector<double> scores;
    for (Index t = 0; t < 50; ++t) {
      scores.push_back(fixture.sees(h, 0, t) ? fixture.logit(h, 0, t)
                                             : -std::numeric_limits<double>::infinity());
    }
    return scores;
  };
  const Selection before = selector->select(fixture.call);
  CHECK(before.at(1).scored() == naive_top_k(scores_of(1), 6));
  const KeyPos best = before.at(1).scored()[0];
  fixture.alive.kill(0, best);
  CHECK(selector->select(fixture.call).at(1).scored() == naive_top_k(scores_of(1), 6));

  // a huge dead key must not make its page attractive
  CallFixture pages({.n_q = 1, .n_kv = 1, .n_past = 40, .n_tok = 1, .phase = Phase::decode});
  pages.call.budget = Budget::parse("pages=1");
  for (Index c = 0; c < 16; ++c) pages.k(0, 9, c) = 100.0f * pages.q(0, 0, c);
  auto paged = made("quest-frontier:page-size=8", pages);
  CHECK(paged->select(pages.call).at(0).scored() == positions(8, 16));
  pages.alive.kill(0, 9);
  const Selection without_it = paged->select(pages.call);
  for (const KeyPos pos : without_it.at(0).scored()) CHECK(pos != 9);
}

}  // namespace kvscope::test::quest_test
