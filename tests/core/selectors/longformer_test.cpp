// Longformer by its definition.
#include <fmt/format.h>

#include "core/selectors/method_spec.hpp"
#include "core/sim/attended.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::longformer_test {

TEST_CASE("longformer keeps a dilated window and global tokens") {
  const Sequence sequence = random_sequence({.n_layers = 1, .n_tokens = 60, .n_decode = 6});
  for (const Index dilation : {1, 3}) {
    SelectorRun run(
        make_selector(fmt::format("longformer:window=5,n-global=3,dilation={}", dilation),
                      sequence),
        sequence.shape, {Budget{}});
    for (const auto& [phase, n_tok] : sequence.calls) {
      const Index begin = run.n_keys();
      const auto selection = run_call(run, sequence, phase, n_tok)[0][0];
      for (Index row = 0; row < n_tok; ++row) {
        const Index i = begin + row;
        std::vector<KeyPos> expected;
        for (Index j = 0; j <= i; ++j) {
          const bool in_window = (i - j) % dilation == 0 && (i - j) / dilation < 5;
          if (in_window || j < 3 || i < 3) expected.push_back(static_cast<KeyPos>(j));
        }
        CHECK(selection.forced[row] == expected);
      }
    }
  }
}

}  // namespace kvscope::test::longformer_test
