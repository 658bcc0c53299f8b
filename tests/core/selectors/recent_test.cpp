// Recent keys by position.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numeric>

#include "core/base/error.hpp"
#include "core/selectors/registry.hpp"
#include "core/sim/attended.hpp"
#include "tests/core/selectors/sequence.hpp"

namespace kvscope::test {
namespace {

TEST_CASE("recent chooses by position among the past", "[selectors]") {
  constexpr Index kBudget = 7;
  const Sequence sequence = random_sequence({.n_tokens = 60, .n_decode = 6});
  SelectorRun run(make_selector("recent", sequence), sequence.shape,
                  {{Budget::Kind::tokens, double{kBudget}}});
  for (const auto& [phase, n_tok] : sequence.calls) {
    const Index begin = run.n_keys();
    for (const auto& layer : run_call(run, sequence, phase, n_tok)) {
      for (std::size_t kv_head = 0; kv_head < 2; ++kv_head) {
        std::vector<KeyPos> expected;
        for (Index j = 0; j < begin; ++j) {
          if (begin <= kBudget || (j >= begin - kBudget))
            expected.push_back(static_cast<KeyPos>(j));
        }
        std::vector<KeyPos> own(static_cast<std::size_t>(n_tok));
        std::iota(own.begin(), own.end(), static_cast<KeyPos>(begin));
        INFO("call at " << begin);
        CHECK(layer[0].scored[kv_head] == expected);
        CHECK(layer[0].forced[kv_head] == own);
      }
    }
  }
}

}  // namespace
}  // namespace kvscope::test
