// Tells an lse that was computed from other q and k than the stored ones from one that only missed
// their rounding to 16 bits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/tensor/dtype.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// The log-sum-exp of one recomputed row, in nat.
struct LseRow {
  Index layer = 0;
  Index q_head = 0;
  Index pos = 0;
  double recorded = 0;
  double recomputed = 0;  // from the stored q and k
  double rounding = 0;    // standard deviation of what rounding q and k for storage adds
  bool is_reported = false;
};

/// The standard deviation (nat) that rounding q and k to `dtype` adds to the log-sum-exp of a row.
/// An element x moves by at most half a unit in its last place, u, evenly spread: variance u^2 / 3.
/// lse moves by scale * (dq . sum_j p_j k_j + sum_j p_j q . dk_j), where p are the row's
/// probabilities. q [d]; keys [n, d] are those that the row sees; roundings: theirs; prob [n].
double rounding_of_lse(std::span<const float> q, TensorView<const float> keys,
                       TensorView<const float> roundings, std::span<const double> prob,
                       double scale, DType dtype);

/// The variance of the rounding of each element, u^2 / 3; as large as x.
Tensor<float> rounding_variances(TensorView<const float> x, DType dtype);

/// A sentence for each row whose lse its keys do not give. The bound that holds for any rounding is
/// some tenths of a nat for 16-bit traces, so small contradictions hide in it. But a recorder that
/// keeps the model's own 16 bits rounds nothing: then most rows agree to a small part of
/// `rounding`, which rounded rows do by chance in one of twelve cases, and rows that differ by
/// more than a thousandth of a nat contradict them. Without that evidence (or in f32, whose bound
/// is narrow) the answer is empty. Rows that are reported already are not named again.
std::vector<std::string> rows_of_other_keys(std::span<const LseRow> rows, DType dtype);

}  // namespace kvscope
