// XAttention and FlexPrefill against what their public programs choose: the steps of both, in
// float64, by tests/golden/make_prefill_blocks.py.
#include <array>
#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/core/selectors/call_fixture.hpp"
#include "tests/support/places.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::prefill_blocks_test {

using Json = nlohmann::json;

constexpr Index kBlock = 16;
constexpr Index kTokens = 256;

/// Multiples of 1/64 in [-2, 2): the script's generator.
class Numbers {
 public:
  explicit Numbers(std::int64_t seed) : x_(seed) {}
  float next() {
    x_ = (1103515245 * x_ + 12345) % (std::int64_t{1} << 31);
    return static_cast<float>(x_ / 65536 % 256 - 128) / 64.0f;
  }

 private:
  std::int64_t x_;
};

/// The last n_tok queries of the script's text.
void fill(CallFixture& fixture, Index n_tok) {
  constexpr std::array<float, 6> kSharpness = {0.25f, 0.5f, 1.0f, 2.0f, 3.0f, 4.0f};
  Numbers of_q(7);
  for (Index head = 0; head < 12; ++head) {
    for (Index pos = 0; pos < kTokens; ++pos) {
      for (Index c = 0; c < 8; ++c) {
        const float x = of_q.next() * kSharpness[head % 6];
        if (pos >= kTokens - n_tok) fixture.q(head, pos - (kTokens - n_tok), c) = x;
      }
    }
  }
  Numbers of_k(8);
  for (float& x : fixture.k.flat()) x = of_k.next();
}

CallShape shape_of(Index n_tok) {
  return {.n_q = 12, .n_kv = 4, .d_head = 8, .n_past = kTokens - n_tok, .n_tok = n_tok};
}

/// The blocks of a list, one bit each, where every key of a block is kept.
std::int64_t blocks_of(const ListView& list) {
  std::int64_t bits = 0;
  for (const KeyPos pos : list.keys) bits |= std::int64_t{1} << (pos / kBlock);
  return bits;
}

Json golden() {
  std::ifstream file(testing::source_dir() / "tests/golden/prefill_blocks.json");
  REQUIRE(file);
  return Json::parse(file);
}

TEST_CASE("xattention: the blocks are those of the public program") {
  const Json expected = golden();
  for (const Index n_tok : {128, 256}) {
    CallFixture fixture(shape_of(n_tok));
    fill(fixture, n_tok);
    const Selection selection =
        made("xattention:block=16,stride=4,tau=0.9", fixture)->select(fixture.call);
    const Json& program = expected[n_tok == 128 ? "xattention_after_128" : "xattention_from_0"];
    for (Index head = 0; head < 12; ++head) {
      for (Index first = 0; first < n_tok; first += kBlock) {
        INFO(n_tok << " queries, head " << head << ", queries from " << first);
        const std::int64_t ours = blocks_of(selection.list(head, first));
        const std::int64_t its = program[head][first / kBlock];
        if (n_tok == 128) {
          CHECK(ours == its);
        } else {  // the first chunk: one block more than tau asks for, and block 0 beside them
          CHECK((ours & ~its) == 0);
          CHECK(std::popcount(static_cast<std::uint64_t>(its)) <=
                std::popcount(static_cast<std::uint64_t>(ours)) + 2);
        }
      }
    }
  }
}

TEST_CASE("flexprefill: both kinds of heads are those of the public program") {
  const Json expected = golden()["flexprefill"];
  CallFixture fixture(shape_of(kTokens));
  fill(fixture, kTokens);
  const Selection selection =
      made("flexprefill:block=16,n-voters=16,min-budget=32,gamma=0.9,tau=0.1", fixture)
          ->select(fixture.call);
  std::size_t n_aware = 0;
  for (Index head = 0; head < 12; ++head) {
    const Json& program = expected[head];
    const bool is_aware = program["query_aware"];
    n_aware += is_aware ? 1 : 0;
    Index n_more = 0;
    for (Index block = 0; block < kTokens / kBlock; ++block) {
      INFO("head " << head << ", query-aware " << is_aware << ", block of queries " << block);
      const std::int64_t ours = blocks_of(selection.list(head, block * kBlock));
      const std::int64_t its = program["kept"][block];
      CHECK((its & ~ours) == 0);
      if (!is_aware) CHECK(ours == its);
      n_more += std::popcount(static_cast<std::uint64_t>(ours & ~its));
    }
    CHECK(n_more <= (is_aware ? 1 : 0));  // the pair that crosses gamma
  }
  CHECK(n_aware > 2);
  CHECK(n_aware < 10);
}

}  // namespace kvscope::test::prefill_blocks_test
