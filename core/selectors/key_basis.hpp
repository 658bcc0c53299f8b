// The principal directions of a set of keys: an orthogonal basis by falling variance.
#pragma once

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Orthonormal directions of keys [n_keys, d_head] as rows [d_head, d_head], by falling variance
/// about the mean key. The element of largest magnitude of each direction is positive (the first
/// one among equals), so the basis does not depend on the solver's signs. With fewer keys than
/// channels the last directions complete the basis. Throws ShapeError if there is no key.
Tensor<double> key_basis(TensorView<const float> keys);

}  // namespace kvscope
