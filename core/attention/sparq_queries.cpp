#include "core/attention/sparq_queries.hpp"

#include <cmath>

#include "core/attention/topk.hpp"

namespace kvscope {

namespace {

/// sqrt(d * |q[I]|_1 / |q|_1); sqrt(d) for a query that is zero in these channels, whose logits are
/// all zero.
double tau(std::span<const float> q, std::span<const Index> channels) {
  double all = 0.0;
  double kept = 0.0;
  for (const float x : q) all += std::abs(static_cast<double>(x));
  for (const Index c : channels)
    kept += std::abs(static_cast<double>(q[static_cast<std::size_t>(c)]));
  const auto d = static_cast<double>(q.size());
  return kept > 0.0 ? std::sqrt(d * kept / all) : std::sqrt(d);
}

}  // namespace

SparqQueries sparq_queries(TensorView<const float> q, TokenRange q_heads, Index n_channels) {
  const Index n_tok = q.dim(1);
  std::vector<double> size(static_cast<std::size_t>(q.dim(2)), 0.0);
  for (Index q_head = q_heads.begin; q_head < q_heads.end; ++q_head) {
    for (Index row = 0; row < n_tok; ++row) {
      const auto values = q.sub(q_head).row(row);
      for (std::size_t c = 0; c < size.size(); ++c)
        size[c] += std::abs(static_cast<double>(values[c]));
    }
  }
  SparqQueries out{top_k_sorted_by_index(size, n_channels), {}};
  const std::size_t width = out.channels.size();
  for (Index q_head = q_heads.begin; q_head < q_heads.end; ++q_head) {
    const std::size_t at = out.q.size();
    out.q.resize(at + width, 0.0);
    for (Index row = 0; row < n_tok; ++row) {
      const auto values = q.sub(q_head).row(row);
      const double factor = 1.0 / (tau(values, out.channels) * static_cast<double>(n_tok));
      for (std::size_t c = 0; c < width; ++c)
        out.q[at + c] +=
            factor * static_cast<double>(values[static_cast<std::size_t>(out.channels[c])]);
    }
  }
  return out;
}

}  // namespace kvscope
