// Gated activations far out: a sigmoid of very negative gates is 0, not the gate itself.
#include "core/tensor/lane_kernels.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::gate_edges_test {

TEST_CASE("gates of any size give a gated value near its limit") {
  for (const float g : {-1e4f, -300.0f, -210.0f, -180.0f, -90.0f, 90.0f, 300.0f}) {
    std::vector<float> gate(kWideLanes, g);
    const std::vector<float> up(kWideLanes, 1.0f);
    lane_swiglu(gate.data(), up.data(), kWideLanes);
    for (const float x : gate) CHECK(std::abs(x - (g > 0.0f ? g : 0.0f)) < 1e-6f * std::abs(g));
    std::vector<float> gate_up(2 * kWideLanes, g);
    for (Index j = 0; j < kWideLanes; ++j) gate_up[kWideLanes + j] = 0.0f;
    std::vector<float> out(kWideLanes);
    lane_clamped_swiglu(gate_up.data(), 1, 1.702f, 7.0f, out.data(), kWideLanes);
    for (const float x : out) CHECK(std::abs(x - (g > 0.0f ? 7.0f : 0.0f)) < 1e-3f);
  }
}

}  // namespace kvscope::test::gate_edges_test
