// Block means against loops: MoBA's, NSA's and InfLLM-V2's score of a block, per row, with dead
// keys, and their budgets.
#include <optional>

#include "core/selectors/registry.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::blockmean_test {

struct NaiveBlocks {
  Index block, kernel, stride;
  std::string score, pool;
  bool per_q_head;
};

/// A query's product with the mean of the alive keys of a window; none: no key is alive.
std::optional<double> naive_window(const CallFixture& f, const NaiveBlocks& how, Index q_head,
                                   Index row, Index window) {
  double sum = 0.0;
  double n = 0.0;
  for (Index t = window * how.stride; t < window * how.stride + how.kernel; ++t) {
    if (!f.alive.is_alive(q_head / f.group(), static_cast<KeyPos>(t))) continue;
    sum += f.logit(q_head, row, t);
    n += 1.0;
  }
  return n > 0.0 ? std::optional(sum / n) : std::nullopt;
}

/// Scores of the blocks that one row sees.
std::vector<double> naive_block_scores(const CallFixture& f, const NaiveBlocks& how,
                                       std::vector<Index> q_heads, Index row) {
  const Index n_seen = f.call.pos_begin + row + 1;
  std::vector<double> of_window;
  std::vector<bool> is_there;
  for (Index w = 0; w * how.stride + how.kernel <= n_seen; ++w) {
    of_window.push_back(0.0);
    is_there.push_back(naive_window(f, how, q_heads.front(), row, w).has_value());
  }
  for (const Index h : q_heads) {
    double total = 0.0;
    for (std::size_t w = 0; w < of_window.size(); ++w)
      if (is_there[w]) total += std::exp(*naive_window(f, how, h, row, static_cast<Index>(w)));
    for (std::size_t w = 0; w < of_window.size(); ++w) {
      if (!is_there[w]) continue;
      const double x = *naive_window(f, how, h, row, static_cast<Index>(w));
      of_window[w] += how.score == "softmax" ? std::exp(x) / total : x;
    }
  }
  std::vector<double> scores;
  for (Index b = 0; b * how.block < n_seen; ++b) {
    double score = 0.0;
    double n_keys = 0.0;
    for (std::size_t w = 0; w < of_window.size(); ++w) {
      if (!is_there[w]) continue;
      double n_shared = 0.0;
      for (Index t = static_cast<Index>(w) * how.stride;
           t < static_cast<Index>(w) * how.stride + how.kernel; ++t)
        n_shared += t / how.block == b ? 1.0 : 0.0;
      if (n_shared == 0.0) continue;
      n_keys += n_shared;
      if (how.pool == "max") score = std::max(score, of_window[w]);
      if (how.pool == "sum") score += of_window[w] * n_shared / static_cast<double>(how.stride);
      if (how.pool == "mean") score += of_window[w] * n_shared;
    }
    if (how.pool == "mean" && n_keys > 0.0) score /= n_keys;
    scores.push_back(n_keys > 0.0 ? score : std::numeric_limits<double>::lowest());
  }
  return scores;
}

/// Keys of the blocks that are forced or among the best n of the others, as far as the row sees
/// them alive.
std::vector<KeyPos> naive_block_list(const CallFixture& f, const NaiveBlocks& how, Index kv_head,
                                     Index row, std::vector<double> scores, Index n, Index n_first,
                                     Index n_local, Index local_tokens) {
  const Index n_seen = f.call.pos_begin + row + 1;
  const auto n_blocks = static_cast<Index>(scores.size());
  std::vector<bool> is_kept(scores.size(), false);
  for (Index b = 0; b < n_blocks; ++b) {
    const bool is_forced = b < n_first || b >= n_blocks - n_local ||
                           (local_tokens > 0 && (b + 1) * how.block > n_seen - local_tokens);
    is_kept[b] = is_forced;
    if (is_forced) scores[b] = -std::numeric_limits<double>::infinity();
  }
  for (const KeyPos b : naive_top_k(scores, n)) is_kept[b] = true;
  std::vector<KeyPos> keys;
  for (Index t = 0; t < n_seen; ++t) {
    if (is_kept[t / how.block] && f.alive.is_alive(kv_head, static_cast<KeyPos>(t)))
      keys.push_back(static_cast<KeyPos>(t));
  }
  return keys;
}

struct PresetCase {
  std::string spec;
  NaiveBlocks how;
  Index n_top, n_first, n_local, local_tokens;  // n_top: beside the forced ones
};

TEST_CASE(
    "blockmean: loops agree with each preset's rule, row by row, with and without dead keys") {
  const std::vector<PresetCase> cases = {
      {"moba:block=8,kernel=8,stride=8,top-blocks=3",
       {8, 8, 8, "product", "mean", true},
       2,
       0,
       1,
       0},
      {"nsa:block=16,kernel=8,stride=4,top-blocks=5,local-tokens=20",
       {16, 8, 4, "softmax", "sum", false},
       2,
       1,
       2,
       20},
      {"infllm2:block=16,kernel=8,stride=4,top-blocks=2,local-tokens=30,dense-below=0",
       {16, 8, 4, "softmax", "max", false},
       2,
       1,
       1,
       30},
      // windows that are no part of a block, and blocks without any whole window
      {"blockmean:block=3,kernel=7,stride=5,top-blocks=4,sizes=options",
       {3, 7, 5, "softmax", "sum", false},
       4,
       1,
       2,
       0}};
  for (const PresetCase& one : cases) {
    for (const Index n_tok : {1, 9}) {
      for (const bool has_dead : {false, true}) {
        CallFixture fixture({.n_q = 4,
                             .n_kv = 2,
                             .n_past = 101,
                             .n_tok = n_tok,
                             .phase = n_tok == 1 ? Phase::decode : Phase::prefill});
        for (KeyPos pos = 24; has_dead && pos < 41; ++pos) fixture.alive.kill(1, pos);
        if (has_dead) fixture.alive.kill(0, 70);
        const Selection selection = made(one.spec, fixture)->select(fixture.call);
        REQUIRE(selection.rows_per_list == 1);
        for (Index h = 0; h < 4; ++h) {
          const std::vector<Index> heads = one.how.per_q_head
                                               ? std::vector<Index>{h}
                                               : std::vector<Index>{h / 2 * 2, h / 2 * 2 + 1};
          for (Index row = 0; row < n_tok; ++row) {
            INFO(one.spec << ", dead " << has_dead << ", head " << h << ", row " << row);
            const auto scores = naive_block_scores(fixture, one.how, heads, row);
            CHECK(merged(selection.list(one.how.per_q_head ? h : h / 2, row)) ==
                  naive_block_list(fixture, one.how, h / 2, row, scores, one.n_top, one.n_first,
                                   one.n_local, one.local_tokens));
          }
        }
      }
    }
  }
}

TEST_CASE("blockmean: a budget buys blocks, beside the forced ones or with them inside") {
  CallFixture fixture({.n_q = 2, .n_kv = 1, .n_past = 160, .n_tok = 1, .phase = Phase::decode});
  fixture.call.budget = Budget::parse("tokens=50");
  const Selection beside = made("blockmean:block=16", fixture)->select(fixture.call);
  CHECK(beside.at(0).scored().size() == 48);           // three blocks
  CHECK(beside.at(0).forced().size() == 16 + 16 + 1);  // block 0, the last whole one and the own
  const Selection inside = made("blockmean:block=16,inside=true", fixture)->select(fixture.call);
  CHECK(inside.at(0).scored().empty());
  CHECK(inside.at(0).forced() == beside.at(0).forced());
  fixture.call.budget = Budget::parse("tokens=200");
  CHECK(made("blockmean:block=16", fixture)->select(fixture.call).at(0).size() == 161);
  CHECK(made("blockmean:block=16,inside=true", fixture)->select(fixture.call).at(0).size() == 161);
  // the published presets take their own sizes: no budget changes them
  CHECK(selector_registry().make("nsa")->caps().budgets.empty());
  CHECK(made("infllm2", fixture)->select(fixture.call).is_dense);  // below 8192 keys
}

TEST_CASE("blockmean: the compressed branch has the windows that no row's list holds, by loops") {
  for (const Index n_tok : {1, 3}) {
    for (const bool has_dead : {false, true}) {
      CallFixture fixture(
          {.n_past = 90, .n_tok = n_tok, .phase = n_tok == 1 ? Phase::decode : Phase::verify});
      for (KeyPos pos = 11; has_dead && pos < 31; ++pos) fixture.alive.kill(1, pos);
      const Selection selection =
          made("nsa-compressed:block=16,kernel=8,stride=4,top-blocks=3,n-local=1,local-tokens=0",
               fixture)
              ->select(fixture.call);
      Index at = 0;
      for (Index kv_head = 0; kv_head < 2; ++kv_head) {
        CHECK(selection.summaries.begin_of(kv_head) == at);
        for (Index first = 0; first + 8 <= 91;
             first += 4) {  // seen whole by the call's first query
          double n_alive = 0.0;
          double n_out = 0.0;
          std::vector<double> k(16, 0.0);
          std::vector<double> v(16, 0.0);
          for (Index pos = first; pos < first + 8; ++pos) {
            if (!fixture.alive.is_alive(kv_head, static_cast<KeyPos>(pos))) continue;
            n_alive += 1.0;
            bool is_out = true;
            for (Index row = 0; row < n_tok; ++row) {
              const auto keys = merged(selection.list(kv_head, row));
              is_out = is_out && !std::ranges::binary_search(keys, pos);
            }
            n_out += is_out ? 1.0 : 0.0;
            for (Index c = 0; c < 16; ++c) {
              k[c] += static_cast<double>(fixture.k(kv_head, pos, c));
              v[c] += static_cast<double>(fixture.v(kv_head, pos, c));
            }
          }
          if (n_out == 0.0) continue;
          INFO("rows " << n_tok << ", dead " << has_dead << ", KV head " << kv_head
                       << ", window from " << first);
          REQUIRE(at < selection.summaries.k.dim(0));
          CHECK(std::exp(selection.summaries.log_count[at]) == Catch::Approx(n_out / 2.0));
          for (Index c = 0; c < 16; ++c) {
            CHECK(selection.summaries.k(at, c) == Catch::Approx(k[c] / n_alive).margin(1e-6));
            CHECK(selection.summaries.v(at, c) == Catch::Approx(v[c] / n_alive).margin(1e-6));
          }
          ++at;
        }
      }
      CHECK(selection.summaries.begin.back() == at);
    }
  }
}

}  // namespace kvscope::test::blockmean_test
