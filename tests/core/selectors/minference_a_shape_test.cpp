// MInference A-shape by its definition.
#include <fmt/format.h>

#include "core/selectors/method_spec.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::minference_a_shape_test {

TEST_CASE("a-shape keeps first tokens and a window in prefill; decode is dense") {
  const Sequence sequence =
      random_sequence({.n_layers = 1, .n_tokens = 60, .chunk = 30, .n_decode = 2});
  for (const Index n_dense : {0, 4}) {
    SelectorRun run(
        make_selector(fmt::format("minference-a-shape:n-init=3,n-local=8,n-dense-rows={}", n_dense),
                      sequence),
        sequence.shape, {Budget{}});
    for (const auto& [phase, n_tok] : sequence.calls) {
      const Index begin = run.n_keys();
      const auto selection = run_call(run, sequence, phase, n_tok)[0][0];
      CHECK(selection.is_dense == (phase == Phase::decode));
      for (Index row = 0; row < n_tok && !selection.is_dense; ++row) {
        std::vector<KeyPos> expected;
        for (Index j = 0; j <= begin + row; ++j) {
          if (j < 3 || begin + row - j < 8 || row >= n_tok - n_dense)
            expected.push_back(static_cast<KeyPos>(j));
        }
        CHECK(selection.forced[row] == expected);
      }
    }
  }
}

}  // namespace kvscope::test::minference_a_shape_test
