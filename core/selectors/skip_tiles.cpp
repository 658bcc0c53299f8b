#include "core/selectors/skip_tiles.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/attention/row_kernels.hpp"
#include "core/selectors/block_outcomes.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

constexpr Index kKeysAtOnce = 512;  // whose scores are held, for all queries of a group
constexpr double kUnseenTile = -std::numeric_limits<double>::infinity();

/// For one b: the best a and what remains of the squares.
struct Remainder {
  double a;
  double squares;
};

Remainder remainder_of(std::span<const SkipPoint> points, double b) {
  double product = 0.0;
  double square = 0.0;
  for (const SkipPoint& point : points) {
    const double e = std::exp(b * point.sparsity);
    product += e * point.scale;
    square += e * e;
  }
  Remainder out{product / square, 0.0};
  for (const SkipPoint& point : points) {
    const double missing = point.scale - out.a * std::exp(b * point.sparsity);
    out.squares += missing * missing;
  }
  return out;
}

}  // namespace

std::vector<std::vector<double>> tile_margins(const SelectCall& call, const ListHeads& group,
                                              TokenRange rows, Index block_k, KeyDots& dots) {
  const TokenRange seen{row_range(call, rows.begin).begin, row_range(call, rows.end - 1).end};
  const BlockOutcomes tiles(block_k, seen);
  std::vector<std::vector<double>> margins(
      static_cast<std::size_t>(group.q_heads.size()),
      std::vector<double>(static_cast<std::size_t>(tiles.blocks.size()), kUnseenTile));
  std::vector<Index> row_numbers;
  for (Index row = rows.begin; row < rows.end; ++row) row_numbers.push_back(row);
  std::vector<double> q;  // head by head
  for (Index q_head = group.q_heads.begin; q_head < group.q_heads.end; ++q_head) {
    const std::vector<double> part =
        query_rows(call, q_head, row_numbers, static_cast<double>(call.score_scale));
    q.insert(q.end(), part.begin(), part.end());
  }
  const std::size_t n_queries = margins.size() * row_numbers.size();
  std::vector<double> running(n_queries, kUnseenTile);
  const Index tiles_at_once = std::max<Index>(1, kKeysAtOnce / block_k);
  for (Index first = tiles.blocks.begin; first < tiles.blocks.end; first += tiles_at_once) {
    const Index last = std::min(first + tiles_at_once, tiles.blocks.end);
    const TokenRange part{tiles.keys_of(first).begin, tiles.keys_of(last - 1).end};
    dots.compute(q, static_cast<Index>(n_queries), call.k.sub(group.kv_head), part);
    for (std::size_t i = 0; i < n_queries; ++i) {
      const std::span<double> scores = dots.row(static_cast<Index>(i));
      soft_cap(scores, call.score_rule().cap);
      mask_dead(call, group.kv_head, part, scores);
      const TokenRange visible = row_range(call, row_numbers[i % row_numbers.size()]);
      for (Index tile = first; tile < last; ++tile) {
        const TokenRange keys = tiles.keys_of(tile);
        const Index begin = std::max(keys.begin, visible.begin);
        const Index end = std::min(keys.end, visible.end);
        if (begin >= end) continue;
        const double largest = max_of(scores.subspan(static_cast<std::size_t>(begin - part.begin),
                                                     static_cast<std::size_t>(end - begin)));
        running[i] = std::max(running[i], largest);
        if (largest == kUnseenTile) continue;
        double& margin =
            margins[i / row_numbers.size()][static_cast<std::size_t>(tile - tiles.blocks.begin)];
        margin = std::max(margin, largest - running[i]);
      }
    }
  }
  return margins;
}

double SkipScale::scale(double sparsity) const {
  return a * std::exp(b * sparsity);
}

std::optional<SkipScale> fit_skip_scale(std::span<const SkipPoint> points) {
  constexpr double kLargestB = 20.0;
  constexpr int kSteps = 2000;
  std::vector<SkipPoint> used;
  for (const SkipPoint& point : points) {
    if (point.sparsity >= 0.1 && point.sparsity <= 0.9) used.push_back(point);
  }
  if (used.size() < 3) return std::nullopt;
  int best = 0;
  for (int i = 1; i <= kSteps; ++i) {
    if (remainder_of(used, kLargestB * i / kSteps).squares <
        remainder_of(used, kLargestB * best / kSteps).squares)
      best = i;
  }
  double low = kLargestB * std::max(best - 1, 0) / kSteps;
  double high = kLargestB * std::min(best + 1, kSteps) / kSteps;
  for (int i = 0; i < 100; ++i) {  // thirds: the remainder falls, then rises
    const double left = low + (high - low) / 3.0;
    const double right = high - (high - low) / 3.0;
    if (remainder_of(used, left).squares <= remainder_of(used, right).squares) {
      high = right;
    } else {
      low = left;
    }
  }
  const double b = 0.5 * (low + high);
  return SkipScale{remainder_of(used, b).a, b};
}

}  // namespace kvscope
