// The mask of keys that are still there, against one flag per key.
#include <random>

#include "core/selectors/selector.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::alive_mask_test {

TEST_CASE("keys that are alive: appended, cut, killed, listed by range") {
  std::mt19937 random(7);
  const auto below = [&](Index n) {
    return static_cast<Index>(random() % static_cast<unsigned>(n));
  };
  AliveMask mask(2);
  std::vector<std::vector<bool>> flags(2);
  for (int round = 0; round < 400; ++round) {
    const auto n = static_cast<Index>(flags[0].size());
    if (round % 9 == 8) {
      const Index n_left = below(n + 1);
      mask.truncate(n_left);
      for (auto& head : flags) head.resize(static_cast<std::size_t>(n_left));
    } else {
      const Index more = round % 5 == 0 ? 64 - n % 64 : below(150);  // also up to a word's end
      mask.append(more);
      for (auto& head : flags) head.resize(static_cast<std::size_t>(n + more), true);
    }
    const auto n_keys = static_cast<Index>(flags[0].size());
    REQUIRE(mask.n_keys() == n_keys);
    for (int i = 0; i < 40 && n_keys > 0; ++i) {
      const auto pos = static_cast<KeyPos>(below(n_keys));
      mask.kill(i % 2, pos);
      flags[i % 2][pos] = false;
    }
    for (Index head = 0; head < 2; ++head) {
      const auto& expected = flags[head];
      const Index begin = below(n_keys + 1);
      const TokenRange range{begin, begin + below(n_keys - begin + 1)};
      std::vector<KeyPos> keys;
      bool is_equal = true;
      for (Index pos = 0; pos < n_keys; ++pos) {
        const bool is_alive = expected[pos];
        is_equal = is_equal && mask.is_alive(head, static_cast<KeyPos>(pos)) == is_alive;
        if (is_alive && pos >= range.begin && pos < range.end)
          keys.push_back(static_cast<KeyPos>(pos));
      }
      CHECK(is_equal);
      CHECK(mask.keys(head, range) == keys);
      CHECK(mask.n_alive(head, range) == static_cast<Index>(keys.size()));
      const auto n_alive = static_cast<Index>(std::ranges::count(expected, true));
      CHECK(mask.n_alive(head) == n_alive);
      CHECK(mask.all_alive(head) == (n_alive == n_keys));
    }
  }
}

}  // namespace kvscope::test::alive_mask_test
