// The random control: uniform, seeded, nested.
#include <fmt/format.h>

#include "core/selectors/method_spec.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::random_test {

TEST_CASE("random draws every past key equally often") {
  const Sequence sequence =
      random_sequence({.n_layers = 1, .n_tokens = 21, .chunk = 20, .n_decode = 1});
  std::vector<int> n_drawn(20, 0);
  constexpr int kRuns = 2000;
  for (int seed = 1; seed <= kRuns; ++seed) {
    const auto selections =
        run_all(fmt::format("random:seed={}", seed), sequence, {Budget::Kind::tokens, 5.0});
    CHECK(selections.back().scored[0].size() == 5);
    for (const KeyPos pos : selections.back().scored[0]) ++n_drawn[pos];
  }
  // 500 expected, standard deviation 19.4: five of them either way.
  for (const int n : n_drawn) CHECK(std::abs(n - kRuns / 4) < 97);
}

TEST_CASE("random: larger budgets contain smaller ones; layers, heads and calls differ") {
  const Sequence sequence = random_sequence({.n_tokens = 64, .chunk = 60, .n_decode = 4});
  const auto small = run_all("random", sequence, {Budget::Kind::tokens, 10.0});
  const auto large = run_all("random", sequence, {Budget::Kind::tokens, 20.0});
  for (std::size_t i = 0; i < small.size(); ++i) {
    CHECK(std::includes(large[i].scored[0].begin(), large[i].scored[0].end(),
                        small[i].scored[0].begin(), small[i].scored[0].end()));
  }
  CHECK(small[3].scored[0] != small[4].scored[0]);
  CHECK(small[3].scored[0] != small[3].scored[1]);
  CHECK(small[3].scored[0] != small[6].scored[0]);
}

TEST_CASE("random: forced sinks and recents come on top") {
  const Sequence sequence = random_sequence({.n_tokens = 41, .chunk = 40, .n_decode = 1});
  const auto selection =
      run_all("random:n-sink=2,n-recent=3", sequence, {Budget::Kind::tokens, 10.0}).back();
  CHECK(selection.forced[0] == std::vector<KeyPos>{0, 1, 37, 38, 39, 40});
  CHECK(selection.scored[0].size() == 10);
}

}  // namespace kvscope::test::random_test
