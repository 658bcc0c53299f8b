// BigBird by its definition.
#include <set>

#include "core/sim/attended.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::bigbird_test {

TEST_CASE("bigbird: window, global and random blocks, the same in every call") {
  const Sequence chunked =
      random_sequence({.n_layers = 1, .n_tokens = 60, .chunk = 7, .n_decode = 20});
  const Sequence at_once =
      random_sequence({.n_layers = 1, .n_tokens = 60, .chunk = 60, .n_decode = 0});
  const std::string spec = "bigbird:block=4,n-random=2";
  // All rows by block, from one call: aligned, so 4 rows share a list.
  const PlainSelection whole = run_all(spec, at_once, Budget{})[0];
  REQUIRE(whole.forced.size() == 4 * 15);
  for (std::size_t i = 0; i < whole.forced.size(); ++i) {
    const auto b = static_cast<Index>(i % 15);
    std::set<Index> blocks;
    for (const KeyPos pos : whole.forced[i]) blocks.insert(pos / 4);
    CHECK(whole.forced[i].size() == 4 * blocks.size());
    CHECK(blocks.contains(0));
    CHECK(blocks.contains(b));
    CHECK(blocks.contains(std::max<Index>(0, b - 1)));
    CHECK(static_cast<Index>(blocks.size()) == std::min<Index>(b + 1, 5));
    CHECK(*blocks.rbegin() == b);
  }
  CHECK(whole.forced[14] != whole.forced[29]);  // heads draw apart
  SelectorRun run(make_selector(spec, chunked), chunked.shape, {Budget{}});
  for (const auto& [phase, n_tok] : chunked.calls) {
    const Index begin = run.n_keys();
    const PlainSelection selection = run_call(run, chunked, phase, n_tok)[0][0];
    const std::size_t n_lists = selection.forced.size() / 4;
    for (Index row = 0; row < n_tok; ++row) {
      std::vector<KeyPos> expected = whole.forced[(begin + row) / 4];
      std::erase_if(expected, [&](KeyPos pos) { return pos > begin + row; });
      std::vector<KeyPos> list = selection.forced[n_lists == static_cast<std::size_t>(n_tok)
                                                      ? static_cast<std::size_t>(row)
                                                      : static_cast<std::size_t>(row / 4)];
      std::erase_if(list, [&](KeyPos pos) { return pos > begin + row; });
      CHECK(list == expected);
    }
  }
}

}  // namespace kvscope::test::bigbird_test
