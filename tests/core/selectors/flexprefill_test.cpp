// FlexPrefill against loops: its two kinds of heads, their test, and what the original's 0 * log 0
// would do.
#include <fmt/format.h>

#include <functional>

#include "core/selectors/method_spec.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::flexprefill_test {

struct NaiveFlex {
  Index block;
  double gamma, tau;
  Index min_blocks, n_voters, n_local;
};

/// What loops find of one query head.
struct FlexHead {
  bool is_query_aware = false;
  double divergence = 0.0;
  std::vector<std::vector<KeyPos>> lists;  // of each block of queries
};

std::vector<double> naive_block_softmax(const CallFixture& f, Index q_head, Index row_begin,
                                        Index row_end, Index block, Index n_blocks) {
  std::vector<double> weights(static_cast<std::size_t>(n_blocks), 0.0);
  double total = 0.0;
  for (Index b = 0; b < n_blocks; ++b) {
    double score = 0.0;
    double n = 0.0;
    for (Index t = b * block; t < std::min((b + 1) * block, f.k.dim(1)); ++t) {
      if (!f.alive.is_alive(q_head / f.group(), static_cast<KeyPos>(t))) continue;
      n += 1.0;
      for (Index row = row_begin; row < row_end; ++row)
        score += f.logit(q_head, row, t) / static_cast<double>(row_end - row_begin);
    }
    if (n > 0.0) weights[b] = std::exp(score / n);
    total += weights[b];
  }
  for (double& w : weights) w /= total;
  return weights;
}

FlexHead naive_flex(const CallFixture& f, const NaiveFlex& how, Index q_head) {
  const Index n_ctx = f.k.dim(1);
  const Index n_tok = f.call.n_tok;
  const Index begin = f.call.pos_begin;
  const Index n_blocks = (n_ctx - 1) / how.block + 1;
  const Index first_voter = n_tok - std::min(n_tok, how.n_voters);
  std::vector<double> columns(static_cast<std::size_t>(n_ctx), 0.0), offsets(columns),
      truth(static_cast<std::size_t>(n_blocks), 0.0);
  for (Index row = first_voter; row < n_tok; ++row) {
    const auto weights = f.weights(q_head, row);
    for (Index t = 0; t <= begin + row; ++t) {
      const double w = weights[t] / static_cast<double>(n_tok - first_voter);
      columns[t] += w;
      offsets[begin + row - t] += w;
      truth[t / how.block] += w;
    }
  }
  FlexHead out;
  const auto guess = naive_block_softmax(f, q_head, first_voter, n_tok, how.block, n_blocks);
  double js = 0.0;
  for (std::size_t b = 0; b < truth.size(); ++b) {
    const double mean = (truth[b] + guess[b]) / 2.0;
    if (truth[b] > 0.0) js += 0.5 * truth[b] * std::log(truth[b] / mean);
    if (guess[b] > 0.0) js += 0.5 * guess[b] * std::log(guess[b] / mean);
  }
  out.divergence = std::sqrt(js);
  out.is_query_aware = out.divergence < how.tau;
  const auto best_blocks = [&](const std::vector<double>& votes) {
    std::vector<double> falling(votes);
    std::ranges::sort(falling, std::greater<>());
    Index n_tokens = 1;
    double sum = 0.0;
    for (const double v : falling) {
      sum += v;
      if (sum <= how.gamma) ++n_tokens;
    }
    const Index n =
        out.is_query_aware ? how.min_blocks : std::max(how.min_blocks, n_tokens / how.block + 1);
    std::vector<double> sums(static_cast<std::size_t>(n_blocks), 0.0);
    for (std::size_t i = 0; i < votes.size(); ++i)
      sums[i / static_cast<std::size_t>(how.block)] += votes[i];
    sums[0] = 1e9;
    return naive_top_k(sums, n);
  };
  const auto vertical = best_blocks(columns);
  const auto slash = best_blocks(offsets);
  std::vector<std::vector<double>> pairs;
  std::vector<std::vector<bool>> kept;
  for (Index first = 0; first < n_tok; first += how.block) {
    const Index end = std::min(first + how.block, n_tok);
    const Index seen = (begin + end - 1) / how.block + 1;
    pairs.push_back(naive_block_softmax(f, q_head, first, end, how.block, seen));
    std::vector<bool> keep(static_cast<std::size_t>(seen), false);
    for (Index b = 0; b < seen; ++b) {
      bool is_in = b == 0 || b >= std::max<Index>(0, begin + first - how.n_local) / how.block;
      is_in = is_in || std::ranges::find(vertical, b) != vertical.end();
      for (Index own = (begin + first) / how.block; own < seen; ++own)
        is_in = is_in || std::ranges::find(slash, own - b) != slash.end();
      keep[b] = is_in;
    }
    kept.push_back(keep);
  }
  double covered = 0.0;
  std::vector<std::vector<bool>> taken;
  for (const auto& row : pairs) taken.emplace_back(row.size(), false);
  while (out.is_query_aware && covered < how.gamma * static_cast<double>(pairs.size())) {
    std::size_t at = pairs.size(), of = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      for (std::size_t b = 0; b < pairs[i].size(); ++b)
        if (!taken[i][b] && (at == pairs.size() || pairs[i][b] > pairs[at][of])) at = i, of = b;
    }
    if (at == pairs.size()) break;
    taken[at][of] = kept[at][of] = true;
    covered += pairs[at][of];
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    std::vector<KeyPos> keys;
    const Index end = begin + std::min((static_cast<Index>(i) + 1) * how.block, n_tok);
    for (Index t = 0; t < end; ++t) {
      if (kept[i][t / how.block] && f.alive.is_alive(q_head / f.group(), static_cast<KeyPos>(t)))
        keys.push_back(static_cast<KeyPos>(t));
    }
    out.lists.push_back(keys);
  }
  return out;
}

TEST_CASE("flexprefill: loops agree on both kinds of heads, in one piece and in chunks") {
  struct Case {
    Index n_past, n_tok, n_local;
    double strength;
  };
  Index n_aware = 0;
  Index n_others = 0;
  for (const Case one :
       {Case{64, 24, 0, 0.4}, Case{64, 24, 20, 3.0}, Case{0, 60, 0, 1.0}, Case{59, 21, 0, 3.0}}) {
    for (const bool has_dead : {false, true}) {
      CallFixture fixture({.n_q = 4, .n_kv = 2, .n_past = one.n_past, .n_tok = one.n_tok});
      for (float& x : fixture.q.flat()) x *= static_cast<float>(one.strength);
      for (KeyPos pos = 9; has_dead && pos < 24; ++pos) fixture.alive.kill(0, pos);
      const NaiveFlex how{8, 0.6, 0.25, 1, 8, one.n_local};
      const std::string spec = fmt::format(
          "flexprefill:block=8,gamma=0.6,tau=0.25,min-budget=8,n-voters=8,n-local={}", one.n_local);
      const Selection selection = made(spec, fixture)->select(fixture.call);
      for (Index h = 0; h < 4; ++h) {
        const FlexHead expected = naive_flex(fixture, how, h);
        ++(expected.is_query_aware ? n_aware : n_others);
        INFO(one.n_past << " past, dead " << has_dead << ", head " << h << ", divergence "
                        << expected.divergence);
        for (std::size_t i = 0; i < expected.lists.size(); ++i)
          CHECK(merged(selection.list(h, static_cast<Index>(i) * 8)) == expected.lists[i]);
      }
    }
  }
  CHECK(n_aware >= 4);  // otherwise one of the two is not tested
  CHECK(n_others >= 4);
}

TEST_CASE("flexprefill: a block without any attention leaves the divergence a number") {
  // Two blocks of 8 whose scores are 4000 below the rest: their truth and their estimate underflow
  // to 0. The others agree with their means exactly, so the head is query-aware; 0 * log 0 as NaN
  // would make it vertical-slash.
  CallFixture fixture({.n_q = 1, .n_kv = 1, .d_head = 16, .n_past = 56, .n_tok = 8});
  for (Index row = 0; row < 8; ++row) {
    for (Index c = 0; c < 16; ++c) fixture.q(0, row, c) = c == 0 ? 40.0f : 0.0f;
  }
  for (Index t = 0; t < 64; ++t) {
    for (Index c = 0; c < 16; ++c)
      fixture.k(0, t, c) = c == 0 && (t / 8 == 2 || t / 8 == 4) ? -400.0f : 0.0f;
  }
  const FlexHead expected = naive_flex(fixture, {8, 0.5, 0.2, 1, 8, 0}, 0);
  REQUIRE(expected.is_query_aware);
  const Selection aware =
      made("flexprefill:block=8,gamma=0.5,tau=0.2,min-budget=8", fixture)->select(fixture.call);
  CHECK(merged(aware.list(0, 0)) == expected.lists[0]);
  // as a vertical-slash head it would keep other blocks
  const Selection other =
      made("flexprefill:block=8,gamma=0.5,tau=0,min-budget=8", fixture)->select(fixture.call);
  CHECK(merged(other.list(0, 0)) != expected.lists[0]);
}

}  // namespace kvscope::test::flexprefill_test
