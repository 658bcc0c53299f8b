// Queries that lie far apart are read alone: their rows are those of the whole tensor.
#include <catch2/catch_test_macros.hpp>

#include "analysis/base/analysis.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::test::score_row_loop_test {

TEST_CASE("rows of a head are the same bits, read alone or among all queries") {
  const MemoryTrace trace = planted_trace(PlantOptions{.n_tokens = 400});
  const KeyTable keys(trace.read_k(1, 1, {0, 400}).view());
  const Tensor<float> q = trace.read_q(1, 3, {0, 400});
  ThreadPool pool(2);
  ScoreRowLoop loop(pool, {}, "test");
  const std::vector<Index> far_apart = {3, 60, 61, 150, 280, 399};
  std::vector<Index> all(400);
  for (Index i = 0; i < 400; ++i) all[i] = i;
  for (const auto& positions : {far_apart, all}) {
    std::vector<std::vector<double>> found(positions.size());
    loop.run(trace, 1, 3, positions, keys, [&](Index i, std::span<double> scores, TokenRange) {
      found[i].assign(scores.begin(), scores.end());
    });
    std::vector<std::vector<double>> expected(positions.size());
    loop.run(q.view(), 0, positions, keys, trace.info().score_rule(), trace.info().window_of(1),
             [&](Index i, std::span<double> scores, TokenRange) {
               expected[i].assign(scores.begin(), scores.end());
             });
    CHECK(found == expected);
    CHECK(found.back().size() == 400);
  }
}

}  // namespace kvscope::test::score_row_loop_test
