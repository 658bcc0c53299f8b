// Tensors as owners of their elements.

#include "core/tensor/tensor.hpp"

#include "tests/support/test.hpp"

namespace kvscope::test::tensor_test {

TEST_CASE("a tensor is copied with its elements, and one without any stays without") {
  Tensor<float> full(Shape{2, 3});
  full.data()[5] = 7.0f;
  const Tensor<float> copy = full.clone();
  full.data()[5] = 0.0f;
  CHECK(copy.shape() == Shape{2, 3});
  CHECK(copy.data()[5] == 7.0f);

  const Tensor<float> none;
  CHECK(none.clone().count() == 0);  // its shape has no axes, whose product is one
  CHECK(Tensor<float>(Shape{0, 4}).clone().dim(1) == 4);
}

}  // namespace kvscope::test::tensor_test
