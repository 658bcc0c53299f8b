// Sparse attention against three loops in double, and against dense attention bit for bit.
#include "core/attention/sparse_attention.hpp"

#include <random>

#include "core/attention/dense_attention.hpp"
#include "core/tensor/lane_kernels.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::sparse_attention_test {

/// A call with outputs of its own, in rows.
struct Problem {
  CallFixture fixture;
  Tensor<float> out, lse;
  explicit Problem(const CallShape& shape)
      : fixture(shape),
        out({shape.n_q, shape.n_tok, shape.d_head}),
        lse({shape.n_q, shape.n_tok}) {}
  AttentionQuestion question() const {
    AttentionQuestion call;
    call.pos_begin = fixture.call.pos_begin;
    call.n_tok = fixture.call.n_tok;
    call.score_scale = fixture.call.score_scale;
    call.score_cap = fixture.call.score_cap;
    call.q = fixture.q.view();
    call.k = fixture.k.view();
    call.v = fixture.v.view();
    return call;
  }
  void attend_densely(ThreadPool& pool) {
    attend_dense(question(), {out.view(), lse.view()}, pool);
  }
  /// By the lists, into lanes, from which the outputs are read back.
  void attend(const Selection& selection, ThreadPool& pool) {
    const Index n_q = out.dim(0);
    const Index n_tok = out.dim(1);
    const Index d = out.dim(2);
    const Index lanes = n_tok > kNarrowLanes ? kWideLanes : kNarrowLanes;
    Tensor<float> blocks({(n_tok + lanes - 1) / lanes, n_q * d, lanes});
    attend_lists(question(), selection, {lanes, blocks.data(), lse.view()}, pool);
    for (Index h = 0; h < n_q; ++h) {
      for (Index t = 0; t < n_tok; ++t) {
        for (Index f = 0; f < d; ++f) out(h, t, f) = blocks(t / lanes, h * d + f, t % lanes);
      }
    }
  }
  Index n_keys() const { return fixture.k.dim(1); }
};

/// Each key with probability `share`, some of them forced.
Selection random_selection(const Problem& problem, ListOwner owner, Index rows_per_list,
                           double share, std::mt19937& rng) {
  Selection selection;
  selection.owner = owner;
  selection.n_tok = problem.fixture.call.n_tok;
  selection.rows_per_list = rows_per_list;
  const Index n_owners = owner == ListOwner::q_head    ? problem.fixture.q.dim(0)
                         : owner == ListOwner::kv_head ? problem.fixture.k.dim(0)
                                                       : 1;
  std::uniform_real_distribution<double> uniform;
  for (Index i = 0; i < n_owners * selection.n_row_blocks(); ++i) {
    KeyList list;
    for (Index pos = 0; pos < problem.n_keys(); ++pos) {
      if (uniform(rng) >= share) continue;
      (uniform(rng) < 0.3 ? list.forced : list.scored).push_back(static_cast<KeyPos>(pos));
    }
    selection.add(list);
  }
  return selection;
}

/// Three loops over the list's keys with their weights and the KV head's summaries.
void check_against_loops(Problem& problem, const Selection& selection) {
  const CallFixture& f = problem.fixture;
  const Summaries& summaries = selection.summaries;
  for (Index h = 0; h < f.q.dim(0); ++h) {
    const Index kv_head = h / f.group();
    for (Index row = 0; row < f.call.n_tok; ++row) {
      const ListView list = selection.list(owner_of(selection.owner, h, f.group()), row);
      double sum = 0.0;
      std::vector<double> expected(static_cast<std::size_t>(f.v.dim(2)), 0.0);
      const auto add = [&](double score, const float* value) {
        sum += std::exp(score);
        for (std::size_t c = 0; c < expected.size(); ++c)
          expected[c] += std::exp(score) * static_cast<double>(value[c]);
      };
      for (std::size_t i = 0; i < list.keys.size(); ++i) {
        const Index pos = list.keys[i];
        if (pos > f.call.pos_begin + row) continue;
        const double weight =
            list.log_weight.empty() ? 0.0 : static_cast<double>(list.log_weight[i]);
        add(f.logit(h, row, pos) + weight, &f.v(kv_head, pos, Index{0}));
      }
      const bool states_share = summaries.has_stated_share();
      for (Index i = 0; i < (states_share ? 0 : summaries.count(kv_head)); ++i) {
        const Index from = summaries.begin_of(kv_head) + i;
        double dot = 0.0;
        for (Index c = 0; c < f.q.dim(2); ++c)
          dot += static_cast<double>(f.q(h, row, c)) * static_cast<double>(summaries.k(from, c));
        const auto log_count = static_cast<double>(summaries.log_count[from]);
        add(f.call.score_rule().of(dot) + log_count, &summaries.v(from, Index{0}));
      }
      const double w = states_share ? static_cast<double>(summaries.list_share(h, row)) : 1.0;
      for (std::size_t c = 0; c < expected.size(); ++c) {
        const auto at = static_cast<Index>(c);
        const double y = sum > 0.0 ? expected[c] / sum : 0.0;
        const double rest =
            states_share ? static_cast<double>(summaries.v(summaries.begin_of(kv_head), at)) : 0.0;
        CHECK(std::abs(static_cast<double>(problem.out(h, row, at)) - (w * y + (1.0 - w) * rest)) <
              2e-5);
      }
      if (sum > 0.0) {
        CHECK(std::abs(static_cast<double>(problem.lse(h, row)) - std::log(sum)) < 2e-5);
      } else {
        CHECK(problem.lse(h, row) == -std::numeric_limits<float>::infinity());
      }
    }
  }
}

/// Summaries per KV head: `counts` of them, random.
Summaries random_summaries(const CallFixture& f, std::initializer_list<Index> counts,
                           std::mt19937& rng) {
  Summaries out{.begin = {0}};
  for (const Index n : counts) out.begin.push_back(out.begin.back() + n);
  const Index n = out.begin.back();
  out.k = random_tensor({n, f.k.dim(2)}, rng);
  out.v = random_tensor({n, f.v.dim(2)}, rng);
  for (Index i = 0; i < n; ++i) out.log_count.push_back(std::log(1.0f + static_cast<float>(i)));
  return out;
}

TEST_CASE("a stated share mixes the summary in, also where the list is empty") {
  std::mt19937 rng(3);
  ThreadPool pool(1);
  Problem problem({.n_past = 20, .n_tok = 3});
  const Selection drawn = random_selection(problem, ListOwner::kv_head, 3, 0.3, rng);
  Selection selection(ListOwner::kv_head, 3, 3);
  selection.add(drawn.at(0));
  selection.add(KeyList{});
  selection.summaries = random_summaries(problem.fixture, {1, 1}, rng);
  selection.summaries.list_share = random_tensor({4, 3}, rng);
  problem.attend(selection, pool);
  check_against_loops(problem, selection);
}

TEST_CASE("sparse attention, with log-weights and summaries or without, equals three loops") {
  const bool has_weights = GENERATE(false, true);
  const bool has_summaries = GENERATE(false, true);
  const float cap = GENERATE(0.0f, 1.5f);  // of scores; weights and sizes join behind it
  const Index rows_per_list = GENERATE(1, 4, 37);
  const double share = GENERATE(0.02, 0.5);
  std::mt19937 rng(17);
  ThreadPool pool(2);
  for (const auto& [n_past, n_tok] :
       {std::pair<Index, Index>{40, 5}, {0, 1}, {300, 1}, {150, 37}}) {
    for (const ListOwner owner : {ListOwner::q_head, ListOwner::kv_head, ListOwner::layer}) {
      const Index rows = std::min(rows_per_list, n_tok);
      Problem problem({.n_past = n_past, .n_tok = n_tok, .seed = 11});
      problem.fixture.call.score_cap = cap;
      const Selection drawn = random_selection(problem, owner, rows, share, rng);
      Selection selection(owner, n_tok, rows);
      for (Index i = 0; i < drawn.n_lists(); ++i) {
        KeyList list{drawn.at(i).scored(), drawn.at(i).forced(), {}};
        for (std::size_t j = 0; has_weights && i != 1 && j < list.scored.size(); ++j)
          list.log_weight.push_back(0.25f * static_cast<float>(j % 9));
        selection.add(list);
      }
      if (has_summaries) selection.summaries = random_summaries(problem.fixture, {3, 0}, rng);
      check_selection(selection, drawn.n_lists() / drawn.n_row_blocks(), problem.n_keys());
      problem.attend(selection, pool);
      check_against_loops(problem, selection);
    }
  }
}

TEST_CASE("a list of every key has the bits of dense attention") {
  const auto threads = GENERATE(1, 3);
  const float cap = GENERATE(0.0f, 1.5f);
  ThreadPool pool(threads);
  for (const auto& [n_past, n_tok] :
       {std::pair<Index, Index>{0, 40}, {500, 1}, {260, 9}, {131, 70}}) {
    Problem dense({.n_q = 8, .n_past = n_past, .n_tok = n_tok, .seed = 5});
    dense.fixture.call.score_cap = cap;
    dense.attend_densely(pool);
    for (const ListOwner owner : {ListOwner::q_head, ListOwner::kv_head, ListOwner::layer}) {
      Problem sparse({.n_q = 8, .n_past = n_past, .n_tok = n_tok, .seed = 5});
      sparse.fixture.call.score_cap = cap;
      Selection selection(owner, n_tok, n_tok);
      KeyList all{.scored = positions(0, n_past), .forced = positions(n_past, n_past + n_tok)};
      const Index n_lists = owner == ListOwner::q_head ? 8 : owner == ListOwner::kv_head ? 2 : 1;
      for (Index i = 0; i < n_lists; ++i) selection.add(all);
      sparse.attend(selection, pool);
      CHECK(
          std::equal(dense.out.flat().begin(), dense.out.flat().end(), sparse.out.flat().begin()));
      CHECK(
          std::equal(dense.lse.flat().begin(), dense.lse.flat().end(), sparse.lse.flat().begin()));
    }
  }
}

}  // namespace kvscope::test::sparse_attention_test
