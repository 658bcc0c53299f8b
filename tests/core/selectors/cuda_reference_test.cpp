// The f64 reference that the GPU's kernels are compared with (tests/cuda/reference.hpp) against the
// engine: the same lists, the same attention.
#include "core/attention/dense_attention.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/cuda/reference.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::cuda_reference_test {

/// The fixture's call as the reference takes it.
Sequence1 sequence_of(const CallFixture& f) {
  Sequence1 s{.n_q = static_cast<int>(f.q.dim(0)),
              .n_kv = static_cast<int>(f.k.dim(0)),
              .d = static_cast<int>(f.q.dim(2)),
              .n_past = static_cast<int>(f.call.pos_begin),
              .n_tok = static_cast<int>(f.call.n_tok),
              .scale = static_cast<double>(f.call.score_scale)};
  s.q.assign(f.q.data(), f.q.data() + f.q.count());
  s.k.assign(f.k.data(), f.k.data() + f.k.count());
  s.v.assign(f.v.data(), f.v.data() + f.v.count());
  return s;
}

std::vector<int> ints(const std::vector<KeyPos>& keys) {
  return {keys.begin(), keys.end()};
}

TEST_CASE("the GPU's reference of QuoKA has the engine's queries, scores and lists") {
  const bool has_ties = GENERATE(false, true);
  const int n_tok = GENERATE(1, 9, 40);
  const int n_past = GENERATE(0, 30, 400);
  const unsigned seed = GENERATE(1u, 2u);
  CAPTURE(has_ties, n_tok, n_past, seed);
  CallFixture f({.n_q = 6,
                 .n_kv = 2,
                 .d_head = 64,
                 .n_past = n_past,
                 .n_tok = n_tok,
                 .seed = seed,
                 .has_ties = has_ties});
  f.call.budget = Budget::parse("tokens=64");
  SelectionTrace trace;
  f.call.trace = &trace;
  const Selection selection = made("quoka", f)->select(f.call);
  const Sequence1 s = sequence_of(f);
  const auto picks = quoka_picks(s, 16, 1e-12);
  for (int head = 0; head < s.n_q; ++head) {
    const auto& found = trace.picks[head];
    CHECK(std::vector<int>(found.begin(), found.end()) == picks[head]);
  }
  for (int kv_head = 0; kv_head < s.n_kv; ++kv_head) {
    const std::vector<double> scores = quoka_scores(s, picks, kv_head, 1e-12);
    const auto& found = trace.scores[kv_head];
    REQUIRE(found.size() == scores.size());
    for (std::size_t i = 0; i < scores.size(); ++i) CHECK(std::abs(found[i] - scores[i]) < 1e-13);
    CHECK(ints(selection.at(kv_head).scored()) == best_of(found, 64));
    if (!has_ties) CHECK(ints(selection.at(kv_head).scored()) == best_of(scores, 64));
  }
}

TEST_CASE("the GPU's reference of Quest has the engine's bounds and pages") {
  const std::string pages = GENERATE("kernel", "eval", "frontier", "hub");
  const std::string owner = GENERATE("q_head", "group_sum", "group_max");
  const int n_past = GENERATE(0, 15, 16, 300);
  const int budget = GENERATE(16, 64, 1000);
  CAPTURE(pages, owner, n_past, budget);
  CallFixture f(
      {.n_q = 6, .n_kv = 2, .d_head = 64, .n_past = n_past, .n_tok = 1, .phase = Phase::decode});
  f.call.budget = Budget::parse("tokens=" + std::to_string(budget));
  SelectionTrace trace;
  f.call.trace = &trace;
  const Selection selection = made("quest:pages=" + pages + ",owner=" + owner, f)->select(f.call);
  const Sequence1 s = sequence_of(f);
  const int n_owners = owner == "q_head" ? s.n_q : s.n_kv;
  REQUIRE(selection.n_lists() == n_owners);
  const Rule rule = pages == "kernel"     ? Rule::kernel
                    : pages == "eval"     ? Rule::eval
                    : pages == "frontier" ? Rule::frontier
                                          : Rule::hub;
  for (int i = 0; i < n_owners; ++i) {
    const int n_heads = s.n_q / n_owners;
    std::vector<double> bounds = quest_bounds(s, i * n_heads, 16);
    for (int h = i * n_heads + 1; h < (i + 1) * n_heads; ++h) {
      const std::vector<double> more = quest_bounds(s, h, 16);
      for (std::size_t p = 0; p < more.size(); ++p)
        bounds[p] = owner == "group_sum" ? bounds[p] + more[p] : std::max(bounds[p], more[p]);
    }
    const auto& found = trace.scores[i];
    REQUIRE(found.size() == bounds.size());
    for (std::size_t p = 0; p < bounds.size(); ++p) CHECK(std::abs(found[p] - bounds[p]) < 1e-11);
    const PageCounts counts = page_counts(rule, budget, 16, s.n_ctx());
    std::vector<double> scored = bounds;
    scored.resize(static_cast<std::size_t>(counts.n_scored));
    std::vector<int> kept = best_of(scored, counts.n_kept);
    if (counts.keeps_last) kept.push_back(static_cast<int>(bounds.size()) - 1);
    std::vector<int> keys;
    for (const int page : kept) {
      for (int pos = 16 * page; pos < std::min(16 * (page + 1), s.n_ctx()); ++pos)
        keys.push_back(pos);
    }
    const auto list = selection.at(i).keys;
    CHECK(std::vector<int>(list.begin(), list.end()) == keys);
  }
}

TEST_CASE("the GPU's reference of exact attention has the oracle's lists") {
  const std::string variant = GENERATE("per_q_head", "per_group_sum", "per_chunk");
  const std::string scope = GENERATE("all", "past");
  const int n_tok = GENERATE(1, 7);
  const int n_past = GENERATE(0, 30, 200);
  CAPTURE(variant, scope, n_tok, n_past);
  CallFixture f({.n_q = 6, .n_kv = 2, .d_head = 64, .n_past = n_past, .n_tok = n_tok});
  f.call.budget = Budget::parse("tokens=40");
  const Selection selection =
      made("oracle-topk:variant=" + variant + ",scope=" + scope, f)->select(f.call);
  const Sequence1 s = sequence_of(f);
  const bool joins_rows = variant == "per_chunk";
  const bool forces_own = joins_rows || scope == "past";
  const int n_owners = variant == "per_q_head" ? s.n_q : s.n_kv;
  const int n_blocks = joins_rows ? 1 : n_tok;
  REQUIRE(selection.n_lists() == n_owners * n_blocks);
  for (int owner = 0; owner < n_owners; ++owner) {
    for (int block = 0; block < n_blocks; ++block) {
      std::vector<double> scores =
          variant == "per_q_head" ? row_scores(s, owner, block)
                                  : joined_weights(s, owner, block, joins_rows ? n_tok : block + 1);
      scores.resize(static_cast<std::size_t>(forces_own ? n_past : n_past + block + 1));
      const ListView list = selection.at(owner * n_blocks + block);
      CHECK(ints(list.scored()) == best_of(scores, 40));
    }
  }
}

TEST_CASE("the GPU's reference of attention has dense attention's outputs") {
  CallFixture f({.n_q = 6, .n_kv = 2, .d_head = 64, .n_past = 70, .n_tok = 5});
  AttentionQuestion question{.pos_begin = f.call.pos_begin,
                             .n_tok = f.call.n_tok,
                             .score_scale = f.call.score_scale,
                             .q = f.q.view(),
                             .k = f.k.view(),
                             .v = f.v.view()};
  Tensor<float> out({6, 5, 64});
  Tensor<float> lse({6, 5});
  ThreadPool pool(1);
  attend_dense(question, {out.view(), lse.view()}, pool);
  const Sequence1 s = sequence_of(f);
  for (int head = 0; head < s.n_q; ++head) {
    for (int row = 0; row < s.n_tok; ++row) {
      std::vector<int> keys;
      for (int pos = 0; pos <= s.n_past + row; ++pos) keys.push_back(pos);
      const RowAnswer answer = attend_row(s, head, row, keys);
      CHECK(std::abs(static_cast<double>(lse(head, row)) - answer.lse) < 1e-5);
      for (int c = 0; c < s.d; ++c)
        CHECK(std::abs(static_cast<double>(out(head, row, c)) - answer.out[c]) < 1e-5);
    }
  }
}

}  // namespace kvscope::test::cuda_reference_test
