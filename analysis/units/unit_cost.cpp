#include "analysis/units/unit_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/lists.hpp"

namespace kvscope {

namespace {

// Assumed, for one core (analysis/engines.md): products of exact rows
// in f64, products of the methods' scores, bytes through checksums into memory.
constexpr double kExactRate = 0.6e9;
constexpr double kScoreRate = 2.0e9;
constexpr double kReadRate = 1.0e9;

}  // namespace

double layer_memory(const TraceInfo& info, Index n_rows, bool by_head) {
  const double keys =
      static_cast<double>(info.kv_heads.size()) * static_cast<double>(info.n_tokens);
  const double queries = static_cast<double>(info.q_heads.size()) * static_cast<double>(n_rows);
  const double parts = by_head ? static_cast<double>(info.n_kv) : 1.0;
  return static_cast<double>(info.d_head) * (16.0 * keys + 4.0 * queries) / parts;
}

UnitCost layers_cost(const TraceInfo& info, const std::string& name,
                     const std::vector<Index>& layers) {
  UnitCost cost;
  const auto n = static_cast<double>(layers.size());
  const double rows_k =
      static_cast<double>(info.kv_heads.size()) * static_cast<double>(info.n_tokens);
  const double rows_q =
      static_cast<double>(info.q_heads.size()) * static_cast<double>(info.rows.size());
  const auto d_head = static_cast<double>(info.d_head);
  cost.inputs.push_back(
      layers.size() == 1 ? fmt::format("{}, layer {}", name, layers.front())
                         : fmt::format("{}, layers {} to {}", name, layers.front(), layers.back()));
  cost.bytes_to_read =
      n * d_head * (rows_q + 2.0 * rows_k) * static_cast<double>(size_of(info.dtype));
  cost.predicted_memory = n * layer_memory(info, info.rows.size());
  cost.predicted_seconds = cost.bytes_to_read / kReadRate;
  return cost;
}

UnitCost replay_unit_cost(const TraceInfo& info, const std::string& name,
                          const std::vector<Index>& layers, std::size_t n_pairs,
                          std::span<const TokenRange> calls, std::size_t n_heads,
                          const ReplayOptions& replay, bool by_head) {
  UnitCost cost = layers_cost(info, name, layers);
  double exact = 0.0;  // (row, key) pairs whose exact products are made
  double scored = 0.0;
  Index most_rows = 0;
  for (const TokenRange& call : calls) {
    const auto n_rows = static_cast<double>(
        replay.rows_per_chunk ? std::min(call.size(), *replay.rows_per_chunk) : call.size());
    most_rows = std::max(most_rows, call.size());
    exact += n_rows * static_cast<double>(call.end);
    scored += static_cast<double>(call.size()) * static_cast<double>(call.end);
  }
  // and, of methods that vote, the scores of a call's queries for all keys of a head, in f64
  cost.predicted_memory =
      static_cast<double>(layers.size()) * layer_memory(info, most_rows, by_head) +
      8.0 * static_cast<double>(most_rows) * static_cast<double>(info.n_tokens);
  const double heads = static_cast<double>(n_heads) * static_cast<double>(layers.size());
  const auto d_head = static_cast<double>(info.d_head);
  const auto pairs = static_cast<double>(n_pairs);
  cost.predicted_seconds += heads * d_head * (exact * (2.0 + pairs) / kExactRate);
  cost.predicted_seconds += static_cast<double>(info.q_heads.size() * layers.size()) * d_head *
                            pairs * scored / kScoreRate;
  return cost;
}

}  // namespace kvscope
