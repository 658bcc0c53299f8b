// What SparQ scores keys with (arXiv 2312.04985): a KV group's queries in the few channels where
// they are largest.
#pragma once

#include <vector>

#include "core/base/index.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

struct SparqQueries {
  std::vector<Index> channels;  // ascending
  /// [q_heads, channels]: each head's query divided by its tau, the mean over the rows. Logits are
  /// linear in q, so rows are averaged first; heads stay apart, each has its own alpha.
  std::vector<double> q;
};

/// The n_channels channels of largest sum of |q| over the rows and heads given. q [n_q, n_tok,
/// d_head].
SparqQueries sparq_queries(TensorView<const float> q, TokenRange q_heads, Index n_channels);

}  // namespace kvscope
