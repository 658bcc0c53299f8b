// MInference block-sparse against means by loops.

#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::minference_block_sparse_test {

TEST_CASE("block-sparse keeps the blocks of keys with the best mean product") {
  const Sequence sequence = random_sequence(
      {.n_layers = 1, .n_tokens = 50, .chunk = 24, .n_decode = 0, .has_ties = false});
  constexpr Index kBlock = 8;
  for (const std::string forced : {"none", "diagonal", "local"}) {
    const auto selections = run_all("minference-block-sparse:block=8,top-blocks=3,forced=" + forced,
                                    sequence, Budget{});
    for (std::size_t call = 0; call < selections.size(); ++call) {
      const Index begin = 24 * static_cast<Index>(call);
      const Index n_ctx = std::min<Index>(50, begin + 24);
      const Index n_query_blocks = (n_ctx - begin + kBlock - 1) / kBlock;
      for (Index h = 0; h < sequence.shape.n_q; ++h) {
        for (Index qb = 0; qb < n_query_blocks; ++qb) {
          const Index first = begin + qb * kBlock;
          const Index end = std::min(first + kBlock, n_ctx);
          std::vector<double> scores;
          for (Index kb = 0; kb * kBlock < end; ++kb) {
            const Index k_end = std::min(n_ctx, (kb + 1) * kBlock);
            double score = 0.0;
            for (Index c = 0; c < 8; ++c) {
              double q = 0.0;
              double k = 0.0;
              for (Index i = first; i < end; ++i)
                q += static_cast<double>(sequence.q[0](h, i, c)) / static_cast<double>(end - first);
              for (Index j = kb * kBlock; j < k_end; ++j)
                k += static_cast<double>(sequence.k[0](h / 2, j, c)) /
                     static_cast<double>(k_end - kb * kBlock);
              score += q * k;
            }
            if (forced != "none" && kb == first / kBlock) score = 1e9;
            if (forced == "local" && (kb == 0 || kb == first / kBlock - 1)) score = 1e9;
            scores.push_back(score);
          }
          std::vector<KeyPos> expected;
          for (const KeyPos kb :
               naive_best(scores, first_keys(static_cast<Index>(scores.size())), 3)) {
            for (Index j = kb * kBlock; j < std::min(end, (kb + 1) * kBlock); ++j)
              expected.push_back(static_cast<KeyPos>(j));
          }
          const auto at = static_cast<std::size_t>(h * n_query_blocks + qb);
          INFO(forced << ", call " << call << ", head " << h << ", query block " << qb);
          CHECK(merged(KeyList{selections[call].scored[at], selections[call].forced[at], {}}) ==
                expected);
        }
      }
    }
  }
}

}  // namespace kvscope::test::minference_block_sparse_test
