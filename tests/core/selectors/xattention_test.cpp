// XAttention against antidiagonals by loops, with chunks and contexts that are no multiples of
// tiles, and dead keys.

#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::xattention_test {

/// What the block of queries that begins at `first` is estimated to attend to, block by block of
/// keys.
std::vector<double> naive_antidiagonal_sums(const CallFixture& f, Index block, Index stride,
                                            Index q_head, Index first) {
  const Index kv_head = q_head / f.group();
  const Index end = std::min(first + block, f.call.n_tok);
  const Index n_ctx = f.call.pos_begin + end;
  const Index n_blocks = (n_ctx - 1) / block + 1;
  std::vector<double> sums(static_cast<std::size_t>(n_blocks), 0.0);
  for (Index r = first; r < end; r += stride) {
    const Index last = f.call.pos_begin + std::min(r + stride, f.call.n_tok) - 1;
    std::vector<double> weights(static_cast<std::size_t>(last / stride + 1), 0.0);
    double total = 0.0;
    for (std::size_t v = 0; v < weights.size(); ++v) {
      double score = 0.0;
      bool has_keys = false;
      for (Index s = 0; s < stride; ++s) {
        const Index row = r + stride - 1 - s;
        const Index key = static_cast<Index>(v) * stride + s;
        if (key >= f.k.dim(1) || !f.alive.is_alive(kv_head, static_cast<KeyPos>(key))) continue;
        has_keys = true;
        if (row < f.call.n_tok) score += f.logit(q_head, row, key) / static_cast<double>(stride);
      }
      weights[v] = has_keys ? std::exp(score) : 0.0;
      total += weights[v];
    }
    for (std::size_t v = 0; v < weights.size(); ++v)
      sums[v * static_cast<std::size_t>(stride) / static_cast<std::size_t>(block)] +=
          weights[v] / total;
  }
  return sums;
}

/// The list of that block of queries.
std::vector<KeyPos> naive_antidiagonal_list(const CallFixture& f, Index block, Index stride,
                                            double tau, Index q_head, Index first) {
  const std::vector<double> sums = naive_antidiagonal_sums(f, block, stride, q_head, first);
  const Index kv_head = q_head / f.group();
  const Index n_ctx = f.call.pos_begin + std::min(first + block, f.call.n_tok);
  std::vector<bool> is_kept(sums.size(), false);
  double kept = 0.0;
  double all = 0.0;
  for (std::size_t b = 0; b < sums.size(); ++b) {
    all += sums[b];
    if (b == 0 || static_cast<Index>(b) >= (f.call.pos_begin + first) / block) {
      is_kept[b] = true;
      kept += sums[b];
    }
  }
  while (kept < tau * all) {
    std::size_t best = sums.size();
    for (std::size_t b = 0; b < sums.size(); ++b)
      if (!is_kept[b] && (best == sums.size() || sums[b] > sums[best])) best = b;
    if (best == sums.size()) break;
    is_kept[best] = true;
    kept += sums[best];
  }
  std::vector<KeyPos> keys;
  for (Index t = 0; t < n_ctx; ++t) {
    if (is_kept[t / block] && f.alive.is_alive(kv_head, static_cast<KeyPos>(t)))
      keys.push_back(static_cast<KeyPos>(t));
  }
  return keys;
}

TEST_CASE("xattention: loops agree for each head and block of queries") {
  struct Case {
    Index n_past, n_tok;
  };
  for (const Case one : {Case{64, 32}, Case{61, 21}, Case{0, 50}}) {
    for (const bool has_dead : {false, true}) {
      CallFixture fixture({.n_q = 4, .n_kv = 2, .n_past = one.n_past, .n_tok = one.n_tok});
      for (float& x : fixture.q.flat()) x *= 3.0f;
      for (KeyPos pos = 9; has_dead && pos < 27; ++pos) fixture.alive.kill(0, pos);
      if (has_dead) fixture.alive.kill(1, 2);
      const Selection selection =
          made("xattention:block=16,stride=4,tau=0.7", fixture)->select(fixture.call);
      fixture.call.budget = Budget::parse("p=0.7");
      const Selection by_budget =
          made("xattention:block=16,stride=4,sizes=budget", fixture)->select(fixture.call);
      bool saves = false;
      for (Index h = 0; h < 4; ++h) {
        for (Index first = 0; first < one.n_tok; first += 16) {
          INFO(one.n_past << " past, dead " << has_dead << ", head " << h
                          << ", block of queries from " << first);
          const auto expected = naive_antidiagonal_list(fixture, 16, 4, 0.7, h, first);
          CHECK(merged(selection.list(h, first)) == expected);
          CHECK(merged(by_budget.list(h, first)) == expected);
          saves = saves || static_cast<Index>(expected.size()) + 16 < one.n_past + first;
        }
      }
      if (one.n_past > 0) CHECK(saves);  // otherwise this shows nothing
    }
  }
}

TEST_CASE("xattention: tiles of one are the exact attention of blocks") {
  CallFixture fixture({.n_q = 2, .n_kv = 1, .n_past = 48, .n_tok = 16});
  for (float& x : fixture.q.flat()) x *= 3.0f;
  const Selection selection =
      made("xattention:block=16,stride=1,tau=0.8", fixture)->select(fixture.call);
  for (Index h = 0; h < 2; ++h) {
    std::vector<double> mass(4, 0.0);
    for (Index row = 0; row < 16; ++row) {
      const auto weights = fixture.weights(h, row);
      for (std::size_t t = 0; t < weights.size(); ++t) mass[t / 16] += weights[t] / 16.0;
    }
    double kept = mass[0] + mass[3];
    std::vector<KeyPos> expected = positions(0, 16);
    const std::size_t better = mass[1] >= mass[2] ? 1 : 2;
    for (const std::size_t b : {better, 3 - better}) {
      if (kept >= 0.8) break;
      kept += mass[b];
      for (const KeyPos pos :
           positions(static_cast<Index>(b) * 16, static_cast<Index>(b) * 16 + 16))
        expected.push_back(pos);
    }
    for (const KeyPos pos : positions(48, 64)) expected.push_back(pos);
    std::ranges::sort(expected);
    CHECK(merged(selection.list(h, 0)) == expected);
  }
}

}  // namespace kvscope::test::xattention_test
