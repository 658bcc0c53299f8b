#include "notebooks_export/story_cells.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/base/analysis.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

constexpr double kSteps = 65533.0;
constexpr double kShares = 65534.0;
constexpr const char* kWork = "export";

/// Visits the exact weights of some queries of a head, in parallel.
template <class Body>
void visit_rows(const TraceSource& trace, Index layer, Index head, TokenRange queries,
                std::span<const TokenRange> parts, ThreadPool& pool, const std::stop_token& stop,
                Body&& body) {
  const TraceInfo& info = trace.info();
  const Tensor<float> k = trace.read_k(layer, head / info.group(), {0, queries.end});
  const KeyTable keys(k.view());
  const Tensor<float> q = trace.read_q(layer, head, queries);
  ScoreRowLoop loop(pool, stop, kWork);
  for (const TokenRange part : parts) {
    check_stop(stop, kWork);
    std::vector<Index> positions(static_cast<std::size_t>(part.size()));
    std::iota(positions.begin(), positions.end(), part.begin);
    loop.run(q.view(), queries.begin, positions, keys, info.score_rule(), window_of(info, layer),
             [&](Index i, std::span<double> scores, TokenRange visible) {
               softmax_in_place(scores, info.sink_logit(layer, head));
               body(i, std::span<const double>(scores), visible, part);
             });
    body.done(part);
  }
}

}  // namespace

TokenRange CellGrid::row_queries(Index row) const {
  return {queries.begin + row * block, std::min(queries.end, queries.begin + (row + 1) * block)};
}

TokenRange CellGrid::seen_cols(Index row) const {
  const TokenRange own = row_queries(row);
  const Index first_key = window ? std::max<Index>(0, own.begin - *window + 1) : 0;
  const Index begin = std::max<Index>(0, first_key - keys.begin) / block;
  const Index last_key = std::min(own.end, keys.end) - 1;  // the last query sees the most
  const Index end = last_key < keys.begin ? 0 : (last_key - keys.begin) / block + 1;
  return {std::min(begin, end), end};
}

std::size_t CellGrid::n_seen() const {
  std::size_t n = 0;
  for (Index row = 0; row < rows(); ++row) n += static_cast<std::size_t>(seen_cols(row).size());
  return n;
}

std::uint16_t page_code(double weight) {
  if (std::isnan(weight)) return 0;
  if (weight < kPageFloor) return 1;
  const double share = 1.0 - std::log(std::min(weight, 1.0)) / std::log(kPageFloor);
  return static_cast<std::uint16_t>(2.0 + std::round(share * kSteps));
}

double weight_of_page_code(std::uint16_t code) {
  if (code < 2) return code == 0 ? kNan : 0.0;
  return std::exp(std::log(kPageFloor) * (1.0 - (static_cast<double>(code) - 2.0) / kSteps));
}

std::uint16_t share_code(double share) {
  if (std::isnan(share)) return 0;
  return static_cast<std::uint16_t>(1.0 + std::round(std::clamp(share, 0.0, 1.0) * kShares));
}

double share_of_code(std::uint16_t code) {
  return code == 0 ? kNan : (static_cast<double>(code) - 1.0) / kShares;
}

std::vector<float> cell_weights(const TraceSource& trace, Index layer, Index head,
                                const CellGrid& grid, MapPooling pooling, ThreadPool& pool,
                                const std::stop_token& stop) {
  const Index cols = grid.cols();
  std::vector<float> cells(static_cast<std::size_t>(grid.rows() * cols), kNanF);
  std::vector<TokenRange> parts;
  for (Index row = 0; row < grid.rows(); ++row) parts.push_back(grid.row_queries(row));
  PooledRows pooled(grid.block, cols, grid.block, pooling);
  struct Body {
    PooledRows& pooled;
    const CellGrid& grid;
    std::span<float> cells;
    Index cols;
    void operator()(Index i, std::span<const double> weights, TokenRange visible, TokenRange) {
      const TokenRange inside{std::max(visible.begin, grid.keys.begin),
                              std::min(visible.end, grid.keys.end)};
      if (inside.end <= inside.begin) return;
      pooled.put(i,
                 weights.subspan(static_cast<std::size_t>(inside.begin - visible.begin),
                                 static_cast<std::size_t>(inside.size())),
                 {inside.begin - grid.keys.begin, inside.end - grid.keys.begin});
    }
    void done(TokenRange part) {
      const Index row = (part.begin - grid.queries.begin) / grid.block;
      pooled.join(
          0, part.size(),
          cells.subspan(static_cast<std::size_t>(row * cols), static_cast<std::size_t>(cols)));
      pooled.clear();
    }
  };
  Body body{pooled, grid, cells, cols};
  visit_rows(trace, layer, head, grid.queries, parts, pool, stop, body);
  return cells;
}

HeavyKeys heavy_keys(const TraceSource& trace, Index layer, Index head, TokenRange queries,
                     Index most, ThreadPool& pool, const std::stop_token& stop) {
  HeavyKeys out;
  out.most = most;
  const auto n = static_cast<std::size_t>(queries.size() * most);
  out.keys.assign(n, -1);
  out.weights.assign(n, kNan);
  struct Body {
    HeavyKeys& out;
    TokenRange queries;
    void operator()(Index i, std::span<const double> weights, TokenRange visible, TokenRange part) {
      std::vector<std::int32_t> order(weights.size());
      std::iota(order.begin(), order.end(), 0);
      const std::size_t n = std::min(order.size(), static_cast<std::size_t>(out.most));
      const auto middle = order.begin() + static_cast<std::ptrdiff_t>(n);
      std::partial_sort(order.begin(), middle, order.end(), [&](std::int32_t a, std::int32_t b) {
        const double x = weights[static_cast<std::size_t>(a)];
        const double y = weights[static_cast<std::size_t>(b)];
        return x != y ? x > y : a < b;
      });
      const auto to = static_cast<std::size_t>((part.begin + i - queries.begin) * out.most);
      for (std::size_t j = 0; j < n; ++j) {
        out.keys[to + j] = static_cast<std::int32_t>(visible.begin) + order[j];
        out.weights[to + j] = weights[static_cast<std::size_t>(order[j])];
      }
    }
    void done(TokenRange) {}
  };
  std::vector<TokenRange> parts;
  constexpr Index kRowsAtOnce = 256;
  for (Index at = queries.begin; at < queries.end; at += kRowsAtOnce)
    parts.push_back({at, std::min(queries.end, at + kRowsAtOnce)});
  Body body{out, queries};
  visit_rows(trace, layer, head, queries, parts, pool, stop, body);
  return out;
}

std::string page_base64(std::span<const std::uint8_t> bytes) {
  static constexpr char kSigns[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (j < n ? static_cast<std::uint32_t>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) text += j <= n ? kSigns[group >> (18 - 6 * j) & 63U] : '=';
  }
  return text;
}

std::string encode_cells(std::span<const float> weights, const CellGrid& grid) {
  PageBytes bytes;
  for (Index row = 0; row < grid.rows(); ++row) {
    const TokenRange seen = grid.seen_cols(row);
    for (Index col = seen.begin; col < seen.end; ++col) {
      const auto at = static_cast<std::size_t>(row * grid.cols() + col);
      bytes.put16(page_code(static_cast<double>(weights[at])));
    }
  }
  return bytes.base64();
}

}  // namespace kvscope
