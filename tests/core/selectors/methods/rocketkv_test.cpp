// RocketKV: its second stage against loops, the whole as the stack that it stands for.
#include <fmt/format.h>

#include "core/selectors/method_spec.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::rocketkv_test {

/// Scores of the past keys of one KV head by loops: chunks of `chunk` alive keys, r channels.
std::vector<double> naive_scores(const CallFixture& fixture, Index kv_head, Index chunk, Index r) {
  const Index d = fixture.q.dim(2);
  std::vector<KeyPos> alive;
  for (Index pos = 0; pos < fixture.call.pos_begin; ++pos) {
    if (fixture.alive.is_alive(kv_head, static_cast<KeyPos>(pos)))
      alive.push_back(static_cast<KeyPos>(pos));
  }
  std::vector<double> size(static_cast<std::size_t>(d), 0.0);
  std::vector<double> sum(static_cast<std::size_t>(d), 0.0);
  const Index first_head = kv_head * fixture.group();
  for (Index q_head = first_head; q_head < first_head + fixture.group(); ++q_head) {
    for (Index row = 0; row < fixture.call.n_tok; ++row) {
      for (Index c = 0; c < d; ++c) {
        size[c] += std::abs(static_cast<double>(fixture.q(q_head, row, c)));
        sum[c] += static_cast<double>(fixture.q(q_head, row, c));
      }
    }
  }
  const std::vector<KeyPos> channels = naive_top_k(size, r);
  const std::size_t n_chunks =
      (alive.size() + static_cast<std::size_t>(chunk) - 1) / static_cast<std::size_t>(chunk);
  std::vector<double> of_chunk(n_chunks, 0.0);
  for (Index q_head = first_head; q_head < first_head + fixture.group(); ++q_head) {
    for (Index row = 0; row < fixture.call.n_tok; ++row) {
      double all = 0.0;
      double read = 0.0;
      for (Index c = 0; c < d; ++c) all += std::abs(static_cast<double>(fixture.q(q_head, row, c)));
      for (const KeyPos c : channels)
        read += std::abs(static_cast<double>(fixture.q(q_head, row, Index{c})));
      const double temperature = std::sqrt(static_cast<double>(d) * read / all);
      std::vector<double> e(n_chunks, 0.0);
      double total = 0.0;
      for (std::size_t i = 0; i < n_chunks; ++i) {
        double bound = 0.0;
        for (const KeyPos c : channels) {
          double extreme = sum[c] >= 0.0 ? -1e300 : 1e300;
          for (std::size_t j = i * static_cast<std::size_t>(chunk);
               j < std::min(alive.size(), (i + 1) * static_cast<std::size_t>(chunk)); ++j) {
            const auto x = static_cast<double>(fixture.k(kv_head, Index{alive[j]}, Index{c}));
            extreme = sum[c] >= 0.0 ? std::max(extreme, x) : std::min(extreme, x);
          }
          bound += static_cast<double>(fixture.q(q_head, row, Index{c})) * extreme;
        }
        e[i] = std::exp(bound / temperature);
        // the softmax is over tokens, each with its chunk's score: the last chunk may be short
        for (std::size_t j = i * static_cast<std::size_t>(chunk);
             j < std::min(alive.size(), (i + 1) * static_cast<std::size_t>(chunk)); ++j)
          total += e[i];
      }
      for (std::size_t i = 0; i < n_chunks; ++i) of_chunk[i] += e[i] / total;
    }
  }
  std::vector<double> scores(static_cast<std::size_t>(fixture.call.pos_begin),
                             -std::numeric_limits<double>::infinity());
  for (std::size_t j = 0; j < alive.size(); ++j)
    scores[alive[j]] = of_chunk[j / static_cast<std::size_t>(chunk)];
  return scores;
}

TEST_CASE("rocket2: lists are those of loops over chunks and channels") {
  struct Case {
    double compression;
    Index chunk;
    Index r;
  };
  // chunk = ceil(sqrt c); r = floor(16 chunk / c)
  for (const Case& one : {Case{16.0, 4, 4}, Case{9.0, 3, 5}, Case{10.0, 4, 6}, Case{1.0, 1, 16},
                          Case{400.0, 20, 1}}) {
    for (unsigned seed = 1; seed <= 6; ++seed) {
      SeededStep fixture(130, seed);
      fixture.call.budget = Budget::parse("tokens=30");
      const auto selector = made(fmt::format("rocket2:compression={}", one.compression), fixture);
      SelectionTrace trace;
      fixture.call.trace = &trace;
      const Selection selection = selector->select(fixture.call);
      for (Index kv_head = 0; kv_head < 2; ++kv_head) {
        INFO("c " << one.compression << ", seed " << seed << ", KV head " << kv_head);
        const std::vector<double> naive = naive_scores(fixture, kv_head, one.chunk, one.r);
        for (std::size_t pos = 0; pos < naive.size(); ++pos) {
          const double found = trace.scores[kv_head][pos];
          if (std::isinf(naive[pos])) {
            CHECK(std::isinf(found));
          } else {
            CHECK(found == Catch::Approx(naive[pos]).epsilon(1e-6));
          }
        }
        CHECK(selection.at(kv_head).scored() == naive_top_k(trace.scores[kv_head], 30));
        CHECK(selection.at(kv_head).forced() == positions(130, 130 + fixture.call.n_tok));
      }
    }
  }
}

TEST_CASE("rocketkv: it is the stack of its two stages") {
  const Sequence sequence =
      random_sequence({.n_tokens = 120, .chunk = 40, .n_decode = 15, .has_ties = false});
  const Budget budget = Budget::parse("tokens=9");
  const auto whole =
      run_all("rocketkv:prompt-budget=tokens=30,window=8,kernel=5,compression=9", sequence, budget);
  CHECK(whole == run_all("snapkv:window=8,kernel=5,pooling=max@tokens=30+rocket2:compression=9",
                         sequence, budget));
  CHECK(whole.back().scored[0].size() == 9);
  const SelectorCaps caps = MethodSpec("rocketkv").caps();
  const SelectorCaps stack = MethodSpec("snapkv@tokens=2048+rocket2").caps();
  CHECK(caps.permanent == stack.permanent);
  CHECK(caps.owner == stack.owner);
  CHECK(caps.prefill == stack.prefill);
  CHECK(caps.decode == stack.decode);
  CHECK(caps.verify == stack.verify);
  CHECK(caps.budgets == stack.budgets);
  CHECK(caps.needs_values == stack.needs_values);
  CHECK(caps.needs_probs == stack.needs_probs);
}

}  // namespace kvscope::test::rocketkv_test
