// Ada-KV: who keeps how many keys, against loops over the layer's votes.
#include <set>

#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::adakv_test {

constexpr Index kWindow = 3;

/// Votes of the last kWindow rows for the keys before them, pooled by maximum over 3 neighbours:
/// [n_kv][n].
std::vector<std::vector<double>> naive_votes(const CallFixture& fixture) {
  const Index n = fixture.k.dim(1) - kWindow;
  std::vector<std::vector<double>> pooled;
  for (Index kv_head = 0; kv_head < fixture.k.dim(0); ++kv_head) {
    std::vector<double> votes(static_cast<std::size_t>(n), 0.0);
    for (Index q_head = kv_head * fixture.group(); q_head < (kv_head + 1) * fixture.group();
         ++q_head) {
      for (Index row = fixture.call.n_tok - kWindow; row < fixture.call.n_tok; ++row) {
        const std::vector<double> weights = fixture.weights(q_head, row);
        for (Index j = 0; j < n; ++j) votes[j] += weights[j] / static_cast<double>(fixture.group());
      }
    }
    std::vector<double> out;
    for (Index j = 0; j < n; ++j) {
      double best = 0.0;
      for (Index i = std::max<Index>(0, j - 1); i <= std::min(n - 1, j + 1); ++i)
        best = std::max(best, votes[i]);
      out.push_back(best);
    }
    pooled.push_back(std::move(out));
  }
  return pooled;
}

/// Keys of each head among the layer's best `total`; `safe` keys of each head come first.
std::vector<Index> naive_counts(const std::vector<std::vector<double>>& votes, Index total,
                                Index safe) {
  struct Vote {
    bool is_safe;
    double vote;
    Index pos;
    std::size_t head;
  };
  std::vector<Vote> all;
  for (std::size_t h = 0; h < votes.size(); ++h) {
    const std::vector<KeyPos> best = naive_top_k(votes[h], safe);
    for (std::size_t j = 0; j < votes[h].size(); ++j) {
      const bool is_safe = std::ranges::binary_search(best, static_cast<KeyPos>(j));
      all.push_back({is_safe, votes[h][j], static_cast<Index>(j), h});
    }
  }
  std::ranges::sort(all, [](const Vote& a, const Vote& b) {
    if (a.is_safe != b.is_safe) return a.is_safe;
    if (!a.is_safe && a.vote != b.vote) return a.vote > b.vote;
    return std::pair(a.pos, a.head) < std::pair(b.pos, b.head);
  });
  std::vector<Index> counts(votes.size(), 0);
  for (Index i = 0; i < total; ++i) ++counts[all[i].head];
  return counts;
}

/// What a head has left: its best `n` and the window.
std::set<KeyPos> naive_kept(const std::vector<double>& votes, Index n) {
  std::set<KeyPos> kept;
  for (const KeyPos pos : naive_top_k(votes, n)) kept.insert(pos);
  for (Index j = 0; j < kWindow; ++j)
    kept.insert(static_cast<KeyPos>(static_cast<Index>(votes.size()) + j));
  return kept;
}

/// One head with flat attention beside a peaked one.
void make_unequal(CallFixture& fixture) {
  for (Index h = 0; h < fixture.group(); ++h) {
    for (Index row = 0; row < fixture.call.n_tok; ++row) {
      for (Index c = 0; c < fixture.q.dim(2); ++c) fixture.q(h, row, c) *= 3.0f;
    }
  }
  fixture.bind();
}

TEST_CASE("adakv: a layer's heads share n_kv budgets by their votes, above a floor") {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    CallFixture fixture({.n_past = 40, .n_tok = 6, .seed = seed});
    make_unequal(fixture);
    const auto votes = naive_votes(fixture);
    for (const Index budget : {Index{4}, Index{9}, Index{20}}) {
      fixture.call.budget = {Budget::Kind::tokens, static_cast<double>(budget)};
      const Index even = budget - kWindow;
      const auto floor = static_cast<Index>(0.2 * static_cast<double>(even));
      INFO("seed " << seed << ", budget " << budget);
      {
        AliveMask alive = fixture.alive;
        made("adakv:window=3,kernel=3,division=safeguard", fixture)->evict(fixture.call, alive);
        const std::vector<Index> counts = naive_counts(votes, 2 * even, floor);
        for (Index head = 0; head < 2; ++head) {
          const auto at = static_cast<std::size_t>(head);
          CHECK(alive_keys(alive, head) == naive_kept(votes[at], counts[at]));
          CHECK(counts[at] >= floor);
        }
      }
      AliveMask alive = fixture.alive;
      made("adakv:window=3,kernel=3", fixture)->evict(fixture.call, alive);
      const std::vector<Index> counts = naive_counts(votes, 2 * even, 0);
      std::vector<double> wanted;
      for (const Index count : counts)
        wanted.push_back(static_cast<double>(floor) + 0.8 * static_cast<double>(count));
      std::vector<Index> kept;
      for (const double x : wanted) kept.push_back(static_cast<Index>(std::floor(x)));
      Index left = 2 * even - kept[0] - kept[1];
      const std::size_t first =
          wanted[1] - std::floor(wanted[1]) > wanted[0] - std::floor(wanted[0]) ? 1 : 0;
      for (std::size_t i = 0; left > 0; ++i, --left) ++kept[(first + i) % 2];
      for (Index head = 0; head < 2; ++head) {
        const auto at = static_cast<std::size_t>(head);
        CHECK(alive_keys(alive, head) == naive_kept(votes[at], kept[at]));
      }
      CHECK(alive.n_alive(0) + alive.n_alive(1) == 2 * budget);
      CHECK(alive.n_alive(0) >= floor + kWindow);
      CHECK(alive.n_alive(1) >= floor + kWindow);
    }
  }
}

}  // namespace kvscope::test::adakv_test
