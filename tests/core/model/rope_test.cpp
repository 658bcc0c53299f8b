#include "core/model/rope.hpp"

#include "tests/support/test.hpp"

namespace kvscope::test::rope_test {

TEST_CASE("an amplitude scales cosines and sines") {
  const std::vector<float> f = {1.0f, 0.1f};
  std::vector<float> cos(2 * 16), sin(2 * 16);
  rope_tables(f, /*amplitude=*/1.5f, /*pos_begin=*/3, /*n_tok=*/1, /*lanes=*/16, cos.data(),
              sin.data());
  CHECK(cos[0] == Approx(1.5 * std::cos(3.0)).margin(1e-6));
  CHECK(sin[0] == Approx(1.5 * std::sin(3.0)).margin(1e-6));
}

TEST_CASE("tables hold one position per lane and repeat the last one in spare lanes") {
  const std::vector<float> f = {1.0f, 0.1f};
  std::vector<float> cos(2 * 16), sin(2 * 16);
  rope_tables(f, /*amplitude=*/1.0f, /*pos_begin=*/1000, /*n_tok=*/3, /*lanes=*/16, cos.data(),
              sin.data());
  CHECK(cos[0] == Approx(std::cos(1000.0)).margin(1e-6));
  CHECK(sin[2] == Approx(std::sin(1002.0)).margin(1e-6));
  CHECK(sin[15] == sin[2]);
  CHECK(cos[16 + 1] == Approx(std::cos(1001.0 * 0.1)).margin(1e-5));
}

}  // namespace kvscope::test::rope_test
