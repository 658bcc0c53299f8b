// Bytes of the ladder's levels stand for one query, also where a whole chunk shares what is read.
#include "analysis/kinds/ladder.hpp"
#include "core/trace/result.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::ladder_bytes_test {

TEST_CASE("ladder: the bytes of a chunk are divided among its queries") {
  constexpr Index kChunk = 8;
  constexpr Index kBudget = 16;
  PlantOptions plant;
  plant.n_tokens = 160;  // every measured chunk lies far behind the sinks
  const MemoryTrace trace = planted_trace(plant);
  LadderOptions options{.selector = "streamingllm",
                        .budget = Budget{Budget::Kind::tokens, static_cast<double>(kBudget)},
                        .rows = 5,
                        .chunk = kChunk};
  MemoryResult result;
  ThreadPool pool(1);
  const auto summary = analyze_ladder(trace, options, {result, pool});
  double by_query = 0.0;
  double by_chunk = 0.0;
  for (const auto& row : summary["rows"]) {
    if (row["rung"] == "a list per query") by_query = row["bytes"].get<double>();
    if (row["rung"] == "a list per chunk of 8") by_chunk = row["bytes"].get<double>();
  }
  // K and V in two bytes. A query reads its own list; a chunk the union of its queries' lists:
  // the window moves on by one key from query to query.
  const TraceInfo& info = trace.info();
  const auto key_bytes = static_cast<double>(2 * 2 * info.n_kv * info.d_head);
  CHECK(by_query == Catch::Approx(kBudget * key_bytes));
  CHECK(by_chunk == Catch::Approx((kBudget + kChunk - 1) * key_bytes / kChunk));
}

}  // namespace kvscope::test::ladder_bytes_test
