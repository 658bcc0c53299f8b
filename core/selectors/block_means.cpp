#include "core/selectors/block_means.hpp"

#include <algorithm>
#include <cmath>

namespace kvscope {

BlockMeans block_means(TensorView<const float> x, Index block,
                       const std::function<bool(Index)>& counts, std::span<const double> shift,
                       bool divide_by_block) {
  const Index n = x.dim(0);
  const auto d = static_cast<std::size_t>(x.dim(1));
  const Index n_blocks = (n + block - 1) / block;
  BlockMeans out;
  out.mean = Tensor<double>(Shape{n_blocks, x.dim(1)});
  out.n_rows.assign(static_cast<std::size_t>(n_blocks), 0);
  out.self_similarity.assign(static_cast<std::size_t>(n_blocks), 0.0);
  std::vector<double> shifted(d);
  std::vector<double> unit_sum(d);
  for (Index b = 0; b < n_blocks; ++b) {
    double* mean = out.mean.data() + b * x.dim(1);
    std::fill(unit_sum.begin(), unit_sum.end(), 0.0);
    Index n_rows = 0;
    for (Index row = b * block; row < std::min(n, (b + 1) * block); ++row) {
      if (counts && !counts(row)) continue;
      ++n_rows;
      const auto values = x.row(row);
      double norm_squared = 0.0;
      for (std::size_t c = 0; c < d; ++c) {
        shifted[c] = static_cast<double>(values[c]) - (shift.empty() ? 0.0 : shift[c]);
        norm_squared += shifted[c] * shifted[c];
        mean[c] += shifted[c];
      }
      if (norm_squared <= 0.0) continue;
      const double inverse = 1.0 / std::sqrt(norm_squared);
      for (std::size_t c = 0; c < d; ++c) unit_sum[c] += inverse * shifted[c];
    }
    out.n_rows[static_cast<std::size_t>(b)] = n_rows;
    if (n_rows == 0) continue;
    const auto count = static_cast<double>(n_rows);
    for (std::size_t c = 0; c < d; ++c)
      mean[c] /= divide_by_block ? static_cast<double>(block) : count;
    // The sum over all pairs of unit vectors is the squared norm of their sum.
    double squared = 0.0;
    for (const double value : unit_sum) squared += value * value;
    out.self_similarity[static_cast<std::size_t>(b)] = squared / (count * count);
  }
  return out;
}

}  // namespace kvscope
