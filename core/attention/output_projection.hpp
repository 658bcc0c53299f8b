// What a model makes of a value on its way out of attention, for methods that weigh values by it.
#pragma once

#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

class OutputProjection {
 public:
  virtual ~OutputProjection() = default;
  /// The L1 norm of W_o,h v for each row of v [n, d_head], the mean over the query heads h of a KV
  /// head; W_o,h [d_model, d_head] are the columns of the output projection that head h meets.
  virtual std::vector<double> lengths(Index layer, Index kv_head,
                                      TensorView<const float> v) const = 0;
};

}  // namespace kvscope
