#include "core/selectors/key_basis.hpp"

#include "core/base/error.hpp"
#include "core/tensor/principal_axes.hpp"

namespace kvscope {

Tensor<double> key_basis(TensorView<const float> keys) {
  if (keys.rank() != 2 || keys.dim(0) < 1 || keys.dim(1) < 1) {
    throw ShapeError("principal directions: expected keys [n >= 1, d_head >= 1], found {}",
                     to_string(keys.shape()));
  }
  return principal_axes({&keys, 1}).directions;
}

}  // namespace kvscope
