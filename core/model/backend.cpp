#include "core/model/backend.hpp"

#include "core/base/error.hpp"

namespace kvscope {

void throw_not_finite(std::string_view what, Index layer, Index pos) {
  throw FormatError(
      "layer {}: NaN or infinity in {} at position {}: the weights are damaged or overflow in "
      "float32",
      layer, what, pos);
}

}  // namespace kvscope
