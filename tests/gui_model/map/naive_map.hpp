// A whole attention map by loops over every pair, and its pooling: what tiles are compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/planted_trace.hpp"

namespace kvscope::gui::test {

/// [n_tokens, n_tokens]; NaN where the query was not recorded or does not see the key.
inline std::vector<double> naive_map(const TraceSource& trace, Index layer, Index q_head) {
  const Index n = trace.info().n_tokens;
  std::vector<double> map(static_cast<std::size_t>(n * n),
                          std::numeric_limits<double>::quiet_NaN());
  for (Index query = trace.info().rows.begin; query < trace.info().rows.end; ++query) {
    const std::vector<double> row = kvscope::test::naive_row(trace, layer, q_head, query);
    const Index first = kvscope::test::naive_first_visible(trace, layer, query);
    for (std::size_t i = 0; i < row.size(); ++i)
      map[static_cast<std::size_t>(query * n + first) + i] = row[i];
  }
  return map;
}

/// One cell of block x block pairs; NaN if it sees nothing.
struct NaiveCell {
  double max = std::numeric_limits<double>::quiet_NaN();
  double mean = std::numeric_limits<double>::quiet_NaN();
};
inline NaiveCell naive_cell(const std::vector<double>& map, Index n, Index block, Index row,
                            Index col) {
  NaiveCell cell;
  double sum = 0.0;
  Index count = 0;
  for (Index query = row * block; query < std::min(n, (row + 1) * block); ++query) {
    for (Index key = col * block; key < std::min(n, (col + 1) * block); ++key) {
      const double weight = map[query * n + key];
      if (std::isnan(weight)) continue;
      cell.max = count == 0 ? weight : std::max(cell.max, weight);
      sum += weight;
      ++count;
    }
  }
  if (count > 0) cell.mean = sum / static_cast<double>(count);
  return cell;
}

/// Both NaN, or equal up to single precision.
inline bool same(float found, double expected) {
  if (std::isnan(expected)) return std::isnan(found);
  return std::abs(static_cast<double>(found) - expected) <= 1e-6 * expected + 1e-12;
}

/// A small trace with structure; lse is not recorded unless a test fills it in.
inline MemoryTrace map_trace(Index n_tokens, bool has_sink_logits = false) {
  kvscope::test::PlantOptions options{.n_layers = 1,
                                      .n_q = 2,
                                      .n_kv = 1,
                                      .d_head = 8,
                                      .n_tokens = n_tokens,
                                      .chunk = n_tokens,
                                      .query_scale = 2.0,
                                      .sink = 3.0,
                                      .band = 1.0,
                                      .has_sink_logits = has_sink_logits,
                                      .seed = 7};
  return kvscope::test::planted_trace(options);
}

/// The same tensors under a changed header: other rows, a window.
inline MemoryTrace with_info(MemoryTrace& from, TraceInfo info) {
  MemoryTrace trace(info);
  for (Index layer : info.layers) {
    for (Index head = 0; head < from.q(layer).dim(0); ++head) {
      for (Index row = info.rows.begin; row < info.rows.end; ++row) {
        const auto source = from.q(layer).sub(head).row(row);
        std::copy(source.begin(), source.end(),
                  trace.q(layer).sub(head).row(row - info.rows.begin).begin());
      }
    }
    for (Index head = 0; head < from.k(layer).dim(0); ++head) {
      for (Index pos = 0; pos < info.n_tokens; ++pos) {
        const auto k = from.k(layer).sub(head).row(pos);
        std::copy(k.begin(), k.end(), trace.k(layer).sub(head).row(pos).begin());
        const auto v = from.v(layer).sub(head).row(pos);
        std::copy(v.begin(), v.end(), trace.v(layer).sub(head).row(pos).begin());
      }
    }
  }
  return trace;
}

/// Records every row's exact log-sum-exp, moved by `error`.
inline void record_lse(MemoryTrace& trace, double error = 0.0) {
  const TraceInfo& info = trace.info();
  for (Index layer : info.layers) {
    for (Index head : info.q_heads) {
      for (Index query = info.rows.begin; query < info.rows.end; ++query) {
        double sum = 0.0;
        for (double s : kvscope::test::naive_scores(trace, layer, head, query)) sum += std::exp(s);
        if (const auto sink_logit = info.sink_logit(layer, head)) sum += std::exp(*sink_logit);
        trace.lse(layer)(head, query - info.rows.begin) = static_cast<float>(std::log(sum) + error);
      }
    }
  }
}

}  // namespace kvscope::gui::test
