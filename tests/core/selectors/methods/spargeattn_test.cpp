// SpargeAttn against means, similarities and a softmax by loops.
#include <fmt/format.h>

#include <numeric>
#include <set>

#include "core/selectors/method_spec.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::spargeattn_test {

using Row = std::vector<double>;

double dot(const Row& a, const Row& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

struct Block {
  Row mean;
  double similarity = 0.0;  // mean of all pairwise cosines
};

Block block_of(const std::vector<Row>& rows) {
  Block out{Row(rows[0].size(), 0.0), 0.0};
  const auto n = static_cast<double>(rows.size());
  for (const Row& a : rows) {
    for (std::size_t c = 0; c < a.size(); ++c) out.mean[c] += a[c] / n;
    for (const Row& b : rows) {
      const double norms = std::sqrt(dot(a, a) * dot(b, b));
      if (norms > 0.0) out.similarity += dot(a, b) / norms / (n * n);
    }
  }
  return out;
}

std::vector<Row> rows_of(TensorView<const float> x, Index begin, Index end, const Row& shift) {
  std::vector<Row> rows;
  for (Index i = begin; i < end; ++i) {
    rows.emplace_back(shift.size());
    for (std::size_t c = 0; c < shift.size(); ++c)
      rows.back()[c] = static_cast<double>(x.row(i)[c]) - shift[c];
  }
  return rows;
}

TEST_CASE("spargeattn keeps blocks by the compressed softmax, and those a mean cannot stand for") {
  Sequence sequence = random_sequence(
      {.n_layers = 1, .n_tokens = 100, .chunk = 50, .n_decode = 0, .has_ties = false});
  // Blocks 2, 3, 6, 7, ... of keys and even blocks of queries resemble themselves.
  for (Index h = 0; h < 4; ++h) {
    for (Index t = 0; t < 100; ++t) {
      for (Index c = 0; c < 8; ++c) {
        if (t / 10 % 2 == 0)
          sequence.q[0](h, t, c) = sequence.q[0](h, t / 10 * 10, c) + 0.1f * sequence.q[0](h, t, c);
        if (h < 2 && t / 5 % 4 >= 2)
          sequence.k[0](h, t, c) = sequence.k[0](h, t / 5 * 5, c) + 0.1f * sequence.k[0](h, t, c);
      }
    }
  }
  Index n_left_out = 0;
  for (const bool is_top : {false, true}) {
    const auto selections =
        run_all(fmt::format("spargeattn:block-q=10,block-k=5,tau=0.7,top-share=0.2,rule={}",
                            is_top ? "top" : "cdf"),
                sequence, Budget{});
    for (Index call = 0; call < 2; ++call) {
      const Index n_ctx = 50 * (call + 1);
      for (Index h = 0; h < 4; ++h) {
        const auto k = sequence.k[0].view().sub(h / 2).range(0, 0, n_ctx);
        Row mean(8, 0.0);
        for (const Row& row : rows_of(k, 0, n_ctx, Row(8, 0.0))) {
          for (std::size_t c = 0; c < 8; ++c) mean[c] += row[c] / static_cast<double>(n_ctx);
        }
        for (Index qb = 0; qb < 5; ++qb) {
          const Index first = 50 * call + 10 * qb;
          const Block query =
              block_of(rows_of(sequence.q[0].view().sub(h), first, first + 10, Row(8, 0.0)));
          std::vector<std::pair<double, Index>> scored;  // best first
          std::set<Index> kept;
          for (Index kb = 0; kb * 5 < first + 10; ++kb) {
            const Block key = block_of(rows_of(k, kb * 5, kb * 5 + 5, mean));
            if (!(query.similarity > 0.6) || !(key.similarity > 0.6)) kept.insert(kb);
            if (key.similarity > 0.6)
              scored.emplace_back(
                  -dot(query.mean, key.mean) * static_cast<double>(sequence.shape.score_scale), kb);
          }
          std::ranges::sort(scored);
          double total = 0.0;
          for (const auto& [score, kb] : scored) total += std::exp(-score);
          double sum = 0.0;
          for (std::size_t i = 0; i < scored.size(); ++i) {
            sum += std::exp(-scored[i].first) / total;
            const bool is_kept = is_top ? static_cast<Index>(i) < n_ctx / 5 / 5 : sum <= 0.7;
            if (is_kept || i == 0) kept.insert(scored[i].second);
          }
          std::vector<KeyPos> expected;
          for (const Index kb : kept) {
            for (Index j = kb * 5; j < kb * 5 + 5; ++j) expected.push_back(static_cast<KeyPos>(j));
          }
          n_left_out += first + 10 - static_cast<Index>(expected.size());
          const auto at = static_cast<std::size_t>(h * 5 + qb);
          INFO("call " << call << ", head " << h << ", query block " << qb);
          CHECK(merged(KeyList{selections[call].scored[at], selections[call].forced[at], {}}) ==
                expected);
        }
      }
    }
  }
  CHECK(n_left_out > 300);  // the case is not trivial
}

}  // namespace kvscope::test::spargeattn_test
