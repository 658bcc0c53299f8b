// What a scheduler is told before anything runs, counted by hand.
#include "analysis/units/unit_cost.hpp"

#include <catch2/catch_test_macros.hpp>

#include "core/base/lists.hpp"

namespace kvscope::test::unit_cost_test {

TraceInfo info_of() {
  return TraceInfo{.n_q = 4,
                   .n_kv = 2,
                   .d_head = 32,
                   .dtype = DType::bf16,
                   .q_heads = {0, 1, 2, 3},
                   .kv_heads = {0, 1},
                   .rows = {0, 4096},
                   .n_tokens = 4096};
}

TEST_CASE("a replayed layer holds k and v in f32, k in f64, and its queries") {
  const TraceInfo info = info_of();
  CHECK(layer_memory(info, 1) == 32 * (16 * 2 * 4096 + 4 * 4));
  CHECK(layer_memory(info, 1, /*by_head=*/true) == 16 * (16 * 2 * 4096 + 4 * 4));
}

TEST_CASE("a unit of layers reads q, k and v as they are stored") {
  const UnitCost cost = layers_cost(info_of(), "t.h5", {2, 3});
  CHECK(cost.bytes_to_read == 2 * 32 * (4 + 2 * 2) * 4096 * 2);
  CHECK(cost.predicted_memory == 2 * layer_memory(info_of(), 4096));
  CHECK(cost.inputs == std::vector<std::string>{"t.h5, layers 2 to 3"});
}

}  // namespace kvscope::test::unit_cost_test
