// Mean vectors of blocks of rows, and how much the rows of a block resemble each other: what
// block-sparse methods score.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Blocks of `block` rows of x, counted from row 0; the last one may be shorter.
struct BlockMeans {
  Tensor<double> mean;                  // [n_blocks, d] of the rows that count; zero if none does
  std::vector<Index> n_rows;            // [n_blocks] rows that count
  std::vector<double> self_similarity;  // [n_blocks] mean of all pairwise cosines, each row with
                                        // itself included; zero rows give 0; 0 if not asked for
};

struct BlockMeansRule {
  std::function<bool(Index)> counts;  // which rows count; all if empty
  std::span<const double> shift;      // [d], subtracted from each row first; none if empty
  bool divide_by_block = false;       // also where rows are missing, as zero padding does
  bool self_similarity = false;       // is wanted too: three times the work
};

/// x: [n, d].
BlockMeans block_means(TensorView<const float> x, Index block, const BlockMeansRule& options);

}  // namespace kvscope
