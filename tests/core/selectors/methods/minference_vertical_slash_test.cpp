// MInference vertical-slash against sums by loops.

#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::minference_vertical_slash_test {

TEST_CASE("vertical-slash keeps the best columns and offsets of the last queries") {
  const Sequence sequence = random_sequence(
      {.n_layers = 1, .n_tokens = 180, .chunk = 90, .n_decode = 0, .has_ties = false});
  const std::string spec =
      "minference-vertical-slash:n-vertical=36,n-slash=55,n-voters=20,forced-vertical=3,forced-"
      "slash=5";
  const auto selections = run_all(spec, sequence, Budget{});
  const auto kernel = run_all(spec + ",rounding=kernel", sequence, Budget{});
  for (Index call = 0; call < 2; ++call) {
    const Index n_ctx = 90 * (call + 1);
    for (Index h = 0; h < sequence.shape.n_q; ++h) {
      std::vector<double> columns(static_cast<std::size_t>(n_ctx), 0.0);
      std::vector<double> offsets = columns;
      for (Index i = n_ctx - 20; i < n_ctx; ++i) {
        const auto weights = naive_weights(sequence, 0, h, i, first_keys(n_ctx));
        for (Index j = 0; j <= i; ++j) {
          columns[j] += weights[j];
          offsets[i - j] += weights[j];
        }
      }
      for (std::size_t j = 0; j < 3; ++j) columns[j] = 1e9;
      for (std::size_t o = 0; o < 5; ++o) offsets[o] = 1e9;
      const auto vertical = naive_best(columns, first_keys(n_ctx), 36);
      const auto slash = naive_best(offsets, first_keys(n_ctx), 55);
      for (Index row = 0; row < 90; ++row) {
        const Index i = 90 * call + row;
        std::vector<KeyPos> expected;
        for (Index j = 0; j <= i; ++j) {
          if (vertical.contains(static_cast<KeyPos>(j)) ||
              slash.contains(static_cast<KeyPos>(i - j))) {
            expected.push_back(static_cast<KeyPos>(j));
          }
        }
        const PlainSelection& selection = selections[call];
        const auto at = static_cast<std::size_t>(h * 90 + row);
        INFO("call " << call << ", head " << h << ", row " << row);
        CHECK(merged(KeyList{selection.scored[at], selection.forced[at], {}}) == expected);
        // The kernel covers at least that, in whole blocks of keys.
        const PlainSelection& rounded = kernel[call];
        const auto block = static_cast<std::size_t>(h * 2 + row / 64);
        const auto covered = merged(KeyList{rounded.scored[block], rounded.forced[block], {}});
        CHECK(std::includes(covered.begin(), covered.end(), expected.begin(), expected.end()));
      }
    }
  }
}

}  // namespace kvscope::test::minference_vertical_slash_test
