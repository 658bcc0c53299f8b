// Methods that choose by position alone, by their definitions.
#include <fmt/format.h>

#include "core/selectors/method_spec.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::by_position_test {

constexpr Index kBudget = 7;

TEST_CASE("recent chooses by position among the past") {
  check_past_keys("recent", kBudget, [](Index j, Index begin) { return j >= begin - kBudget; });
}

TEST_CASE("sink-recent chooses by position among the past") {
  check_past_keys("sink-recent", kBudget, [](Index j, Index begin) {
    return j < 4 || j >= begin - (kBudget - std::min<Index>(4, begin));
  });
}

TEST_CASE("strided chooses by position among the past") {
  check_past_keys("strided", kBudget,
                  [](Index j, Index begin) { return j % ((begin + kBudget - 1) / kBudget) == 0; });
}

/// Row i of a call of n_tok, the row-th of it, attends to the keys j <= i that `keeps` says; in
/// decode to everything, if the method is not defined there.
template <class Keeps>
void check_rows(const std::string& method, bool has_decode, const Keeps& keeps) {
  const Sequence sequence =
      random_sequence({.n_layers = 1, .n_tokens = 60, .chunk = 30, .n_decode = 6});
  INFO(method);
  SelectorRun run(make_selector(method, sequence), sequence.shape, {Budget{}});
  for (const auto& [phase, n_tok] : sequence.calls) {
    const Index begin = run.n_keys();
    const auto selection = run_call(run, sequence, phase, n_tok)[0][0];
    REQUIRE(selection.is_dense == (!has_decode && phase == Phase::decode));
    for (Index row = 0; row < n_tok && !selection.is_dense; ++row) {
      std::vector<KeyPos> expected;
      for (Index j = 0; j <= begin + row; ++j)
        if (keeps(begin + row, j, n_tok - row)) expected.push_back(static_cast<KeyPos>(j));
      CHECK(selection.forced[row] == expected);
    }
  }
}

TEST_CASE("longformer keeps a dilated window and global tokens") {
  for (const Index dilation : {1, 3}) {
    check_rows(fmt::format("longformer:window=5,n-global=3,dilation={}", dilation), true,
               [&](Index i, Index j, Index) {
                 return ((i - j) % dilation == 0 && (i - j) / dilation < 5) || j < 3 || i < 3;
               });
  }
}

TEST_CASE("a-shape keeps first tokens and a window in prefill; decode is dense") {
  for (const Index n_dense : {0, 4}) {
    check_rows(
        fmt::format("minference-a-shape:n-init=3,n-local=8,n-dense-rows={}", n_dense), false,
        [&](Index i, Index j, Index n_left) { return j < 3 || i - j < 8 || n_left <= n_dense; });
  }
}

}  // namespace kvscope::test::by_position_test
