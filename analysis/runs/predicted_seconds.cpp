#include "analysis/runs/predicted_seconds.hpp"

#include <algorithm>

namespace kvscope {

namespace {

// Assumed, for one core (analysis/engines.md): products of exact rows
// in f64, products of the methods' scores, bytes through checksums into memory.
constexpr double kExactRate = 0.6e9;
constexpr double kScoreRate = 2.0e9;
constexpr double kReadRate = 1.0e9;

}  // namespace

double replay_seconds(const TraceInfo& info, std::size_t n_layers, std::size_t n_pairs,
                      std::span<const TokenRange> calls, std::size_t n_heads,
                      const ReplayOptions& replay) {
  double exact = 0.0;  // (row, key) pairs whose exact products are made
  double scored = 0.0;
  for (const TokenRange& call : calls) {
    const auto n_rows = static_cast<double>(
        replay.rows_per_chunk ? std::min(call.size(), *replay.rows_per_chunk) : call.size());
    exact += n_rows * static_cast<double>(call.end);
    scored += static_cast<double>(call.size()) * static_cast<double>(call.end);
  }
  const auto n_q = static_cast<double>(info.q_heads.size());
  const auto d_head = static_cast<double>(info.d_head);
  const auto pairs = static_cast<double>(n_pairs);
  const double elements = d_head * (n_q * static_cast<double>(info.rows.size()) +
                                    2.0 * static_cast<double>(info.kv_heads.size()) *
                                        static_cast<double>(info.n_tokens));
  const double of_layer =
      elements * static_cast<double>(size_of(info.dtype)) / kReadRate +
      static_cast<double>(n_heads) * d_head * exact * (2.0 + pairs) / kExactRate +
      n_q * d_head * pairs * scored / kScoreRate;
  return static_cast<double>(n_layers) * of_layer;
}

}  // namespace kvscope
