#include "core/selectors/block_means.hpp"

#include <algorithm>
#include <cmath>

#include "core/attention/row_kernels.hpp"

namespace kvscope {

BlockMeans block_means(TensorView<const float> x, Index block, const BlockMeansRule& options) {
  const Index n = x.dim(0);
  const auto d = static_cast<std::size_t>(x.dim(1));
  const Index n_blocks = (n + block - 1) / block;
  BlockMeans out;
  out.mean = Tensor<double>(Shape{n_blocks, x.dim(1)});
  out.n_rows.assign(static_cast<std::size_t>(n_blocks), 0);
  out.self_similarity.assign(static_cast<std::size_t>(n_blocks), 0.0);
  const std::vector<double> no_shift(d, 0.0);
  const std::span<const double> shift = options.shift.empty() ? no_shift : options.shift;
  std::vector<double> shifted(d);
  std::vector<double> unit_sum(d);
  for (Index b = 0; b < n_blocks; ++b) {
    const std::span<double> mean = out.mean.view().row(b);
    std::fill(unit_sum.begin(), unit_sum.end(), 0.0);
    Index n_rows = 0;
    for (Index row = b * block; row < std::min(n, (b + 1) * block); ++row) {
      if (options.counts && !options.counts(row)) continue;
      ++n_rows;
      const auto values = x.row(row);
      for (std::size_t c = 0; c < d; ++c) shifted[c] = static_cast<double>(values[c]) - shift[c];
      for (std::size_t c = 0; c < d; ++c) mean[c] += shifted[c];
      if (!options.self_similarity) continue;
      const double norm_squared = dot_of(shifted, shifted);
      if (norm_squared > 0.0) add_scaled(shifted, 1.0 / std::sqrt(norm_squared), unit_sum);
    }
    out.n_rows[static_cast<std::size_t>(b)] = n_rows;
    if (n_rows == 0) continue;
    const auto count = static_cast<double>(n_rows);
    for (double& value : mean)
      value /= options.divide_by_block ? static_cast<double>(block) : count;
    // The sum over all pairs of unit vectors is the squared norm of their sum.
    if (options.self_similarity)
      out.self_similarity[static_cast<std::size_t>(b)] =
          dot_of(unit_sum, unit_sum) / (count * count);
  }
  return out;
}

}  // namespace kvscope
